//! Stamps by table: what they say, and which day they are of.

use jiff::civil::{date, datetime, time};
use jiff::tz::TimeZone;

use super::super::day::{Day, Span};
use super::super::stamp::{Stamp, parse_date, parse_stamp};
use super::{at, collect_day, store, zone};

#[test]
fn stamps_and_what_follows_them() {
    let local = Stamp::Local(datetime(2026, 9, 17, 10, 0, 1, 0));
    let utc = Stamp::Instant(at("2026-09-17T10:00:01Z"));
    let table = [
        ("2026-09-17T10:00:01 INFO", Some((local, " INFO"))),
        ("2026-09-17 10:00:01", Some((local, ""))),
        ("[2026-09-17 10:00:01] x", Some((local, "] x"))),
        ("\u{feff}2026-09-17 10:00:01 x", Some((local, " x"))),
        ("2026-09-17 10:00:01,5 x", Some((Stamp::Local(datetime(2026, 9, 17, 10, 0, 1, 500_000_000)), " x"))),
        ("2026-09-17T10:00:01.1234567891Z", Some((Stamp::Instant(at("2026-09-17T10:00:01.123456789Z")), ""))),
        ("2026-09-17 10:00 x", Some((Stamp::Local(datetime(2026, 9, 17, 10, 0, 0, 0)), " x"))),
        ("2026-09-17 10:00:01, x", Some((local, ", x"))),
        ("2026-09-17 10:00:60 x", Some((Stamp::Local(datetime(2026, 9, 17, 10, 0, 59, 0)), " x"))),
        ("2026-09-17T10:00:01Z x", Some((utc, " x"))),
        ("2026-09-17 10:00:01 UTC x", Some((utc, " x"))),
        ("2026-09-17T18:00:01+08:00 x", Some((utc, " x"))),
        ("2026-09-17T18:00:01+0800 x", Some((utc, " x"))),
        ("2026-09-17T18:00:01+08 x", Some((utc, " x"))),
        ("2026-09-17 06:30:01 -0330 x", Some((utc, " x"))),
        ("2026-09-17 10:00:01 -12 items", Some((local, " -12 items"))),
        ("2026-09-17 10:00:01 - text", Some((local, " - text"))),
        ("2026-09-17 10:00:01 -1234567 cents", Some((local, " -1234567 cents"))),
        ("2026-09-17 10:00:01 UTCX", Some((local, " UTCX"))),
        ("<34>1 2026-09-17T10:00:01Z host", Some((utc, " host"))),
        ("2026-09-17 was fine", None),
        ("2026-09-17", None),
        ("2026-02-29 10:00:01", None),
        ("2026-09-17 25:00:01", None),
        ("2026-09-17 10:00:012", None),
        ("2026-09-17T10:00:01+99:00", None),
        (" 2026-09-17 10:00:01", None),
        ("\tat com.example.Till", None),
        ("", None),
        ("2026-0é-17 10:00:01", None),
    ];
    for (line, expected) in table {
        let found = parse_stamp(line.as_bytes());
        let expected = expected.map(|(stamp, rest)| (stamp, line.len() - rest.len()));
        assert_eq!(found, expected, "{line:?}");
    }
}

#[test]
fn syslog_stamps() {
    let syslog = |month, day| Some(Stamp::Syslog { month, day, time: time(10, 0, 1, 0) });
    let table = [
        ("Sep 17 10:00:01 host app: x", syslog(9, 17)),
        ("Sep  7 10:00:01 host", syslog(9, 7)),
        ("Sep 07 10:00:01 host", syslog(9, 7)),
        ("<134>Feb 29 10:00:01 host", syslog(2, 29)),
        ("Feb 30 10:00:01 host", None),
        ("Sept 7 10:00:01 host", None),
        ("sep  7 10:00:01 host", None),
        ("Sep 17 10:00 host", None),
        ("Sep 17 24:00:01 host", None),
        ("Sep", None),
    ];
    for (line, expected) in table {
        assert_eq!(parse_stamp(line.as_bytes()).map(|(stamp, _)| stamp), expected, "{line:?}");
    }
}

#[test]
fn days_are_taken_only_as_the_input_schema_writes_them() {
    assert_eq!(parse_date("2024-02-29"), Some(date(2024, 2, 29)));
    for text in ["2026-02-29", "2026-9-17", "20260917", "2026-09-17 ", "+002026-09-17", "2026-13-01", "", "二〇二六"] {
        assert_eq!(parse_date(text), None, "{text:?}");
    }
}

fn takes(date: jiff::civil::Date, zone: &TimeZone, now: &str, line: &str) -> bool {
    let day = Day::new(date, zone, at(now)).unwrap();
    let (stamp, _) = parse_stamp(line.as_bytes()).unwrap();
    day.takes(&stamp, &mut Span::default())
}

#[test]
fn an_offset_is_converted_across_midnight_and_across_clock_changes() {
    let table = [
        // Shanghai's September 17 is 16:00Z on the 16th to 16:00Z on the 17th.
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-16T15:59:59Z", false),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-16T16:00:00Z", true),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-17T15:59:59.999Z", true),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-17T16:00:00Z", false),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-16T12:00:00-06:00", true),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-17 23:59:59", true),
        ("Asia/Shanghai", date(2026, 9, 17), "2026-09-18 00:00:00", false),
        // New York loses an hour on March 8, 2026 and has one twice on November 1.
        ("America/New_York", date(2026, 3, 8), "2026-03-08T04:59:59Z", false),
        ("America/New_York", date(2026, 3, 8), "2026-03-08T05:00:00Z", true),
        ("America/New_York", date(2026, 3, 8), "2026-03-09T03:59:59Z", true),
        ("America/New_York", date(2026, 3, 8), "2026-03-09T04:00:00Z", false),
        ("America/New_York", date(2026, 3, 8), "2026-03-08 02:30:00", true),
        ("America/New_York", date(2026, 11, 1), "2026-11-01T04:00:00Z", true),
        ("America/New_York", date(2026, 11, 1), "2026-11-02T04:59:59Z", true),
        ("America/New_York", date(2026, 11, 1), "2026-11-02T05:00:00Z", false),
        // In Santiago clocks go forward at midnight: September 6, 2026 begins at 01:00.
        ("America/Santiago", date(2026, 9, 6), "2026-09-06T04:00:00Z", true),
        ("America/Santiago", date(2026, 9, 6), "2026-09-06T03:59:59Z", false),
    ];
    for (name, day, stamp, expected) in table {
        assert_eq!(takes(day, &zone(name), "2026-12-01T00:00:00Z", stamp), expected, "{name} {day} {stamp}");
    }
}

#[test]
fn a_syslog_stamp_is_in_the_latest_year_that_is_not_in_the_future() {
    let table = [
        (date(2026, 9, 17), "2026-09-18T00:00:00Z", "Sep 17 10:00:01", true),
        (date(2025, 9, 17), "2026-09-18T00:00:00Z", "Sep 17 10:00:01", false),
        // Today still counts as this year, whatever the hour.
        (date(2026, 9, 17), "2026-09-17T00:00:01Z", "Sep 17 10:00:01", true),
        (date(2025, 12, 31), "2026-01-01T00:10:00Z", "Dec 31 23:59:59", true),
        (date(2026, 12, 31), "2026-01-01T00:10:00Z", "Dec 31 23:59:59", false),
        (date(2026, 1, 1), "2026-01-01T00:10:00Z", "Jan  1 00:00:01", true),
        // The last leap day before 2026, and the one before 2100's missing one.
        (date(2024, 2, 29), "2026-09-18T00:00:00Z", "Feb 29 10:00:01", true),
        (date(2096, 2, 29), "2103-09-18T00:00:00Z", "Feb 29 10:00:01", true),
        (date(2024, 2, 29), "2024-02-29T00:00:00Z", "Feb 29 10:00:01", true),
    ];
    for (day, now, stamp, expected) in table {
        assert_eq!(takes(day, &TimeZone::UTC, now, stamp), expected, "{day} at {now}: {stamp}");
    }
}

#[test]
fn the_store_zone_decides_what_today_is_for_syslog() {
    // 20:00Z on December 31 is January 1 in Shanghai already.
    let shanghai = zone("Asia/Shanghai");
    assert!(takes(date(2026, 1, 1), &shanghai, "2025-12-31T20:00:00Z", "Jan  1 03:00:00"));
    assert!(!takes(date(2026, 1, 1), &TimeZone::UTC, "2025-12-31T20:00:00Z", "Jan  1 03:00:00"));
}

#[test]
fn first_and_last_are_moments_with_the_offset_of_their_time() {
    let root = store(&[
        ("a.log", b"2026-09-17 08:00:00 INFO a\n2026-09-17T15:00:00.25Z INFO b\n2026-09-16T16:30:00Z INFO c\n"),
        ("pos.log", b"Sep 17 09:00:00 till pos: INFO d\n"),
    ]);
    let output = collect_day(root.path(), "2026-09-17").unwrap();
    assert_eq!(output.first_at.as_deref(), Some("2026-09-17T00:30:00+08:00"));
    assert_eq!(output.last_at.as_deref(), Some("2026-09-17T23:00:00.25+08:00"));

    let day = Day::new(date(2026, 11, 1), &zone("America/New_York"), at("2026-12-01T00:00:00Z")).unwrap();
    let mut span = Span::default();
    for line in ["2026-11-01 00:30:00", "2026-11-01 02:30:00"] {
        assert!(day.takes(&parse_stamp(line.as_bytes()).unwrap().0, &mut span));
    }
    let (first, last) = day.bounds(&span);
    assert_eq!(first.as_deref(), Some("2026-11-01T00:30:00-04:00"));
    assert_eq!(last.as_deref(), Some("2026-11-01T02:30:00-05:00"));
}

//! `collect_log` against the account that the writer of the fixtures kept.

use std::time::{Duration, Instant};

use jiff::civil::date;

use super::{CollectLogInput, at, collect_log, zone};
use crate::fixture::write_store;

#[test]
fn every_day_of_every_store_is_as_its_writer_counted_it() {
    let zone = zone("Asia/Shanghai");
    // Over a leap day and over New Year, so that the syslog file needs the right year.
    for (day, now) in [(date(2024, 3, 1), "2024-03-01T15:00:00Z"), (date(2026, 1, 1), "2026-01-01T10:00:00Z")] {
        for seed in 0..10 {
            let dir = tempfile::tempdir().unwrap();
            let expected = write_store(dir.path(), &format!("SH_{seed:04}"), seed, day, 4).unwrap();
            assert_eq!(expected.days.len(), 4);
            for (date, expected_day) in &expected.days {
                let input = CollectLogInput::for_date(date.to_string());
                let output = collect_log(dir.path(), &input, &zone, at(now), &|| false).unwrap();
                assert_eq!(output.files, expected_day.files);
                assert_eq!(output.levels, expected_day.levels);
                assert_eq!(output.config.app_version.as_deref(), Some(expected.app_version.as_str()));
                assert_eq!(output.config.sha256, expected.config_sha256);
                assert_eq!(output.first_at, Some(format!("{}+08:00", expected_day.first_local)));
                assert_eq!(output.last_at, Some(format!("{}+08:00", expected_day.last_local)));
                assert!(output.unreadable.is_empty(), "{:?}", output.unreadable);
                let levels = output.levels;
                assert_eq!(expected.lines(*date), levels.error + levels.warn + levels.info + levels.other);
            }
        }
    }
}

#[test]
fn five_hundred_stores_are_written_and_read_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let day = date(2026, 9, 17);
    let zone = zone("Asia/Shanghai");
    let started = Instant::now();
    let mut errors = 0;
    for store in 0..500 {
        let name = format!("SH_{store:04}");
        errors += write_store(&dir.path().join(&name), &name, 1, day, 2).unwrap().errors(day);
    }
    let written = started.elapsed();
    let started = Instant::now();
    let mut counted = 0;
    for store in 0..500 {
        let root = dir.path().join(format!("SH_{store:04}"));
        let input = CollectLogInput::for_date("yesterday");
        counted += collect_log(&root, &input, &zone, at(super::NOW), &|| false).unwrap().levels.error;
    }
    let read = started.elapsed();
    assert_eq!(counted, errors);
    // Far above what it takes, so that a busy machine passes and a quadratic scan doesn't.
    assert!(written < Duration::from_secs(20) && read < Duration::from_secs(10), "{written:?} {read:?}");
}

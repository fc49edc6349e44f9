//! Durations and moments as people write them.

use fanfold_process::Clock;
use fanfold_wire::timestamp::from_rfc3339;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Epoch milliseconds now, by this machine's clock.
pub fn now_ms() -> i64 {
    Clock::system().now_ms()
}

/// A duration such as `500ms`, `120s`, `10m`, `2h`, `1d` or `1h30m`, in milliseconds.
///
/// # Errors
/// What is wrong with it, for people.
pub fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let bad = || format!("`{text}` is not a duration such as 500ms, 120s, 10m, 2h, 1d or 1h30m");
    let mut rest = text.trim();
    let mut total: i64 = 0;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at_checked(digits).ok_or_else(bad)?;
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, next) = after.split_at_checked(letters).ok_or_else(bad)?;
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let number: i64 = number.parse().map_err(|_| bad())?;
        total = number.checked_mul(unit_ms).and_then(|ms| total.checked_add(ms)).ok_or_else(bad)?;
        rest = next;
    }
    Ok(total)
}

/// A moment: RFC 3339, `2026-09-17 20:00` or `2026-09-17` in the person's zone, or a duration ago (`10m`). Epoch milliseconds.
///
/// # Errors
/// What is wrong with it, for people.
pub fn parse_moment(text: &str, now_ms: i64, zone: &TimeZone) -> Result<i64, String> {
    if let Some(ms) = from_rfc3339(text) {
        return Ok(ms);
    }
    let civil = text.parse::<DateTime>().ok().or_else(|| text.parse::<Date>().ok().map(|d| d.at(0, 0, 0, 0)));
    if let Some(moment) = civil.and_then(|civil| zone.to_timestamp(civil).ok()) {
        return Ok(moment.as_millisecond());
    }
    match parse_duration_ms(text) {
        Ok(ago) => Ok(now_ms.saturating_sub(ago)),
        Err(_) => {
            Err(format!("`{text}` is neither a moment (2026-09-17T20:00:00+02:00, 2026-09-17 20:00) nor a duration ago (10m)"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [("500ms", 500), ("120s", 120_000), ("10m", 600_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("0s", 0)];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        for bad in ["", "120", "s", "-1s", "1.5h", "1 h", "99999999999999999999s", "9223372036854775807d", "1é", "é"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments() {
        let now = 1_789_000_000_000;
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(parse_moment("10m", now, &zone), Ok(now - 600_000));
        assert_eq!(parse_moment("2026-09-10T00:26:40Z", now, &zone), Ok(now));
        assert_eq!(parse_moment("2026-09-10 02:26:40", now, &zone), Ok(now));
        assert_eq!(parse_moment("2026-09-10", now, &TimeZone::UTC), Ok(1_788_998_400_000));
        assert!(parse_moment("yesterday", now, &zone).is_err());
    }
}

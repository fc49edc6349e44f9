//! RFC 3339 timestamps and epoch milliseconds.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Epoch milliseconds as RFC 3339 in UTC with milliseconds; out of range (beyond year 9999) it is the epoch's text.
pub fn to_rfc3339(epoch_ms: i64) -> String {
    let moment =
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(epoch_ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        moment.year(),
        u8::from(moment.month()),
        moment.day(),
        moment.hour(),
        moment.minute(),
        moment.second(),
        moment.millisecond()
    )
}

/// RFC 3339 to epoch milliseconds.
pub fn from_rfc3339(text: &str) -> Option<i64> {
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_offsets() {
        assert_eq!(to_rfc3339(1_789_000_000_123), "2026-09-10T00:26:40.123Z");
        assert_eq!(from_rfc3339("2026-09-10T00:26:40.123Z"), Some(1_789_000_000_123));
        assert_eq!(from_rfc3339("2026-09-10T02:26:40.123+02:00"), Some(1_789_000_000_123));
        assert_eq!(from_rfc3339("yesterday"), None);
        assert_eq!(to_rfc3339(i64::MAX), "1970-01-01T00:00:00.000Z");
    }
}

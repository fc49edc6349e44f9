//! Numbers, sizes, durations and times for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `1,234,567`
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12 B`, `1.5 KiB`, `3.0 MiB`
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).copied().unwrap_or("TiB"))
}

/// `12 ms`, `1.2 s`, `2 min 3 s`, `3 h 5 min`, `2 d 4 h`; negative ones with a minus.
pub fn duration(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    let two = |large: u64, a: &str, small: u64, b: &str| {
        if small == 0 { format!("{large} {a}") } else { format!("{large} {a} {small} {b}") }
    };
    let text = match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => two(ms / 60_000, "min", ms % 60_000 / 1_000, "s"),
        3_600_000..86_400_000 => two(ms / 3_600_000, "h", ms % 3_600_000 / 60_000, "min"),
        _ => two(ms / 86_400_000, "d", ms % 86_400_000 / 3_600_000, "h"),
    };
    format!("{sign}{text}")
}

/// Epoch milliseconds as `2026-09-17 20:00:01` in a zone.
pub fn time(epoch_ms: i64, zone: &TimeZone) -> String {
    strftime(epoch_ms, zone, "%Y-%m-%d %H:%M:%S")
}

/// Epoch milliseconds as `2026-09-17 20:00:01.123` in a zone.
pub fn time_ms(epoch_ms: i64, zone: &TimeZone) -> String {
    strftime(epoch_ms, zone, "%Y-%m-%d %H:%M:%S.%3f")
}

/// Epoch milliseconds as `2026-09-17 20:00:01 +02:00`: for texts that travel.
pub fn time_with_offset(epoch_ms: i64, zone: &TimeZone) -> String {
    strftime(epoch_ms, zone, "%Y-%m-%d %H:%M:%S %:z")
}

fn strftime(epoch_ms: i64, zone: &TimeZone, format: &str) -> String {
    match Timestamp::from_millisecond(epoch_ms) {
        Ok(moment) => moment.to_zoned_datetime(zone.clone()).strftime(format).to_string(),
        Err(_) => epoch_ms.to_string(),
    }
}

/// A share as `98.4 %`, rounded; `100.0 %` only where it is all, `0.0 %` only where it is none; `-` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    // Rounded, but what is not all is not shown as all (99.96 % is no 100.0 %), nor what is not nothing as nothing.
    let (part, whole) = (u128::from(part), u128::from(whole));
    let rounded = (part * 2_000 + whole) / (whole * 2);
    let tenths = if part == 0 || part >= whole { rounded } else { rounded.clamp(1, 999) };
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A text on one line, without control characters, at most `max` characters.
pub fn one_line(text: &str, max: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(max).map(clean).collect();
    if text.chars().nth(max).is_some() {
        line.pop();
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sizes_durations() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1536, 3 << 20, 5 << 40].map(bytes), ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 TiB"]);
        let durations = [12, 1_250, 60_000, 123_000, 11_100_000, 187_200_000, -5].map(duration);
        assert_eq!(durations, ["12 ms", "1.2 s", "1 min", "2 min 3 s", "3 h 5 min", "2 d 4 h", "-5 ms"]);
        let shares = [(4_998, 5_000), (23, 300), (277, 300), (1, 100_000), (0, 9), (9, 9), (1, 2), (u64::MAX - 1, u64::MAX)];
        let expected = ["99.9 %", "7.7 %", "92.3 %", "0.1 %", "0.0 %", "100.0 %", "50.0 %", "99.9 %"];
        assert_eq!(shares.map(|(part, whole)| percent(part, whole)), expected);
        assert_eq!(percent(0, 0), "-");
    }

    #[test]
    fn times_are_local() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(time(1_789_000_000_123, &zone), "2026-09-10 02:26:40");
        assert_eq!(time_ms(1_789_000_000_123, &zone), "2026-09-10 02:26:40.123");
        assert_eq!(time_with_offset(1_789_000_000_123, &zone), "2026-09-10 02:26:40 +02:00");
        assert_eq!(time(i64::MAX, &zone), i64::MAX.to_string());
    }

    #[test]
    fn lines_are_clean() {
        assert_eq!(one_line("a\nb\u{1b}[31m", 80), "a b [31m");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }
}

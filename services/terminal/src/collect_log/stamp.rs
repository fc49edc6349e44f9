//! The stamp a log line begins with.
//!
//! | form | means |
//! |---|---|
//! | `2026-09-17T10:00:01`, `2026-09-17 10:00:01,123` | the store's local time |
//! | the same with `Z`, `+08:00`, `+0800`, `+08`, also after a space; or ` UTC`, ` GMT` | that moment |
//! | `Sep 17 10:00:01` (`Sep  7`, `Sep 07`) | the store's local time in a year to be found |
//!
//! A byte order mark, one `[`, and a syslog priority (`<34>`, `<34>1 `) may come before it. Seconds and
//! their fraction may be missing in the ISO form; a bare date is no stamp. A stamp that isn't in the calendar
//! (February 30, 25 o'clock, offset +99:00) is none: such a line belongs to the stamped line before it.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    tz::Offset,
};

/// A stamp as the line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Local time of the store.
    Local(DateTime),
    /// A moment: the line named its offset.
    Instant(Timestamp),
    /// Local time of the store without a year.
    Syslog { month: i8, day: i8, time: Time },
}

const MONTHS: [&[u8; 3]; 12] = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The stamp at the beginning of a line and the number of bytes up to its end.
pub(super) fn parse_stamp(line: &[u8]) -> Option<(Stamp, usize)> {
    let mut cursor = Cursor { bytes: line, at: 0 };
    cursor.skip_prefix();
    let stamp = match cursor.peek()? {
        b'0'..=b'9' => iso(&mut cursor)?,
        b'A'..=b'Z' => syslog(&mut cursor)?,
        _ => return None,
    };
    Some((stamp, cursor.at))
}

/// A day written exactly as `YYYY-MM-DD`, if the calendar has it.
pub(super) fn parse_date(text: &str) -> Option<Date> {
    let mut cursor = Cursor { bytes: text.as_bytes(), at: 0 };
    let date = iso_date(&mut cursor)?;
    cursor.peek().is_none().then_some(date)
}

fn iso_date(cursor: &mut Cursor<'_>) -> Option<Date> {
    let year = i16::from(cursor.two_digits()?) * 100 + i16::from(cursor.two_digits()?);
    cursor.expect(b'-')?;
    let month = cursor.two_digits()?;
    cursor.expect(b'-')?;
    let day = cursor.two_digits()?;
    Date::new(year, month, day).ok()
}

fn iso(cursor: &mut Cursor<'_>) -> Option<Stamp> {
    let date = iso_date(cursor)?;
    if !matches!(cursor.next()?, b'T' | b't' | b' ') {
        return None;
    }
    let (hour, minute) = hour_minute(cursor)?;
    let mut time = Time::new(hour, minute, 0, 0).ok()?;
    if cursor.eat(b':') {
        let second = cursor.two_digits()?;
        let fraction_ns = fraction_ns(cursor);
        time = clock(hour, minute, second, fraction_ns)?;
    }
    // A digit right behind means that this was a longer number and no time.
    if cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let local = DateTime::from_parts(date, time);
    match offset(cursor)? {
        None => Some(Stamp::Local(local)),
        Some(offset) => offset.to_timestamp(local).ok().map(Stamp::Instant),
    }
}

fn syslog(cursor: &mut Cursor<'_>) -> Option<Stamp> {
    let name = [cursor.next()?, cursor.next()?, cursor.next()?];
    let month = i8::try_from(MONTHS.iter().position(|month| **month == name)? + 1).ok()?;
    cursor.expect(b' ')?;
    let day = if cursor.eat(b' ') {
        cursor.digit()?
    } else {
        let first = cursor.digit()?;
        cursor.digit().map_or(first, |second| first * 10 + second)
    };
    cursor.expect(b' ')?;
    let (hour, minute) = hour_minute(cursor)?;
    cursor.expect(b':')?;
    let second = cursor.two_digits()?;
    if cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction_ns = fraction_ns(cursor);
    // 2024 is a leap year, so every day that some year has passes.
    Date::new(2024, month, day).ok()?;
    Some(Stamp::Syslog { month, day, time: clock(hour, minute, second, fraction_ns)? })
}

fn hour_minute(cursor: &mut Cursor<'_>) -> Option<(i8, i8)> {
    let hour = cursor.two_digits()?;
    cursor.expect(b':')?;
    Some((hour, cursor.two_digits()?))
}

/// A leap second is taken as the second before it, as clocks that can't show it do.
fn clock(hour: i8, minute: i8, second: i8, fraction_ns: i32) -> Option<Time> {
    Time::new(hour, minute, if second == 60 { 59 } else { second }, fraction_ns).ok()
}

/// The digits after `.` or `,`; without a digit there the mark is not part of the stamp.
fn fraction_ns(cursor: &mut Cursor<'_>) -> i32 {
    if !matches!(cursor.peek(), Some(b'.' | b',')) || !cursor.peek_at(1).is_some_and(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    cursor.at += 1;
    let mut fraction_ns = 0;
    let mut unit_ns = 100_000_000;
    while let Some(digit) = cursor.digit() {
        fraction_ns += i32::from(digit) * unit_ns;
        unit_ns /= 10;
    }
    fraction_ns
}

/// The offset behind a time: `Some(None)` if there is none, `None` if it is out of range.
fn offset(cursor: &mut Cursor<'_>) -> Option<Option<Offset>> {
    let after_time = cursor.at;
    if cursor.eat(b'Z') || cursor.eat(b'z') {
        return Some(Some(Offset::UTC));
    }
    let spaced = cursor.eat(b' ');
    if spaced && (cursor.eat_word(b"UTC") || cursor.eat_word(b"GMT") || cursor.eat_word(b"Z")) {
        return Some(Some(Offset::UTC));
    }
    let parsed = numeric_offset(cursor);
    let goes_on = cursor.peek().is_some_and(|byte| byte.is_ascii_alphanumeric());
    // `10:00:01 -12 items` is a message, so a bare hour needs to touch the time.
    let usable = parsed.filter(|parsed| !(goes_on || spaced && parsed.hours_only));
    let Some(parsed) = usable else {
        cursor.at = after_time;
        return Some(None);
    };
    if parsed.hours > 23 || parsed.minutes > 59 {
        return None;
    }
    let seconds = (i32::from(parsed.hours) * 60 + i32::from(parsed.minutes)) * 60;
    Offset::from_seconds(if parsed.west { -seconds } else { seconds }).ok().map(Some)
}

struct NumericOffset {
    west: bool,
    hours: i8,
    minutes: i8,
    hours_only: bool,
}

fn numeric_offset(cursor: &mut Cursor<'_>) -> Option<NumericOffset> {
    let west = match cursor.next()? {
        b'+' => false,
        b'-' => true,
        _ => return None,
    };
    let hours = cursor.two_digits()?;
    let colon = cursor.peek() == Some(b':');
    if colon {
        cursor.at += 1;
    }
    match cursor.two_digits() {
        Some(minutes) => Some(NumericOffset { west, hours, minutes, hours_only: false }),
        None if colon => None,
        None => Some(NumericOffset { west, hours, minutes: 0, hours_only: true }),
    }
}

/// A place in a line.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.eat(wanted).then_some(())
    }

    fn eat_word(&mut self, word: &[u8]) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let found = rest.starts_with(word) && !rest.get(word.len()).is_some_and(u8::is_ascii_alphanumeric);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn digit(&mut self) -> Option<i8> {
        let byte = self.peek()?;
        if !byte.is_ascii_digit() {
            return None;
        }
        self.at += 1;
        i8::try_from(byte - b'0').ok()
    }

    /// Both digits or none: nothing is consumed when the second is missing.
    fn two_digits(&mut self) -> Option<i8> {
        let both = [self.peek()?, self.peek_at(1)?];
        if !both.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.at += 2;
        i8::try_from((both[0] - b'0') * 10 + (both[1] - b'0')).ok()
    }

    /// Steps over what may come before a stamp.
    fn skip_prefix(&mut self) {
        if self.bytes.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        if self.peek() == Some(b'<') {
            let digits = (1..=3).take_while(|ahead| self.peek_at(*ahead).is_some_and(|byte| byte.is_ascii_digit())).count();
            if digits > 0 && self.peek_at(digits + 1) == Some(b'>') {
                self.at += digits + 2;
                // The newer syslog form has its version, always 1 so far, between priority and stamp.
                if self.peek() == Some(b'1') && self.peek_at(1) == Some(b' ') {
                    self.at += 2;
                }
            }
        }
        self.eat(b'[');
    }
}

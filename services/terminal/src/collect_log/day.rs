//! The wanted day in the store's zone: does a stamp belong to it, and between which moments do they lie.

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

use super::{CollectError, bad_date, stamp::Stamp};

/// February 29 is missing for eight years in a row at most (around 1900 or 2100).
const SYSLOG_YEARS_BACK_MAX: i16 = 8;

/// One day of the store's calendar with its edges as moments, worked out once and not once a line.
pub(super) struct Day {
    date: Date,
    start: Timestamp,
    end: Timestamp,
    zone: TimeZone,
    today: Date,
}

impl Day {
    /// The day `date` in `zone`; `now` decides which year a stamp without one is in.
    pub(super) fn new(date: Date, zone: &TimeZone, now: Timestamp) -> Result<Self, CollectError> {
        let start_of = |date: Date| date.to_zoned_datetime(zone.clone()).map(|moment| moment.timestamp());
        let edges = start_of(date).and_then(|start| Ok((start, start_of(date.tomorrow()?)?)));
        // Only the calendar's last day fails here, and no store has logs of it.
        let (start, end) = edges.map_err(|_| bad_date(&date.to_string()))?;
        Ok(Self { date, start, end, zone: zone.clone(), today: zone.to_datetime(now).date() })
    }

    pub(super) fn date(&self) -> Date {
        self.date
    }

    /// Whether the stamp is of this day; if so, `span` is widened by it.
    pub(super) fn takes(&self, stamp: &Stamp, span: &mut Span) -> bool {
        match *stamp {
            Stamp::Local(at) => self.takes_local(at, span),
            Stamp::Syslog { month, day, time } => match self.syslog_date(month, day) {
                Some(date) => self.takes_local(DateTime::from_parts(date, time), span),
                None => false,
            },
            Stamp::Instant(at) => {
                let inside = self.start <= at && at < self.end;
                if inside {
                    widen(&mut span.instants, at);
                }
                inside
            }
        }
    }

    fn takes_local(&self, at: DateTime, span: &mut Span) -> bool {
        let inside = at.date() == self.date;
        if inside {
            widen(&mut span.locals, at);
        }
        inside
    }

    /// The latest day with this month and day that isn't after today.
    fn syslog_date(&self, month: i8, day: i8) -> Option<Date> {
        let this_year = self.today.year();
        (this_year - SYSLOG_YEARS_BACK_MAX..=this_year)
            .rev()
            .filter_map(|year| Date::new(year, month, day).ok())
            .find(|date| *date <= self.today)
    }

    /// First and last moment of a span, RFC 3339 with the offset the store's clock had then.
    ///
    /// A local time that the clock showed twice is taken as the earlier one; one it skipped, as the later.
    pub(super) fn bounds(&self, span: &Span) -> (Option<String>, Option<String>) {
        let mut all = span.instants;
        if let Some((first, last)) = span.locals {
            for at in [first, last] {
                if let Ok(at) = self.zone.to_timestamp(at) {
                    widen(&mut all, at);
                }
            }
        }
        let show = |at: Timestamp| at.display_with_offset(self.zone.to_offset(at)).to_string();
        (all.map(|(first, _)| show(first)), all.map(|(_, last)| show(last)))
    }
}

/// Earliest and latest stamp seen: local times and moments apart, so that no line needs a zone look-up.
#[derive(Default, Clone, Copy)]
pub(super) struct Span {
    locals: Option<(DateTime, DateTime)>,
    instants: Option<(Timestamp, Timestamp)>,
}

impl Span {
    pub(super) fn merge(&mut self, other: Span) {
        if let Some((first, last)) = other.locals {
            widen(&mut self.locals, first);
            widen(&mut self.locals, last);
        }
        if let Some((first, last)) = other.instants {
            widen(&mut self.instants, first);
            widen(&mut self.instants, last);
        }
    }
}

fn widen<T: Ord + Copy>(range: &mut Option<(T, T)>, value: T) {
    *range = Some(match *range {
        None => (value, value),
        Some((first, last)) => (first.min(value), last.max(value)),
    });
}

//! The clock services are handed, so that tests can bring their own.
//!
//! Nothing else in a service asks for the time of day: durations come from `tokio::time`, epochs
//! from here.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A source of unix epoch milliseconds. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Virtual { epoch_ms: i64, started: Instant },
}

impl Clock {
    /// The machine's own clock, asked anew at each call: it follows corrections by NTP.
    pub fn system() -> Self {
        Self { source: Source::System }
    }

    /// A clock that reads `epoch_ms` now and advances with tokio's time. With tokio's time paused
    /// it moves only when a test moves it.
    pub fn virtual_from(epoch_ms: i64) -> Self {
        Self { source: Source::Virtual { epoch_ms, started: Instant::now() } }
    }

    /// Milliseconds since the unix epoch; negative before 1970.
    #[expect(clippy::disallowed_methods, reason = "this is where the time of day comes from")]
    pub fn now_ms(&self) -> i64 {
        match &self.source {
            Source::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => saturating_ms(since.as_millis()),
                Err(before) => -saturating_ms(before.duration().as_millis()),
            },
            Source::Virtual { epoch_ms, started } => epoch_ms.saturating_add(saturating_ms(started.elapsed().as_millis())),
        }
    }
}

fn saturating_ms(ms: u128) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_clock_moves_only_with_tokio_time() {
        let clock = Clock::virtual_from(1_000_000);
        let copy = clock.clone();
        assert_eq!(clock.now_ms(), 1_000_000);
        tokio::time::advance(Duration::from_millis(2_500)).await;
        assert_eq!(clock.now_ms(), 1_002_500);
        assert_eq!(copy.now_ms(), 1_002_500);
    }

    #[test]
    fn virtual_clock_saturates_instead_of_wrapping() {
        assert_eq!(Clock::virtual_from(i64::MAX).now_ms(), i64::MAX);
    }

    #[test]
    fn system_clock_is_after_2025_and_does_not_run_backwards() {
        let clock = Clock::system();
        let first = clock.now_ms();
        assert!(first > 1_735_689_600_000, "{first}");
        assert!(clock.now_ms() >= first);
    }
}

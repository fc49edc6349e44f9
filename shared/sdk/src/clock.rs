//! The terminal's idea of the time of day: a claim in its reports that nothing is decided by. Everything else goes by durations.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of epoch milliseconds; `None` where there is none. Cheap to clone.
#[derive(Clone, Default)]
pub struct WallClock {
    source: Option<Arc<dyn Fn() -> Option<i64> + Send + Sync>>,
}

impl WallClock {
    /// The machine's own.
    pub fn system() -> Self {
        Self::default()
    }

    /// One that tells what `now_ms` does, for tests.
    pub fn of(now_ms: impl Fn() -> Option<i64> + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(now_ms)) }
    }

    /// Milliseconds since the unix epoch, as far as this machine knows.
    #[expect(clippy::disallowed_methods, reason = "where this crate's claims come from; it depends on no process library")]
    pub fn now_ms(&self) -> Option<i64> {
        match &self.source {
            Some(source) => source(),
            None => i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis()).ok(),
        }
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.source.is_some() { "WallClock(given)" } else { "WallClock(system)" })
    }
}

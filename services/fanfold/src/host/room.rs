//! How full the log is, said before it is too late and when it is.

use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::port::{Ledger, Room};
use fanfold_process::shutdown::Shutdown;

use crate::render::format::number;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Less than this is full: the next batch may not fit.
pub const FULL_BELOW_BYTES: u64 = 64 * 1024;
/// From so many percent on it is said that the log gets full.
const NEARLY_PERCENT: u64 = 90;

/// How full a log is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// Room enough, or no limit.
    Fine,
    /// 90 % and more.
    Nearly,
    /// The next batch may not fit.
    Full,
}

impl Fullness {
    /// How full it is.
    pub fn of(room: Option<Room>) -> Self {
        let Some(room) = room else { return Fullness::Fine };
        match room.used_bytes.saturating_mul(100) / room.max_bytes.max(1) {
            _ if room.free_bytes() < FULL_BELOW_BYTES => Fullness::Full,
            NEARLY_PERCENT.. => Fullness::Nearly,
            _ => Fullness::Fine,
        }
    }
}

/// `12,345 of 20,000 bytes (61 %)`
pub fn used(room: Room) -> String {
    let percent = room.used_bytes.saturating_mul(100) / room.max_bytes.max(1);
    format!("{} of {} bytes ({percent} %)", number(room.used_bytes), number(room.max_bytes))
}

/// Looks until shutdown; `say` hears of each change once. That the server can't be asked is others' news.
pub async fn watch(ledger: Arc<dyn Ledger>, shutdown: Shutdown, say: impl Fn(&str) + Send) {
    let mut before = Fullness::Fine;
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            _ = look.tick() => {}
        }
        let Ok(room) = ledger.room().await else { continue };
        let now = Fullness::of(room);
        if now != before {
            say(&news(now, room));
            before = now;
        }
    }
}

fn news(now: Fullness, room: Option<Room>) -> String {
    let used = room.map(used).unwrap_or_default();
    match now {
        Fullness::Full => format!(
            "LOG_FULL: the log has taken {used} and takes hardly anything more; raise max_bytes of FANFOLD, everything goes on by itself then"
        ),
        Fullness::Nearly => format!("the log gets full: {used}; raise max_bytes of FANFOLD"),
        Fullness::Fine => "the log has room again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_is_when_the_next_batch_may_not_fit() {
        let of = |used_bytes, max_bytes| Fullness::of(Some(Room { used_bytes, max_bytes }));
        assert_eq!(Fullness::of(None), Fullness::Fine);
        assert_eq!(of(800_000, 1_000_000), Fullness::Fine);
        assert_eq!(of(900_000, 1_000_000), Fullness::Nearly);
        assert_eq!(of(1_000_000 - FULL_BELOW_BYTES + 1, 1_000_000), Fullness::Full);
        assert_eq!(of(1_000_001, 1_000_000), Fullness::Full);
        assert!(news(Fullness::Full, Some(Room { used_bytes: 5, max_bytes: 10 })).contains("5 of 10 bytes (50 %)"));
    }
}

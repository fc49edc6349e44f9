//! Waiting for something to be so, with an end.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// How long something may take that is expected to happen at once; generous, since machines that test are busy.
pub const SOON: Duration = Duration::from_secs(20);

/// Looks again until there is something, and gives it.
///
/// # Panics
/// When there is nothing within the time; with `what` was waited for.
pub async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

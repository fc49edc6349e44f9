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
pub async fn until<T>(what: &str, within: Duration, look: impl AsyncFnMut() -> Option<T>) -> T {
    match found(within, look).await {
        Some(found) => found,
        None => panic!("not within {within:?}: {what}"),
    }
}

/// As [`until`], for those who have more to say when there is nothing: then it is `None`.
pub async fn found<T>(within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        let found = look().await;
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

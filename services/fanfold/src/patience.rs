//! Work over a server that may take requests and never answer: it says what it waits for, and ends with an error when nothing at all
//! comes for too long. A server that is only slow may take as long as it likes.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::CliError;
use crate::out::Out;

/// Without any answer for so long, the work is given up.
pub const NO_ANSWER_MAX: Duration = Duration::from_secs(30);
/// After so long it is said what is waited for.
const TELL_AFTER: Duration = Duration::from_secs(3);

tokio::task_local! {
    static STEPS: watch::Sender<String>;
}

/// What is waited for from now on; an answer has come before it. Nothing outside of [`bounded`].
pub fn step(what: impl Into<String>) {
    let _ = STEPS.try_with(|steps| steps.send_replace(what.into()));
}

/// Something has come, and the wait for the same goes on.
pub fn alive() {
    let _ = STEPS.try_with(|steps| steps.send_modify(|_| ()));
}

/// Does the work; gives it up when no [`step`] and no [`alive`] came for `limit`.
///
/// # Errors
/// The work's own; `NO_ANSWER` with what was waited for.
pub async fn bounded<T>(out: &Out, limit: Duration, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let (sender, mut steps) = watch::channel(String::new());
    let work = STEPS.scope(sender, work);
    tokio::pin!(work);
    let mut since = Instant::now();
    let mut told = false;
    loop {
        let next = since + if told { limit } else { TELL_AFTER.min(limit) };
        tokio::select! {
            biased;
            done = &mut work => return done,
            changed = steps.changed() => {
                if changed.is_ok() {
                    since = Instant::now();
                    told = false;
                }
            }
            () = sleep_until(next) => {
                let what = steps.borrow().clone();
                if since.elapsed() >= limit {
                    return Err(CliError::NoAnswer { what, waited_s: limit.as_secs() });
                }
                told = true;
                out.note(&format!("waiting for the server: {what}"));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_with_what_was_waited_for_and_slowness_does_not() {
        let (out, _, stderr) = Out::captured();
        let silent = async {
            step("the first event");
            std::future::pending::<Result<(), CliError>>().await
        };
        let error = bounded(&out, NO_ANSWER_MAX, silent).await.unwrap_err();
        assert_eq!((error.code(), error.exit()), ("NO_ANSWER", crate::exit::Exit::Unreachable));
        assert!(error.to_string().contains("the first event") && stderr.text().contains("the first event"), "{error}");
        let slow = async {
            for _ in 0..20 {
                tokio::time::sleep(NO_ANSWER_MAX - Duration::from_secs(1)).await;
                alive();
            }
            Ok(7)
        };
        assert_eq!(bounded(&out, NO_ANSWER_MAX, slow).await.unwrap(), 7);
    }
}

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
const TELL_AFTER: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Step {
    what: String,
    /// Looked at again and again: that there is an answer each time does not mean that it comes any nearer.
    is_polled: bool,
}

tokio::task_local! {
    static STEPS: watch::Sender<Step>;
}

/// What is waited for from now on; an answer has come before it. Nothing outside of [`bounded`].
pub fn step(what: impl Into<String>) {
    let _ = STEPS.try_with(|steps| steps.send_replace(Step { what: what.into(), is_polled: false }));
}

/// As [`step`], for something that is looked at again and again until it has come: call it at every look. It is told once it takes
/// long, although the server answers; whoever polls has a bound of its own.
pub fn poll(what: impl Into<String>) {
    let _ = STEPS.try_with(|steps| steps.send_replace(Step { what: what.into(), is_polled: true }));
}

/// Something has come, and the wait for the same goes on.
pub fn alive() {
    let _ = STEPS.try_with(|steps| steps.send_modify(|_| ()));
}

/// Does the work; says what is waited for when that takes longer than a moment, and gives it up when no [`step`], no [`poll`] and no
/// [`alive`] came for `limit`.
///
/// # Errors
/// The work's own; `NO_ANSWER` with what was waited for.
pub async fn bounded<T>(out: &Out, limit: Duration, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let (sender, mut steps) = watch::channel(Step::default());
    let work = STEPS.scope(sender, work);
    tokio::pin!(work);
    let mut since = Instant::now();
    // Since when the same is waited for, and whether that was told.
    let (mut waiting, mut told, mut last) = (since, false, Step::default());
    loop {
        let next = (since + limit).min(if told { since + limit } else { waiting + TELL_AFTER });
        tokio::select! {
            biased;
            done = &mut work => return done,
            changed = steps.changed() => {
                if changed.is_ok() {
                    since = Instant::now();
                    let step = steps.borrow_and_update().clone();
                    if !step.is_polled || step != last {
                        (waiting, told, last) = (since, false, step);
                    }
                }
            }
            () = sleep_until(next) => {
                let what = steps.borrow().what.clone();
                if since.elapsed() >= limit {
                    return Err(CliError::NoAnswer { what, waited_s: limit.as_secs() });
                }
                told = true;
                out.note(&format!("waiting for {what}"));
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

    #[tokio::test(start_paused = true)]
    async fn what_is_polled_for_is_told_once_after_two_seconds_and_never_given_up_here() {
        let (out, _, stderr) = Out::captured();
        let polled = async {
            for what in ["the first", "the second"] {
                for _ in 0..(2 * NO_ANSWER_MAX.as_millis() / 50) {
                    poll(what);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Ok(())
        };
        let begun = Instant::now();
        let told_at = async {
            while stderr.text().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            begun.elapsed()
        };
        let (done, told_at) = tokio::join!(bounded(&out, NO_ANSWER_MAX, polled), told_at);
        done.unwrap();
        assert_eq!(stderr.text(), "waiting for the first\nwaiting for the second\n");
        assert!(told_at >= TELL_AFTER && told_at < TELL_AFTER + Duration::from_millis(100), "{told_at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_in_quick_steps_says_nothing() {
        let (out, _, stderr) = Out::captured();
        let quick = async {
            step("events");
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                alive();
            }
            Ok(())
        };
        bounded(&out, NO_ANSWER_MAX, quick).await.unwrap();
        assert_eq!(stderr.text(), "");
    }
}

//! What is being judged at the moment: a failure says whether safety or liveness was broken.

use std::cell::Cell;

thread_local! {
    static PHASE: Cell<&'static str> = const { Cell::new("SETUP") };
}

/// Enters a phase; gives the one before.
pub fn enter(phase: &'static str) -> &'static str {
    PHASE.replace(phase)
}

/// The phase this thread is in.
pub fn current() -> &'static str {
    PHASE.get()
}

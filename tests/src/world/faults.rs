//! What can go wrong with a service's calls of the ledger.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fanfold_ledger::port::*;
use fanfold_ledger::watch;

/// What goes wrong with one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is stored, and nobody says so.
    Away,
    /// It is stored, and the answer is lost.
    AckLost,
    /// The log is full.
    Full,
    /// One of its events (this number, modulo how many there are) is refused for now, the others are stored.
    Member(u64),
}

/// A call of the ledger at which its caller may crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Reports.
    Append,
    /// A plan, a person's request.
    Atomic,
    /// Decisions.
    Fenced,
    /// Taking the lead.
    Fence,
    /// Records of the state bucket.
    PutState,
    /// The checkpoint.
    Checkpoint,
    /// A summary's document.
    Object,
    /// Records of terminals.
    Registry,
    /// An answer, a beat of the leader.
    Publish,
}

/// On which side of the call's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Nothing has happened.
    Before,
    /// It has taken effect, and the caller doesn't hear of it.
    After,
}

/// What goes wrong, shared by the clones of a handle.
#[derive(Debug)]
pub struct Faults {
    frozen: watch::Sender<bool>,
    appends: Mutex<VecDeque<Option<Fault>>>,
    pub(super) reply: Mutex<Option<String>>,
    crash: Mutex<Option<(Op, When, u32)>>,
    dead: AtomicBool,
    /// How often the log was asked where it ends.
    pub ends_asked: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            frozen: watch::Sender::new(false),
            appends: Mutex::default(),
            reply: Mutex::default(),
            crash: Mutex::default(),
            dead: AtomicBool::new(false),
            ends_asked: AtomicU64::new(0),
        }
    }
}

impl Faults {
    /// Freezes whoever holds the handle at its next use of it, or thaws it.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// What the next appends meet, in order; `None` goes well.
    pub fn next_appends(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.appends.lock().unwrap().extend(faults);
    }

    /// Whoever asks from now on asks for its answer there.
    pub fn replies_go_to(&self, subject: &str) {
        *self.reply.lock().unwrap() = Some(subject.to_owned());
    }

    /// Whoever holds the handle crashes at its `after`-th next call of this kind (0: the next): from then on it does nothing more.
    pub fn crash_at(&self, op: Op, when: When, after: u32) {
        *self.crash.lock().unwrap() = Some((op, when, after));
    }

    /// Nothing goes wrong from now on.
    pub fn heal(&self) {
        self.freeze(false);
        self.appends.lock().unwrap().clear();
        *self.crash.lock().unwrap() = None;
    }

    /// Whether a planned crash has happened.
    pub fn has_crashed(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// From now on no call through the handle has an effect or comes back.
    pub fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Whether this call is the one to crash at.
    fn crashes(&self, op: Op, when: When) -> bool {
        let mut crash = self.crash.lock().unwrap();
        let Some((planned, side, after)) = crash.as_mut().filter(|(planned, side, _)| (*planned, *side) == (op, when)) else {
            return false;
        };
        debug_assert_eq!((*planned, *side), (op, when));
        if *after > 0 {
            *after -= 1;
            return false;
        }
        *crash = None;
        self.die();
        true
    }

    pub(super) async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        let _ = frozen.wait_for(|frozen| !*frozen).await;
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
    }

    /// A call of this kind, with whatever crash is planned for it.
    pub(super) async fn call<T>(&self, op: Op, call: impl Future<Output = T>) -> T {
        self.thawed().await;
        if self.crashes(op, When::Before) {
            std::future::pending::<()>().await;
        }
        let answer = call.await;
        if self.crashes(op, When::After) || self.has_crashed() {
            std::future::pending::<()>().await;
        }
        answer
    }

    pub(super) fn next_fault(&self) -> Option<Fault> {
        self.appends.lock().unwrap().pop_front().flatten()
    }
}

/// What an append meets before it reaches the log.
pub(super) struct Meets {
    pub(super) lost_answer: bool,
    /// Where in the call the event stood that was refused.
    pub(super) refused: Option<usize>,
}

pub(super) fn meet(fault: Option<Fault>, events: &mut Vec<Append>) -> Result<Meets, LedgerError> {
    match fault {
        None => Ok(Meets { lost_answer: false, refused: None }),
        Some(Fault::AckLost) => Ok(Meets { lost_answer: true, refused: None }),
        Some(Fault::Away) => Err(lost()),
        Some(Fault::Full) => Err(LedgerError::Full("test".into())),
        Some(Fault::Member(_)) if events.is_empty() => Ok(Meets { lost_answer: false, refused: None }),
        Some(Fault::Member(n)) => {
            let at = usize::try_from(n % events.len() as u64).unwrap();
            events.remove(at);
            Ok(Meets { lost_answer: false, refused: Some(at) })
        }
    }
}

pub(super) fn with_refused(mut answers: Vec<Appended>, refused: Option<usize>) -> Vec<Appended> {
    if let Some(at) = refused {
        answers.insert(at, Appended::Conflict);
    }
    answers
}

pub(super) fn lost() -> LedgerError {
    LedgerError::Unavailable { waited_ms: 0, reason: "test".into() }
}

//! What went over a terminal's line, for tests to look at and to say again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanfold_domain::ids::TaskId;
use fanfold_sdk::transport::Incoming;
use fanfold_wire::terminal::ReportStatus;
use tokio::sync::mpsc;

/// Commands remembered to be said again.
const REMEMBERED_MAX: usize = 64;

/// A report as it left, or was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Number of the process that sent it.
    pub process: u32,
    /// `attempt.succeeded` and so on.
    pub name: String,
    pub task: TaskId,
    pub attempt: u32,
    /// The report, byte for byte.
    pub raw: String,
    /// What was answered; `None`: this is what was sent.
    pub answer: Option<(ReportStatus, Option<u64>)>,
}

#[derive(Default)]
struct Heard {
    /// The process that listens now.
    to: Option<mpsc::Sender<Incoming>>,
    remembered: VecDeque<Incoming>,
}

/// See the module. One for all lives of a terminal, one for each twin.
#[derive(Clone, Default)]
pub(super) struct Wire {
    heard: Arc<Mutex<Heard>>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// From now on this process is the one that listens.
    pub(super) fn listen(&self, to: mpsc::Sender<Incoming>) {
        lock(&self.heard).to = Some(to);
    }

    /// A command is on its way for the first time.
    pub(super) fn remember(&self, incoming: &Incoming) {
        let mut heard = lock(&self.heard);
        if heard.remembered.len() >= REMEMBERED_MAX {
            heard.remembered.pop_front();
        }
        heard.remembered.push_back(incoming.clone());
    }

    /// A command arrives at whoever listens now.
    pub(super) fn deliver(&self, incoming: Incoming) {
        if let Some(to) = &lock(&self.heard).to {
            // Nobody there, or too much: it is lost, as on core NATS.
            let _ = to.try_send(incoming);
        }
    }

    /// Every remembered command arrives once more.
    pub(super) fn repeat(&self) {
        let remembered = lock(&self.heard).remembered.clone();
        remembered.into_iter().for_each(|incoming| self.deliver(incoming));
    }

    pub(super) fn note(&self, sent: Sent) {
        lock(&self.sent).push(sent);
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        lock(&self.sent).clone()
    }
}

//! The one task of a terminal that sends its reports: whatever is due goes in one request, one request at a time, so that what
//! gathers during one makes the next batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fanfold_wire::terminal::ReportAnswer;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

use crate::actor::Input;
use crate::chance::Chance;
use crate::outbox::{Next, Outbox};
use crate::transport::Transport;

/// Repeated requests (fault injection) on their way at once.
const REPEATS_MAX: usize = 1024;
/// Beyond its own timeout, how long a request may take to get into the client's buffer.
const SEND_SLACK: Duration = Duration::from_secs(1);

/// An outbox shared by the terminal's tasks.
#[derive(Clone)]
pub(crate) struct SharedOutbox {
    outbox: Arc<Mutex<Outbox>>,
    changed: Arc<Notify>,
    reconnected: Arc<Notify>,
}

impl SharedOutbox {
    /// Around an empty outbox.
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self { outbox: Arc::new(Mutex::new(outbox)), changed: Arc::default(), reconnected: Arc::default() }
    }

    /// Looks into it.
    pub(crate) fn look(&self) -> MutexGuard<'_, Outbox> {
        // Every change leaves it whole, so a panic elsewhere is no reason to stop reporting.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it and wakes the reporter.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Outbox)) {
        change(&mut self.look());
        self.changed.notify_one();
    }

    /// The connection is back: what waits is due at `at`, and an answer that was awaited over the old connection never comes.
    pub(crate) fn reconnected(&self, at: Instant) {
        self.change(|outbox| outbox.reconnected(at));
        self.reconnected.notify_waiters();
    }
}

/// What the reporter needs.
pub(crate) struct Reporter {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) subject: String,
    pub(crate) outbox: SharedOutbox,
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) timeout: Duration,
    pub(crate) repeats: Vec<Duration>,
    pub(crate) chance: Chance,
}

/// Sends a request and reads its answer as JSON; `None`: nobody answered, or nothing that can be read.
pub(crate) async fn ask<T: serde::de::DeserializeOwned>(
    transport: &dyn Transport,
    subject: &str,
    payload: Bytes,
    timeout: Duration,
) -> Option<T> {
    // While the connection is down the client would buffer the request and send it much later.
    if !transport.is_connected() {
        return None;
    }
    let sent = transport.request(subject, payload, timeout);
    match tokio::time::timeout(timeout + SEND_SLACK, sent).await {
        Ok(Ok(answer)) => {
            let read = fanfold_wire::strict::from_slice(&answer);
            read.inspect_err(|error| tracing::warn!(subject, %error, "an answer can't be read")).ok()
        }
        Ok(Err(error)) => {
            tracing::debug!(subject, %error, "no answer");
            None
        }
        Err(_) => None,
    }
}

/// Runs until the terminal is gone.
pub(crate) async fn run(reporter: Reporter) {
    let repeating = Arc::new(Semaphore::new(REPEATS_MAX));
    loop {
        let next = reporter.outbox.look().next(Instant::now());
        match next {
            Next::Idle => reporter.outbox.changed.notified().await,
            Next::At(at) => {
                // Whichever comes first: both lead to another look.
                let _ = tokio::time::timeout_at(at, reporter.outbox.changed.notified()).await;
            }
            Next::Batch(batch) => {
                reporter.repeat(&batch.payload, &repeating);
                let answer = reporter.send(batch.payload.clone()).await;
                let chance = reporter.chance.unit();
                let now = Instant::now();
                let told = match answer {
                    Some(answer) => reporter.outbox.look().answered(&batch, answer, now, chance),
                    None => {
                        reporter.outbox.look().failed(&batch, now, chance);
                        Vec::new()
                    }
                };
                if reporter.inputs.send(Input::Answers(told)).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Reporter {
    async fn send(&self, payload: Bytes) -> Option<ReportAnswer> {
        let reconnected = self.outbox.reconnected.notified();
        tokio::select! {
            // An answer that is there is taken, whatever the connection did since.
            biased;
            answer = ask(self.transport.as_ref(), &self.subject, payload, self.timeout) => answer,
            () = reconnected => None,
        }
    }

    /// Fault injection: the same request again, later, whatever its answer.
    fn repeat(&self, payload: &Bytes, repeating: &Arc<Semaphore>) {
        for pause in &self.repeats {
            let Ok(permit) = repeating.clone().try_acquire_owned() else { return };
            let (transport, subject, payload) = (self.transport.clone(), self.subject.clone(), payload.clone());
            let (pause, timeout) = (*pause, self.timeout);
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let _: Option<ReportAnswer> = ask(transport.as_ref(), &subject, payload, timeout).await;
                drop(permit);
            });
        }
    }
}

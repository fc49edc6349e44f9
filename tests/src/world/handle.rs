//! A service's own handle on the ledger in memory: it can be frozen, and its appends can fail the way a network makes them fail.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::*;
use fanfold_ledger::watch;
use futures::StreamExt;

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
    reply: Mutex<Option<String>>,
    crash: Mutex<Option<(Op, When, u32)>>,
    dead: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            frozen: watch::Sender::new(false),
            appends: Mutex::default(),
            reply: Mutex::default(),
            crash: Mutex::default(),
            dead: AtomicBool::new(false),
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

    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        let _ = frozen.wait_for(|frozen| !*frozen).await;
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
    }

    /// A call of this kind, with whatever crash is planned for it.
    async fn call<T>(&self, op: Op, call: impl Future<Output = T>) -> T {
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

    fn next_fault(&self) -> Option<Fault> {
        self.appends.lock().unwrap().pop_front().flatten()
    }
}

/// What an append meets before it reaches the log.
struct Meets {
    lost_answer: bool,
    /// Where in the call the event stood that was refused.
    refused: Option<usize>,
}

fn meet(fault: Option<Fault>, events: &mut Vec<Append>) -> Result<Meets, LedgerError> {
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

fn with_refused(mut answers: Vec<Appended>, refused: Option<usize>) -> Vec<Appended> {
    if let Some(at) = refused {
        answers.insert(at, Appended::Conflict);
    }
    answers
}

fn lost() -> LedgerError {
    LedgerError::Unavailable { waited_ms: 0, reason: "test".into() }
}

/// The handle.
#[derive(Clone)]
pub struct Handle {
    pub inner: MemoryLedger,
    pub faults: Arc<Faults>,
}

impl Handle {
    pub fn new(inner: &MemoryLedger) -> Self {
        Self { inner: inner.clone(), faults: Arc::default() }
    }

    fn gate<T: Send + 'static>(&self, stream: BoxStream<T>) -> BoxStream<T> {
        let faults = Arc::clone(&self.faults);
        stream
            .then(move |item| {
                let faults = Arc::clone(&faults);
                async move {
                    faults.thawed().await;
                    item
                }
            })
            .boxed()
    }
}

#[async_trait]
impl Log for Handle {
    async fn append(&self, mut events: Vec<Append>) -> Result<Vec<Appended>, LedgerError> {
        self.faults
            .call(Op::Append, async {
                let meets = meet(self.faults.next_fault(), &mut events)?;
                let answers = self.inner.append(events).await;
                if meets.lost_answer { Err(lost()) } else { answers.map(|answers| with_refused(answers, meets.refused)) }
            })
            .await
    }

    async fn append_atomic(&self, events: Vec<Append>) -> Result<Appended, LedgerError> {
        self.faults
            .call(Op::Atomic, async {
                match self.faults.next_fault() {
                    Some(Fault::Member(_)) => Ok(Appended::Conflict),
                    fault => {
                        let meets = meet(fault, &mut Vec::new())?;
                        let answer = self.inner.append_atomic(events).await;
                        if meets.lost_answer { Err(lost()) } else { answer }
                    }
                }
            })
            .await
    }

    async fn acquire_fence(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError> {
        self.faults.call(Op::Fence, self.inner.acquire_fence(role, incarnation)).await
    }

    async fn append_fenced(&self, fence: &mut Fence, mut events: Vec<Append>) -> Result<Vec<Appended>, FencedError> {
        self.faults
            .call(Op::Fenced, async {
                let meets = meet(self.faults.next_fault(), &mut events)?;
                let answers = self.inner.append_fenced(fence, events).await;
                if meets.lost_answer { Err(lost().into()) } else { answers.map(|answers| with_refused(answers, meets.refused)) }
            })
            .await
    }

    async fn last_seq(&self) -> Result<u64, LedgerError> {
        self.faults.thawed().await;
        self.inner.last_seq().await
    }

    async fn gaps(&self) -> Result<Vec<(u64, u64)>, LedgerError> {
        self.faults.thawed().await;
        self.inner.gaps().await
    }

    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError> {
        self.faults.thawed().await;
        self.inner.last_under(filter).await
    }

    async fn read(
        &self,
        filters: Vec<String>,
        from: u64,
        to: u64,
    ) -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.read(filters, from, to).await
    }

    async fn tail(&self, from: u64) -> Result<BoxStream<TailItem>, LedgerError> {
        self.faults.thawed().await;
        Ok(self.gate(self.inner.tail(from).await?))
    }
}

#[async_trait]
impl Buckets for Handle {
    async fn put_state(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.faults.call(Op::PutState, self.inner.put_state(records)).await
    }

    async fn get_state(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_state(key).await
    }

    async fn list_state(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.list_state(filter).await
    }

    async fn put_state_if(&self, key: &str, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.faults.thawed().await;
        self.inner.put_state_if(key, value, expect).await
    }

    async fn state_extent(&self) -> Result<Extent, LedgerError> {
        self.faults.thawed().await;
        self.inner.state_extent().await
    }

    async fn put_checkpoint(&self, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.faults.call(Op::Checkpoint, self.inner.put_checkpoint(value, expect)).await
    }

    async fn get_checkpoint(&self) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_checkpoint().await
    }

    async fn put_terminals(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.faults.call(Op::Registry, self.inner.put_terminals(records)).await
    }

    async fn get_terminal(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_terminal(key).await
    }

    async fn list_terminals(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError> {
        self.faults.thawed().await;
        self.inner.list_terminals(filter).await
    }
}

#[async_trait]
impl Types for Handle {
    async fn create_type(&self, name: &str, version: u32, document: Bytes) -> Result<Option<Bytes>, LedgerError> {
        self.inner.create_type(name, version, document).await
    }

    async fn get_type(&self, name: &str, version: u32) -> Result<Option<Bytes>, LedgerError> {
        self.inner.get_type(name, version).await
    }

    async fn list_types(&self) -> Result<Vec<(String, u32, Bytes)>, LedgerError> {
        self.inner.list_types().await
    }
}

#[async_trait]
impl Objects for Handle {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        self.faults.call(Op::Object, self.inner.put_object(name, bytes)).await
    }

    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        self.faults.thawed().await;
        self.inner.get_object(name).await
    }
}

#[async_trait]
impl Bus for Handle {
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<BoxStream<BusMessage>, LedgerError> {
        self.faults.thawed().await;
        let faults = Arc::clone(&self.faults);
        let redirect = move |mut message: BusMessage| {
            if let (Some(reply), Some(_)) = (faults.reply.lock().unwrap().clone(), &message.reply) {
                message.reply = Some(reply);
            }
            message
        };
        Ok(self.gate(self.inner.subscribe(subject, queue).await?.map(redirect).boxed()))
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), LedgerError> {
        self.faults.call(Op::Publish, self.inner.publish(subject, payload)).await
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, RequestError> {
        self.faults.thawed().await;
        self.inner.request(subject, payload, timeout).await
    }

    async fn serve(
        &self,
        service: &str,
        version: &str,
        endpoints: Vec<(String, String)>,
    ) -> Result<BoxStream<BusMessage>, LedgerError> {
        self.faults.thawed().await;
        Ok(self.gate(self.inner.serve(service, version, endpoints).await?))
    }

    fn max_payload(&self) -> usize {
        self.inner.max_payload()
    }

    fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections()
    }
}

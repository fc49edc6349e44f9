//! A process's transport: the ledger's bus behind a bad line, and the lies some acts are made of.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fanfold_domain::event::Dispatched;
use fanfold_domain::ids::TaskId;
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::{Bus, BusMessage};
use fanfold_sdk::transport::{Incoming, Transport, TransportError};
use fanfold_wire::event::Envelope;
use fanfold_wire::subjects;
use fanfold_wire::terminal::*;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::network::{Leg, Line, Passage};
use super::process::{Process, Step};
use super::wire::{Sent, Wire};
use super::{Act, Script, event};

/// Commands on their way to one process.
const ON_THEIR_WAY_MAX: usize = 65_536;
/// Pause between two tries of a report that the terminal itself knows nothing of.
const LIE_PAUSE: Duration = Duration::from_millis(700);
const LIE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(super) struct SimTransport {
    pub(super) ledger: MemoryLedger,
    pub(super) process: Arc<Process>,
    pub(super) line: Arc<Line>,
    pub(super) script: Script,
    pub(super) wire: Wire,
    /// How late a beat or a sync may be.
    pub(super) presence_late_ms: u64,
    /// Attempts being rejected without the terminal's knowledge.
    pub(super) lies: Arc<Mutex<BTreeSet<(TaskId, u32)>>>,
}

fn no_answer(subject: &str) -> TransportError {
    TransportError::NoAnswer { subject: subject.into(), reason: "lost or late".into() }
}

/// Reports of a request.
fn read_batch(payload: &[u8], process: u32) -> Vec<Sent> {
    let read = |raw: &&RawValue| {
        let envelope = Envelope::parse(raw.get().as_bytes()).ok()?;
        let task = TaskId::parse(envelope.subject.as_deref()?).ok()?;
        let data: Value = serde_json::from_str(envelope.data.get()).ok()?;
        let attempt = u32::try_from(data["attempt"].as_u64()?).ok()?;
        let name = envelope.name().ok()?.to_owned();
        Some(Sent { process, name, task, attempt, raw: raw.get().to_owned(), answer: None })
    };
    split_batch(payload).unwrap().iter().map(|raw| read(raw).unwrap()).collect()
}

impl SimTransport {
    /// What becomes of the next message to HQ. Beats and syncs are late in proportion to the beat interval, which is 15 times shorter
    /// here than in a store: otherwise every restart would look like a twin.
    fn up(&self, subject: &str) -> Passage {
        let longest_ms = if subject.starts_with("ff.report.") { u64::MAX } else { self.presence_late_ms };
        self.line.passage(Leg::Up).into_iter().map(|ms| ms.min(longest_ms)).collect()
    }

    /// Sends a request over the line. What has left arrives, whatever becomes of the process.
    async fn carry(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError> {
        let mut first = None;
        for ms in self.up(subject) {
            let (ledger, subject, payload) = (self.ledger.clone(), subject.to_owned(), payload.clone());
            let copy = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                ledger.request(&subject, payload, timeout).await
            });
            first.get_or_insert(copy);
        }
        let answered = async {
            let Some(first) = first else { return std::future::pending().await };
            // A copy that panicked was not answered, like one that nobody was there for.
            let Ok(Ok(answer)) = first.await else { return Err(no_answer(subject)) };
            let Some(ms) = self.line.passage(Leg::Down).first().copied() else { return std::future::pending().await };
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(answer)
        };
        let answer = tokio::time::timeout(timeout, answered).await;
        self.process.alive().await;
        answer.unwrap_or_else(|_| Err(no_answer(subject)))
    }

    /// Sends reports, all but the begins of attempts that are to be quiet about them.
    async fn report(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError> {
        let reports = read_batch(&payload, self.process.number);
        let quiet = |sent: &Sent| {
            sent.name == "attempt.started"
                && matches!((self.script)(&sent.task, sent.attempt), Act::SucceedQuietly(_) | Act::HangQuietly)
        };
        let kept: Vec<(u32, &Sent)> = (0..).zip(&reports).filter(|(_, sent)| !quiet(sent)).collect();
        if kept.is_empty() {
            return Ok(Bytes::from_static(br#"{"answers":[]}"#));
        }
        kept.iter().for_each(|(_, sent)| self.wire.note((*sent).clone()));
        let rest = if kept.len() == reports.len() {
            payload
        } else {
            let raws: Vec<&str> = kept.iter().map(|(_, sent)| sent.raw.as_str()).collect();
            Bytes::from(format!("[{}]", raws.join(",")))
        };
        let answer = self.carry(subject, rest, timeout).await?;
        if kept.iter().any(|(_, sent)| !matches!(sent.name.as_str(), "attempt.started" | "attempt.progressed")) {
            self.process.step(Step::Reported).await;
        }
        let mut answer: ReportAnswer = serde_json::from_slice(&answer).unwrap();
        for result in &mut answer.answers {
            let (index, sent) = kept[result.index as usize];
            self.wire.note(Sent { answer: Some((result.status, result.seq)), ..sent.clone() });
            result.index = index;
        }
        Ok(Bytes::from(serde_json::to_vec(&answer).unwrap()))
    }

    async fn sync(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError> {
        let asked: SyncRequest = serde_json::from_slice(&payload).unwrap();
        let answer = self.carry(subject, payload, timeout).await?;
        let mut read: SyncAnswer = serde_json::from_slice(&answer).unwrap();
        let before = read.open.len();
        read.open.retain(|open| {
            let command = Command::decode(open.task_id.clone(), open.seq, open.command.get().as_bytes());
            let Ok(Order::Run(run)) = command.map(|c| c.order) else { return true };
            run.journal != asked.identity.journal || !self.lie(&open.task_id, &run)
        });
        // Only what was changed is written anew.
        Ok(if read.open.len() == before { answer } else { Bytes::from(serde_json::to_vec(&read).unwrap()) })
    }

    /// Rejects an attempt without the terminal's knowledge, if that is its act.
    fn lie(&self, task: &TaskId, run: &Dispatched) -> bool {
        let Act::Reject(code) = (self.script)(task, run.attempt) else { return false };
        let attempt = (task.clone(), run.attempt);
        if self.lies.lock().unwrap_or_else(PoisonError::into_inner).insert(attempt.clone()) {
            let this = self.clone();
            let body = event(task, "attempt.rejected", &json!({ "attempt": run.attempt, "code": code }));
            tokio::spawn(async move {
                this.insist(&body).await;
                this.lies.lock().unwrap_or_else(PoisonError::into_inner).remove(&attempt);
            });
        }
        true
    }

    /// Sends a report until it is answered for good or the process ends.
    async fn insist(&self, body: &Value) {
        let (subject, payload) = (subjects::report(&self.process.terminal), Bytes::from(serde_json::to_vec(&[body]).unwrap()));
        while self.process.is_on() {
            let told = tokio::select! {
                biased;
                () = self.process.off() => return,
                answer = self.carry(&subject, payload.clone(), LIE_TIMEOUT) => answer.ok(),
            };
            let answer: Option<ReportAnswer> = told.and_then(|told| serde_json::from_slice(&told).ok());
            if answer.is_some_and(|a| a.answers.iter().all(|r| r.status.is_settled())) {
                return;
            }
            tokio::time::sleep(LIE_PAUSE).await;
        }
    }

    /// Whether a live command gets through to the terminal.
    fn gets_through(&self, message: &BusMessage) -> bool {
        let (Some((_, task)), Some(seq)) = (subjects::parse_command(&message.subject), message.seq) else { return true };
        let Ok(command) = Command::decode(task.clone(), seq, &message.payload) else { return true };
        let Order::Run(run) = command.order else { return true };
        !matches!((self.script)(&task, run.attempt), Act::Miss) && !self.lie(&task, &run)
    }

    /// Hands commands on as they arrive.
    async fn hand_on(self, mut commands: BoxStream<'static, BusMessage>) {
        while let Some(message) = commands.next().await {
            if !self.process.is_on() || !self.line.is_linked() || !self.gets_through(&message) {
                continue;
            }
            let incoming = Incoming { subject: message.subject, payload: message.payload, seq: message.seq };
            self.wire.remember(&incoming);
            for ms in self.line.passage(Leg::Down) {
                let (wire, incoming) = (self.wire.clone(), incoming.clone());
                if ms == 0 {
                    wire.deliver(incoming);
                } else {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        wire.deliver(incoming);
                    });
                }
            }
        }
    }
}

/// Ends a task when it is dropped.
struct Until(AbortHandle);

impl Drop for Until {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait]
impl Transport for SimTransport {
    async fn subscribe(&self, subject: &str) -> Result<BoxStream<'static, Incoming>, TransportError> {
        self.process.alive().await;
        let commands = self.ledger.subscribe(subject, None).await;
        let commands = commands.map_err(|error| TransportError::Closed { subject: subject.into(), reason: error.to_string() })?;
        let (to, from) = mpsc::channel(ON_THEIR_WAY_MAX);
        self.wire.listen(to);
        let until = Until(tokio::spawn(self.clone().hand_on(commands)).abort_handle());
        let incoming = futures::stream::unfold((from, until), |(mut from, until)| async move {
            let message = from.recv().await?;
            Some((message, (from, until)))
        });
        Ok(incoming.boxed())
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, TransportError> {
        self.process.alive().await;
        if subject.starts_with("ff.report.") {
            self.report(subject, payload, timeout).await
        } else {
            self.sync(subject, payload, timeout).await
        }
    }

    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), TransportError> {
        self.process.alive().await;
        for ms in self.up(subject) {
            let (ledger, subject, payload) = (self.ledger.clone(), subject.to_owned(), payload.clone());
            let send = async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                // A beat that finds nobody is lost.
                let _ = ledger.publish(&subject, payload).await;
            };
            if ms == 0 {
                send.await;
            } else {
                tokio::spawn(send);
            }
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), TransportError> {
        Ok(())
    }

    fn is_connected(&self) -> bool {
        self.line.is_linked()
    }
}

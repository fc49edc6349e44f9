//! A terminal played by hand: plain NATS and the wire types, nothing of the terminal library.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use fanfold_domain::event::{PROTOCOL_VERSION, TaskEvent, Verdict};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_wire::event::{Header, encode, report_id, task_data};
use fanfold_wire::subjects;
use fanfold_wire::terminal::{Beat, Command, Identity, Order, ReportAnswer, ReportResult, SyncAnswer, SyncRequest};
use futures::StreamExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;

use crate::stack::BEAT_MS;
use crate::wait::SOON;

/// A terminal.
pub struct Hand {
    /// Its connection.
    pub client: Client,
    /// Its id.
    pub id: TerminalId,
    /// What it says of itself.
    pub identity: Identity,
    commands: Subscriber,
    beating: Option<JoinHandle<()>>,
}

impl Hand {
    /// Connects and listens for commands; it does not beat yet.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn connect(url: &str, id: &str) -> Self {
        let options = ConnectOptions::new().custom_inbox_prefix(format!("_I.{id}"));
        let client = options.connect(url).await.expect("a server");
        let id = TerminalId::new(id).expect("a token");
        let commands = client.subscribe(subjects::commands(&id)).await.expect("a subscription");
        client.flush().await.expect("a server");
        let identity = Identity {
            protocol_version: PROTOCOL_VERSION,
            version: "by-hand".into(),
            journal: format!("journal-{id}"),
            boot: format!("boot-{id}-1"),
            slots: 1,
            beat_interval_ms: BEAT_MS,
            labels: Default::default(),
            types: Vec::new(),
        };
        Self { client, id, identity, commands, beating: None }
    }

    fn beat(&self, goodbye: bool) -> Bytes {
        let beat = Beat { identity: self.identity.clone(), holds: Vec::new(), goodbye, journal_unavailable: false };
        serde_json::to_vec(&beat).expect("JSON").into()
    }

    /// Beats from now on.
    pub fn come(&mut self) {
        let (client, subject, beat) = (self.client.clone(), subjects::beat(&self.id), self.beat(false));
        let mut tick = tokio::time::interval(Duration::from_millis(BEAT_MS * 8 / 10));
        self.beating = Some(tokio::spawn(async move {
            loop {
                tick.tick().await;
                if client.publish(subject.clone(), beat.clone()).await.is_err() {
                    return;
                }
            }
        }));
    }

    /// Says goodbye and beats no more; the next time it comes it is another boot.
    pub async fn leave(&mut self) {
        if let Some(beating) = self.beating.take() {
            beating.abort();
            let _ = beating.await;
        }
        self.client.publish(subjects::beat(&self.id), self.beat(true)).await.expect("a server");
        self.client.flush().await.expect("a server");
        self.identity.boot.push('+');
    }

    /// Waits for the next attempt it is to run: the task and the number.
    ///
    /// # Panics
    /// When none comes.
    pub async fn dispatched(&mut self) -> (TaskId, u32) {
        loop {
            let message = tokio::time::timeout(SOON, self.commands.next()).await;
            let message = message.unwrap_or_else(|_| panic!("{} gets no command", self.id)).expect("a subscription");
            let (terminal, task) = subjects::parse_command(&message.subject).expect("a command's subject");
            assert_eq!(terminal, self.id);
            let command = Command::decode(task, 1, &message.payload).expect("a command");
            if let Order::Run(dispatched) = command.order {
                assert_eq!((&dispatched.journal, &dispatched.boot), (&self.identity.journal, &self.identity.boot));
                return (command.task, dispatched.attempt);
            }
        }
    }

    /// Asks what is open for it, holding nothing.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn sync(&self, known_seq: u64) -> SyncAnswer {
        let request = SyncRequest { identity: self.identity.clone(), holds: Vec::new(), known_seq, closed_plans: Vec::new() };
        let body = serde_json::to_vec(&request).expect("JSON");
        let answer = self.client.request(subjects::sync(&self.id), body.into()).await.expect("an answer");
        serde_json::from_slice(&answer.payload).expect("an answer")
    }

    /// The report of an event, encoded as a terminal does.
    pub fn encoded(&self, task: &TaskId, event: &TaskEvent) -> Vec<u8> {
        let (id, subject) = (report_id(task, &self.id, event), task.to_string());
        let header = Header { id: &id, source: "/by-hand", subject: &subject, time_ms: None, traceparent: None };
        encode(event.name(), &task_data(event).expect("JSON"), header).expect("JSON")
    }

    /// Hands in one report.
    pub async fn report(&self, task: &TaskId, event: &TaskEvent) -> ReportResult {
        self.hand_in(&self.encoded(task, event)).await
    }

    /// Hands in bytes as a report.
    ///
    /// # Panics
    /// When there is not exactly one answer.
    pub async fn hand_in(&self, body: &[u8]) -> ReportResult {
        let answer = self.client.request(subjects::report(&self.id), Bytes::copy_from_slice(body)).await.expect("an answer");
        let answer: ReportAnswer = serde_json::from_slice(&answer.payload).expect("an answer");
        assert_eq!(answer.answers.len(), 1, "{answer:?}");
        answer.answers.into_iter().next().expect("one answer")
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if let Some(beating) = &self.beating {
            beating.abort();
        }
    }
}

/// `attempt.succeeded`
pub fn succeeded(attempt: u32, result: &Value) -> TaskEvent {
    let result = RawValue::from_string(result.to_string()).expect("JSON");
    TaskEvent::Succeeded { attempt, result: result.into(), run_ms: None, verdict: Verdict { valid: true, errors: Vec::new() } }
}

/// `attempt.failed`
pub fn failed(attempt: u32, code: &str) -> TaskEvent {
    TaskEvent::Failed { attempt, code: code.into(), message: "by hand".into(), run_ms: None }
}

/// `attempt.rejected`
pub fn rejected(attempt: u32, code: &str) -> TaskEvent {
    TaskEvent::Rejected { attempt, code: code.into(), message: "by hand".into() }
}

//! The played HQ: sends commands with the header a republish puts on them, answers reports and syncs as the test says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, HeaderMap, Message};
use fanfold_process::embedded::{EmbeddedServer, LocateOptions, locate};
use fanfold_sdk::wire::domain::event::{Dispatched, TaskEvent};
use fanfold_sdk::wire::domain::ids::{TaskId, TerminalId};
use fanfold_sdk::wire::event::{Envelope, Header, decision_id, decode_task, encode, task_data};
use fanfold_sdk::wire::subjects;
use fanfold_sdk::wire::terminal::{
    AttemptRef, Beat, OpenCommand, ReportAnswer, ReportResult, ReportStatus, SyncAnswer, SyncRequest, SyncStatus, split_batch,
};
use fanfold_sdk::{Connects, Journal, Registry, Terminal, TerminalConfig, TerminalHandle};
use futures::StreamExt;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// Longest a test waits for anything; only failing tests wait that long.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// A report as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) event: TaskEvent,
    pub(crate) raw: Vec<u8>,
    /// Reports in the same request before this one.
    pub(crate) index: usize,
}

impl Report {
    /// Error code of a failure or rejection.
    pub(crate) fn code(&self) -> &str {
        match &self.event {
            TaskEvent::Failed { code, .. } | TaskEvent::Rejected { code, .. } => code,
            _ => "",
        }
    }
}

/// What the recorder says; `None`: nothing at all.
pub(crate) type Answer = Option<(ReportStatus, Option<bool>, Option<&'static str>)>;

/// Recorded and valid.
pub(crate) const RECORDED: Answer = Some((ReportStatus::Recorded, Some(true), None));

struct Shared {
    seq: AtomicU64,
    /// Answers to the next requests, in order; afterwards everything is recorded.
    answers: Mutex<VecDeque<Answer>>,
    syncs: Mutex<VecDeque<SyncAnswer>>,
}

pub(crate) struct Hq {
    pub(crate) server: EmbeddedServer,
    pub(crate) client: Client,
    shared: Arc<Shared>,
    reports: mpsc::UnboundedReceiver<Report>,
    syncs: mpsc::UnboundedReceiver<SyncRequest>,
    beats: mpsc::UnboundedReceiver<Beat>,
    /// Every report taken so far.
    pub(crate) seen: Vec<Report>,
}

pub(crate) fn task(name: &str, terminal: &str) -> TaskId {
    TaskId::parse(&format!("{name}.{terminal}.main")).unwrap()
}

pub(crate) fn at(name: &str, terminal: &str, attempt: u32) -> AttemptRef {
    AttemptRef { task_id: task(name, terminal), attempt }
}

pub(crate) async fn connect(server: &EmbeddedServer) -> (Client, Connects) {
    let options = ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(25));
    let (told, mut connected) = mpsc::unbounded_channel();
    let (options, connects) = Connects::hook(options, move |event| {
        let _ = told.send(event.to_string());
    });
    let client = options.connect(server.url()).await.unwrap();
    // The event comes after the connect returns; a terminal started before it would sync twice.
    connected.recv().await.unwrap();
    (client, connects)
}

/// A configuration without the pauses that keep thousands of terminals apart.
pub(crate) fn config(id: &str) -> TerminalConfig {
    TerminalConfig {
        slots: 4,
        sync_jitter_ms: 0,
        report_retry_ms: 20,
        report_retry_max_ms: 100,
        request_timeout_ms: 300,
        stop_grace_ms: 200,
        shutdown_grace_ms: 200,
        ..TerminalConfig::new(TerminalId::new(id).unwrap())
    }
}

impl Hq {
    pub(crate) async fn start() -> Self {
        let binary = tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_| {})).await.unwrap().unwrap();
        let server = EmbeddedServer::ephemeral(binary.path).await.unwrap();
        let client = connect(&server).await.0;
        let shared = Arc::new(Shared { seq: AtomicU64::new(100), answers: Mutex::default(), syncs: Mutex::default() });
        let (reports_in, reports) = mpsc::unbounded_channel();
        let (syncs_in, syncs) = mpsc::unbounded_channel();
        let (beats_in, beats) = mpsc::unbounded_channel();
        let mut inbox = futures::stream::select_all([
            client.subscribe(subjects::REPORTS).await.unwrap(),
            client.subscribe(subjects::SYNCS).await.unwrap(),
            client.subscribe(subjects::BEATS).await.unwrap(),
        ]);
        client.flush().await.unwrap();
        let (hq, answering) = (shared.clone(), client.clone());
        tokio::spawn(async move {
            while let Some(message) = inbox.next().await {
                let answer = match message.subject.split('.').nth(1) {
                    Some("report") => hq.take_reports(&message, &reports_in),
                    Some("sync") => {
                        let _ = syncs_in.send(serde_json::from_slice(&message.payload).unwrap());
                        Some(hq.answer_sync())
                    }
                    _ => {
                        let _ = beats_in.send(serde_json::from_slice(&message.payload).unwrap());
                        None
                    }
                };
                if let Some(answer) = answer {
                    answering.publish(message.reply.unwrap(), answer.into()).await.unwrap();
                }
            }
        });
        Self { server, client, shared, reports, syncs, beats, seen: Vec::new() }
    }

    /// Starts a terminal on a connection of its own; its first sync is taken off.
    pub(crate) async fn terminal(
        &mut self,
        config: TerminalConfig,
        handlers: Registry,
        journal: Arc<dyn Journal>,
    ) -> TerminalHandle {
        let (client, connects) = connect(&self.server).await;
        let config = TerminalConfig { connects: Some(connects), ..config };
        let terminal = Terminal::start(client, config, handlers, journal).await.unwrap();
        while self.sync().await.identity.boot != terminal.boot_id() {}
        terminal
    }

    /// Says this to the next requests with reports, one each.
    pub(crate) fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.answers.lock().unwrap().extend(answers);
    }

    /// Changes the answer to the next syncs: more than one, because a terminal discards an answer that an own report has overtaken.
    pub(crate) fn answer_sync_next(&self, change: impl FnOnce(&mut SyncAnswer)) {
        let mut answer = SyncAnswer::bare(SyncStatus::Ok, 0, None);
        change(&mut answer);
        self.shared.syncs.lock().unwrap().extend(std::iter::repeat_n(answer, 4));
    }

    /// A `task.dispatched` to this boot of a terminal.
    pub(crate) async fn dispatch(&self, terminal: &TerminalHandle, name: &str, attempt: u32, input: &str) {
        let event = dispatched(terminal, terminal.boot_id(), attempt, input);
        self.command(terminal.id(), &task(name, terminal.id().as_str()), &event).await;
    }

    /// Any decision, as the server republishes it.
    pub(crate) async fn command(&self, terminal: &TerminalId, task: &TaskId, event: &TaskEvent) {
        let seq = self.shared.seq.fetch_add(1, Ordering::SeqCst) + 1;
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Sequence", seq.to_string());
        let subject = subjects::command(terminal, task);
        self.client.publish_with_headers(subject, headers, encoded(task, event).into()).await.unwrap();
    }

    /// What a sync hands out: a command to another boot of the same journal.
    pub(crate) fn open(&self, terminal: &TerminalHandle, name: &str, attempt: u32, input: &str) -> OpenCommand {
        let task = task(name, terminal.id().as_str());
        let event = dispatched(terminal, "an-earlier-boot", attempt, input);
        let text = String::from_utf8(encoded(&task, &event)).unwrap();
        OpenCommand { task_id: task, seq: 50, command: RawValue::from_string(text).unwrap() }
    }

    /// The next report of this name and attempt; what comes before it is kept in `seen`.
    pub(crate) async fn report(&mut self, name: &str, attempt: u32) -> Report {
        loop {
            let next = tokio::time::timeout(WAIT, self.reports.recv()).await;
            let report = next.unwrap_or_else(|_| panic!("no {name} of {attempt}; seen: {:?}", self.seen)).unwrap();
            self.seen.push(report.clone());
            if report.name == name && report.attempt == attempt {
                return report;
            }
        }
    }

    /// Reports seen of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.seen.iter().filter(|r| r.name == name).count()
    }

    pub(crate) async fn sync(&mut self) -> SyncRequest {
        tokio::time::timeout(WAIT, self.syncs.recv()).await.expect("no sync").unwrap()
    }

    /// The next beat that is as wanted.
    pub(crate) async fn beat(&mut self, wanted: impl Fn(&Beat) -> bool) -> Beat {
        loop {
            let beat = tokio::time::timeout(WAIT, self.beats.recv()).await.expect("no such beat").unwrap();
            if wanted(&beat) {
                return beat;
            }
        }
    }
}

fn dispatched(terminal: &TerminalHandle, boot: &str, attempt: u32, input: &str) -> TaskEvent {
    TaskEvent::Dispatched(Box::new(Dispatched {
        protocol_version: 1,
        attempt,
        terminal: terminal.id().clone(),
        journal: terminal.journal_id().into(),
        boot: boot.into(),
        kind: "work".into(),
        version: 1,
        input: RawValue::from_string(input.into()).unwrap().into(),
        run_timeout_ms: 400,
    }))
}

fn encoded(task: &TaskId, event: &TaskEvent) -> Vec<u8> {
    let data = task_data(event).unwrap();
    let (id, subject) = (decision_id(task, event, 0), task.to_string());
    let header =
        Header { id: &id, source: "/fanfold/dispatcher", subject: &subject, time_ms: None, traceparent: Some("00-1-2-01") };
    encode(event.name(), &data, header).unwrap()
}

impl Shared {
    fn take_reports(&self, message: &Message, reports: &mpsc::UnboundedSender<Report>) -> Option<Vec<u8>> {
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(RECORDED);
        let mut answers = Vec::new();
        for (index, raw) in split_batch(&message.payload).unwrap().into_iter().enumerate() {
            let envelope = Envelope::parse(raw.get().as_bytes()).unwrap();
            assert_eq!(envelope.traceparent.as_deref(), Some("00-1-2-01"));
            let name = envelope.name().unwrap().to_owned();
            let event = decode_task(&name, envelope.data).unwrap();
            let report = Report { name, attempt: event.attempt().unwrap(), event, raw: raw.get().into(), index };
            let _ = reports.send(report);
            if let Some((status, valid, code)) = answer {
                let seq = (status == ReportStatus::Recorded).then(|| self.seq.fetch_add(1, Ordering::SeqCst) + 1);
                let code = code.map(str::to_owned);
                answers.push(ReportResult { index: index as u32, status, seq, valid, code, message: None });
            }
        }
        answer.map(|_| serde_json::to_vec(&ReportAnswer { protocol_version: 1, answers, retry_after_ms: None }).unwrap())
    }

    fn answer_sync(&self) -> Vec<u8> {
        let next = self.syncs.lock().unwrap().pop_front();
        let mut answer = next.unwrap_or_else(|| SyncAnswer::bare(SyncStatus::Ok, 0, None));
        answer.as_of_seq = self.seq.load(Ordering::SeqCst);
        serde_json::to_vec(&answer).unwrap()
    }
}

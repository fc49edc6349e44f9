//! One terminal of a crowd: what it holds, and what it has to send.

use bytes::Bytes;
use fanfold_sdk::holds::{Action, Admission, Holds, Origin, Setup, SyncNext};
use fanfold_sdk::journal::EndKind;
use fanfold_sdk::wire::domain::Json;
use fanfold_sdk::wire::domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent, Verdict};
use fanfold_sdk::wire::domain::ids::{TaskId, TerminalId};
use fanfold_sdk::wire::event::{EventError, Header, encode, report_id, task_data};
use fanfold_sdk::wire::subjects;
use fanfold_sdk::wire::terminal::{AttemptRef, Beat, Command, Identity, ReportResult, SyncAnswer, SyncRequest};
use serde_json::value::to_raw_value;

use super::CrowdSpec;

/// A report that was not answered yet.
#[derive(Debug, Clone)]
pub(super) struct Unanswered {
    pub(super) attempt: AttemptRef,
    pub(super) end: EndKind,
    pub(super) report: Bytes,
}

/// See the module.
pub(super) struct Member {
    pub(super) id: TerminalId,
    pub(super) report_subject: String,
    identity: Identity,
    holds: Holds,
    actions: Vec<Action>,
}

/// Answers `noop@1` at once, with a result of about 300 bytes.
fn result(task: &TaskId) -> Option<Json> {
    let result = serde_json::json!({
        "store": task.target, "appVersion": "4.18.0", "lines": 48_211, "errors": 17, "warnings": 240,
        "levels": { "INFO": 47_954, "WARN": 240, "ERROR": 17 }, "first": "2026-09-17T08:00:01+08:00",
        "last": "2026-09-17T21:59:58+08:00", "configSha256": "2f7a8896b386711189137684dc4338d13497e27abb1bde9c06db5919e231e7ad",
    });
    to_raw_value(&result).ok().map(Json::from)
}

fn succeeded(attempt: u32, result: Json) -> TaskEvent {
    // The verdict is the recorder's to give; what a terminal says of it is not looked at.
    TaskEvent::Succeeded { attempt, result, run_ms: Some(0), verdict: Verdict { valid: true, errors: Vec::new() } }
}

fn failed(attempt: u32) -> TaskEvent {
    let message = "the result could not be written as JSON";
    TaskEvent::Failed { attempt, code: "INTERNAL".into(), message: message.into(), run_ms: Some(0) }
}

fn admit(dispatched: &Dispatched) -> Admission {
    if dispatched.kind == "noop" && dispatched.version == 1 { Admission::Taken } else { Admission::UnknownType }
}

impl Member {
    /// A terminal that has just been started for the first time.
    pub(super) fn new(id: TerminalId, journal: String, boot: String, spec: &CrowdSpec) -> Self {
        let slots = spec.slots.max(1);
        let setup = Setup {
            terminal: id.clone(),
            journal: journal.clone(),
            boot: boot.clone(),
            slots: slots as usize,
            held_max: slots as usize * 2,
        };
        let mut actions = Vec::new();
        Self {
            report_subject: subjects::report(&id),
            identity: Identity {
                protocol_version: PROTOCOL_VERSION,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                journal,
                boot,
                slots,
                beat_interval_ms: spec.beat_interval_ms,
                labels: std::collections::BTreeMap::new(),
                types: vec!["noop@1".to_owned()],
            },
            holds: Holds::restore(setup, Vec::new(), 0, &mut actions),
            actions,
            id,
        }
    }

    /// A beat, as it goes on the wire.
    pub(super) fn beat(&self) -> Option<Bytes> {
        let beat =
            Beat { identity: self.identity.clone(), holds: self.holds.live(256), goodbye: false, journal_unavailable: false };
        serde_json::to_vec(&beat).ok().map(Bytes::from)
    }

    /// A sync request, as it goes on the wire.
    pub(super) fn sync(&mut self) -> Option<Bytes> {
        let request = SyncRequest {
            identity: self.identity.clone(),
            holds: self.holds.list(),
            known_seq: self.holds.known_seq(),
            closed_plans: self.holds.plans_to_ask(),
        };
        serde_json::to_vec(&request).ok().map(Bytes::from)
    }

    /// A message on `ff.cmd.<id>.>`; what is to be sent because of it goes into `out`.
    pub(super) fn command(&mut self, subject: &str, seq: u64, payload: &[u8], out: &mut Vec<Unanswered>) {
        let Some((_, task)) = subjects::parse_command(subject) else { return };
        match Command::decode(task, seq, payload) {
            Ok(command) => self.holds.command(command, Origin::Live, &admit, &mut self.actions),
            Err(error) => tracing::warn!(terminal = %self.id, subject, %error, "a command can't be read"),
        }
        self.act(out);
    }

    /// The answer to a sync.
    pub(super) fn synced(&mut self, answer: SyncAnswer, out: &mut Vec<Unanswered>) -> SyncNext {
        let next = self.holds.synced(answer, &admit, &mut self.actions);
        self.act(out);
        next
    }

    /// The answer to a report; says whether it was the last one.
    pub(super) fn answered(&mut self, of: &Unanswered, result: &ReportResult, out: &mut Vec<Unanswered>) -> bool {
        self.holds.answered(&of.attempt, of.end, result, &mut self.actions);
        self.act(out);
        fanfold_sdk::holds::is_settled(result)
    }

    /// A sync should come early.
    pub(super) fn wants_sync(&self) -> bool {
        self.holds.wants_sync()
    }

    /// Performs what follows. A run is over as soon as it begins, so there is never one to be stopped.
    fn act(&mut self, out: &mut Vec<Unanswered>) {
        let mut at = 0;
        while let Some(action) = self.actions.get(at).cloned() {
            at += 1;
            match action {
                Action::Run(order) => {
                    let number = order.attempt.attempt;
                    let (end, event) = match result(&order.attempt.task_id) {
                        Some(result) => (EndKind::Succeeded, succeeded(number, result)),
                        None => (EndKind::Failed, failed(number)),
                    };
                    if let Some(report) = self.written(&order.attempt, &event, order.traceparent.as_deref()) {
                        self.holds.ended(&order.attempt, end, report, true, &mut self.actions);
                    }
                }
                Action::Report { attempt, end, event, traceparent, .. } => {
                    if let Some(report) = self.written(&attempt, &event, traceparent.as_deref()) {
                        out.push(Unanswered { attempt, end, report });
                    }
                }
                Action::Send { attempt, end, report } => out.push(Unanswered { attempt, end, report }),
                // Nothing runs, everything is sent at once, and there is no journal.
                Action::Stop(_) | Action::Expedite(_) | Action::Note(_) => {}
            }
        }
        self.actions.clear();
    }

    fn written(&self, attempt: &AttemptRef, event: &TaskEvent, traceparent: Option<&str>) -> Option<Bytes> {
        let write = || -> Result<Vec<u8>, EventError> {
            let header = Header {
                id: &report_id(&attempt.task_id, &self.id, event),
                source: &format!("/terminal/{}", self.id),
                subject: &attempt.task_id.to_string(),
                time_ms: None,
                traceparent,
            };
            encode(event.name(), &task_data(event)?, header)
        };
        let written = write().inspect_err(|error| tracing::error!(terminal = %self.id, %error, "a report could not be written"));
        written.ok().map(Bytes::from)
    }
}

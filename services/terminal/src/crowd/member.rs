//! One terminal of a crowd: what it holds, and what it has to send.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fanfold_sdk::holds::{Action, Admission, Holds, Origin, RunOrder, Setup, SyncNext};
use fanfold_sdk::journal::EndKind;
use fanfold_sdk::wire::domain::Json;
use fanfold_sdk::wire::domain::event::{Dispatched, PROTOCOL_VERSION, TaskEvent, Verdict};
use fanfold_sdk::wire::domain::ids::TerminalId;
use fanfold_sdk::wire::event::{EventError, Header, encode, report_id, task_data};
use fanfold_sdk::wire::subjects;
use fanfold_sdk::wire::terminal::{AttemptRef, Beat, Command, Identity, ReportResult, SyncAnswer, SyncRequest};

use super::{CrowdSpec, Syncs, crowd_result};

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
    pub(super) syncs: Arc<Syncs>,
    identity: Identity,
    holds: Holds,
    actions: Vec<Action>,
}

/// What follows from what came in.
#[derive(Default)]
pub(super) struct Follows {
    /// Runs that begin.
    pub(super) begun: Vec<RunOrder>,
    /// Reports to be sent.
    pub(super) reports: Vec<Unanswered>,
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
            syncs: Arc::default(),
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
    pub(super) fn command(&mut self, subject: &str, seq: u64, payload: &[u8], out: &mut Follows) {
        let Some((_, task)) = subjects::parse_command(subject) else { return };
        match Command::decode(task, seq, payload) {
            Ok(command) => self.holds.command(command, Origin::Live, &admit, &mut self.actions),
            Err(error) => tracing::warn!(terminal = %self.id, subject, %error, "a command can't be read"),
        }
        self.act(out);
    }

    /// The answer to a sync.
    pub(super) fn synced(&mut self, answer: SyncAnswer, out: &mut Follows) -> SyncNext {
        let next = self.holds.synced(answer, &admit, &mut self.actions);
        let counter = if matches!(next, SyncNext::Normal) { &self.syncs.answered } else { &self.syncs.unanswered };
        counter.fetch_add(1, Ordering::Relaxed);
        self.act(out);
        next
    }

    /// A sync got no answer.
    pub(super) fn not_synced(&self) {
        self.syncs.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// A run has come to its end.
    pub(super) fn done(&mut self, order: &RunOrder, out: &mut Follows) {
        let number = order.attempt.attempt;
        let (end, event) = match crowd_result(order.attempt.task_id.target.as_str()) {
            Ok(result) => (EndKind::Succeeded, succeeded(number, Json::from(result))),
            Err(_) => (EndKind::Failed, failed(number)),
        };
        if let Some(report) = self.written(&order.attempt, &event, order.traceparent.as_deref()) {
            self.holds.ended(&order.attempt, end, report, true, &mut self.actions);
        }
        self.act(out);
    }

    /// The answer to a report; says whether it was the last one.
    pub(super) fn answered(&mut self, of: &Unanswered, result: &ReportResult, out: &mut Follows) -> bool {
        self.holds.answered(&of.attempt, of.end, result, &mut self.actions);
        self.act(out);
        fanfold_sdk::holds::is_settled(result)
    }

    /// A sync should come early.
    pub(super) fn wants_sync(&self) -> bool {
        self.holds.wants_sync()
    }

    /// Performs what follows. A run that is to be stopped comes to its end soon: its result is still a result.
    fn act(&mut self, out: &mut Follows) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Run(order) => out.begun.push(*order),
                Action::Report { attempt, end, event, traceparent, .. } => {
                    if let Some(report) = self.written(&attempt, &event, traceparent.as_deref()) {
                        out.reports.push(Unanswered { attempt, end, report });
                    }
                }
                Action::Send { attempt, end, report } => out.reports.push(Unanswered { attempt, end, report }),
                // Everything is sent at once, and there is no journal.
                Action::Stop(_) | Action::Expedite(_) | Action::Note(_) => {}
            }
        }
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

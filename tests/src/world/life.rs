//! One process of a [`FakeTerminal`](super::terminal::FakeTerminal), from its start to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fanfold_domain::event::Dispatched;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_ledger::memory::MemoryLedger;
use fanfold_ledger::port::{Bus, BusMessage};
use fanfold_wire::subjects;
use fanfold_wire::terminal::*;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::terminal::{Account, Act, Options, Report, Shared, State, event, identity, send};

enum Heard {
    Answer(u64, Option<ReportResult>),
    Synced(Option<SyncAnswer>),
}

pub(super) struct Life {
    pub(super) id: TerminalId,
    pub(super) boot: String,
    pub(super) ledger: MemoryLedger,
    pub(super) options: Options,
    pub(super) account: Account,
    pub(super) shared: Arc<Mutex<Shared>>,
    /// Runs by when they end; `None`: never.
    pub(super) runs: BTreeMap<TaskId, (u32, Option<Instant>, Act)>,
}

impl Life {
    pub(super) async fn run(mut self) {
        let mut commands = self.ledger.subscribe(&subjects::commands(&self.id), None).await.unwrap();
        let (tell, mut heard) = mpsc::unbounded_channel();
        self.recover();
        let mut beat = tokio::time::interval(Duration::from_millis(self.options.beat_ms));
        let mut sync_at = Instant::now();
        loop {
            self.send_due(&tell);
            let run_ends = self.runs.values().filter_map(|(_, at, _)| *at).min();
            let report_at =
                self.shared.lock().unwrap().journal.outbox.values().filter(|r| !r.sending).map(|r| r.not_before).min();
            tokio::select! {
                biased;
                Some(command) = commands.next() => self.command(&command),
                Some(heard) = heard.recv() => match heard {
                    Heard::Answer(n, result) => self.answered(n, result),
                    Heard::Synced(answer) => sync_at = Instant::now() + Duration::from_millis(self.synced(answer)),
                },
                _ = beat.tick() => self.beat().await,
                () = tokio::time::sleep_until(sync_at) => {
                    self.sync(&tell);
                    sync_at = Instant::now() + Duration::from_secs(60);
                }
                () = at(run_ends) => self.end_runs(),
                () = at(report_at) => {}
            }
        }
    }

    /// What had begun is lost; what had ended is reported.
    fn recover(&mut self) {
        let begun: Vec<(TaskId, u32)> = {
            let shared = self.shared.lock().unwrap();
            shared.journal.holds.iter().filter(|(_, (_, s))| *s == State::Running).map(|(t, (n, _))| (t.clone(), *n)).collect()
        };
        for report in self.shared.lock().unwrap().journal.outbox.values_mut() {
            report.sending = false;
        }
        for (task, attempt) in begun {
            self.end(&task, attempt, "attempt.failed", json!({ "attempt": attempt, "code": "LOST", "message": "restarted" }));
        }
    }

    fn say(&self, task: &TaskId, attempt: u32, name: &'static str, data: Value, ends: bool) {
        let mut shared = self.shared.lock().unwrap();
        shared.reports += 1;
        let number = shared.reports;
        let report = Report { task: task.clone(), attempt, name, data, ends, sending: false, not_before: Instant::now() };
        shared.journal.outbox.insert(number, report);
    }

    fn end(&mut self, task: &TaskId, attempt: u32, name: &'static str, data: Value) {
        self.runs.remove(task);
        self.say(task, attempt, name, data, true);
        let mut shared = self.shared.lock().unwrap();
        if name == "attempt.succeeded" {
            shared.journal.successes.insert(task.clone(), (attempt, None));
        }
        if let Some(hold) = shared.journal.holds.get_mut(task).filter(|h| h.0 == attempt) {
            hold.1 = State::Finished;
        }
    }

    fn command(&mut self, message: &BusMessage) {
        let (Some((_, task)), Some(seq)) = (subjects::parse_command(&message.subject), message.seq) else { return };
        let command = Command::decode(task, seq, &message.payload).unwrap();
        self.take(command, true);
    }

    fn take(&mut self, command: Command, live: bool) {
        match command.order {
            Order::Run(run) => {
                let mine = {
                    let shared = self.shared.lock().unwrap();
                    run.journal == shared.journal.name && (!live || run.boot == self.boot)
                };
                let act = (self.options.script)(&command.task, run.attempt);
                if matches!(act, Act::Miss) && live {
                    return;
                }
                self.know(command.seq);
                if mine {
                    self.begin(&command.task, &run, act);
                }
            }
            Order::Stop { attempt, .. } => {
                self.know(command.seq);
                self.stop(&command.task, attempt);
            }
            Order::Ignore => self.know(command.seq),
        }
    }

    fn know(&self, seq: u64) {
        let mut shared = self.shared.lock().unwrap();
        shared.journal.known_seq = shared.journal.known_seq.max(seq);
    }

    fn begin(&mut self, task: &TaskId, run: &Dispatched, act: Act) {
        let attempt = run.attempt;
        let held = self.shared.lock().unwrap().journal.holds.get(task).copied();
        if held.is_some_and(|(n, _)| n >= attempt) {
            return;
        }
        if let Some((old, State::Running)) = held {
            self.stop(task, old);
        }
        let done = self.shared.lock().unwrap().journal.successes.get(task).is_some_and(|(_, valid)| *valid != Some(false));
        self.shared.lock().unwrap().journal.holds.insert(task.clone(), (attempt, State::Running));
        if done {
            return self.end(task, attempt, "attempt.rejected", json!({ "attempt": attempt, "code": "ALREADY_DONE" }));
        }
        if let Act::Reject(code) = act {
            return self.end(task, attempt, "attempt.rejected", json!({ "attempt": attempt, "code": code }));
        }
        *self.account.lock().unwrap().entry((task.clone(), attempt)).or_default() += 1;
        if !matches!(act, Act::SucceedQuietly(_) | Act::HangQuietly) {
            self.say(task, attempt, "attempt.started", json!({ "attempt": attempt }), false);
        }
        let after_ms = match act {
            Act::Succeed(ms) | Act::SucceedQuietly(ms) | Act::Fail(ms, _) | Act::Garbage(ms) => Some(ms),
            _ => None,
        };
        self.runs.insert(task.clone(), (attempt, after_ms.map(|ms| Instant::now() + Duration::from_millis(ms)), act));
    }

    fn stop(&mut self, task: &TaskId, attempt: u32) {
        if self.runs.get(task).is_some_and(|(n, _, _)| *n == attempt) {
            self.end(task, attempt, "attempt.stopped", json!({ "attempt": attempt }));
        }
    }

    fn end_runs(&mut self) {
        let now = Instant::now();
        let over: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, (_, at, _))| at.is_some_and(|at| at <= now))
            .map(|(t, r)| (t.clone(), r.clone()))
            .collect();
        for (task, (attempt, _, act)) in over {
            match act {
                Act::Fail(_, code) => {
                    self.end(&task, attempt, "attempt.failed", json!({ "attempt": attempt, "code": code, "message": "m" }))
                }
                Act::Garbage(_) => {
                    self.end(&task, attempt, "attempt.succeeded", json!({ "attempt": attempt, "result": { "n": "x" } }))
                }
                _ => self.end(&task, attempt, "attempt.succeeded", json!({ "attempt": attempt, "result": { "n": attempt } })),
            }
        }
    }

    fn send_due(&self, tell: &mpsc::UnboundedSender<Heard>) {
        let now = Instant::now();
        let mut shared = self.shared.lock().unwrap();
        let due: Vec<u64> =
            shared.journal.outbox.iter().filter(|(_, r)| !r.sending && r.not_before <= now).map(|(n, _)| *n).collect();
        for number in due {
            shared.sent += 1;
            let (delay_ms, twice) = (self.options.network)(shared.sent);
            let Some(report) = shared.journal.outbox.get_mut(&number) else { continue };
            report.sending = true;
            let body = event(&report.task, report.name, &report.data);
            for copy in 0..=u64::from(twice) {
                let (ledger, id, body, tell) = (self.ledger.clone(), self.id.clone(), body.clone(), tell.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(delay_ms * (1 + 3 * copy))).await;
                    let answer = send(&ledger, &id, &[body]).await;
                    let _ = tell.send(Heard::Answer(number, answer.and_then(|a| a.answers.into_iter().next())));
                });
            }
        }
    }

    fn answered(&mut self, number: u64, result: Option<ReportResult>) {
        let settled = result.filter(|r| r.status.is_settled());
        let mut shared = self.shared.lock().unwrap();
        let journal = &mut shared.journal;
        let Some(result) = settled else {
            if let Some(report) = journal.outbox.get_mut(&number) {
                report.sending = false;
                report.not_before = Instant::now() + Duration::from_millis(700);
            }
            return;
        };
        let Some(report) = journal.outbox.remove(&number) else { return };
        journal.known_seq = journal.known_seq.max(result.seq.unwrap_or(0));
        let refused_success = report.name == "attempt.succeeded" && result.status == ReportStatus::Refused;
        if report.name == "attempt.succeeded" {
            journal.successes.insert(report.task.clone(), (report.attempt, Some(result.valid == Some(true))));
        }
        let last = journal.holds.get_mut(&report.task).filter(|h| h.0 == report.attempt && report.ends);
        if let Some(hold) = last {
            hold.1 = State::Settled(result.seq.unwrap_or(0));
        }
        drop(shared);
        if refused_success {
            let data = json!({ "attempt": report.attempt, "code": result.code, "message": "refused" });
            self.say(&report.task, report.attempt, "attempt.failed", data, true);
        }
    }

    async fn beat(&self) {
        let beat = {
            let shared = self.shared.lock().unwrap();
            let listed = |(task, (n, s)): (&TaskId, &(u32, State))| {
                (*s == State::Running).then(|| AttemptRef { task_id: task.clone(), attempt: *n })
            };
            let holds = shared.journal.holds.iter().filter_map(listed).collect();
            Beat {
                identity: identity(&shared.journal.name, &self.boot, &self.options),
                holds,
                goodbye: false,
                journal_unavailable: false,
            }
        };
        let _ = self.ledger.publish(&subjects::beat(&self.id), Bytes::from(serde_json::to_vec(&beat).unwrap())).await;
    }

    fn sync(&self, tell: &mpsc::UnboundedSender<Heard>) {
        let shared = self.shared.lock().unwrap();
        // What is settled stays listed until HQ no longer counts it as open; its number is remembered for ever.
        let listed = |(task, (n, s)): (&TaskId, &(u32, State))| {
            let state = match s {
                State::Running => HoldState::Running,
                State::Finished => HoldState::Finished,
                State::Settled(_) => HoldState::Settled,
            };
            Hold { attempt: AttemptRef { task_id: task.clone(), attempt: *n }, state }
        };
        let request = SyncRequest {
            identity: identity(&shared.journal.name, &self.boot, &self.options),
            holds: shared.journal.holds.iter().map(listed).collect(),
            known_seq: shared.journal.known_seq,
            closed_plans: Vec::new(),
        };
        let body = Bytes::from(serde_json::to_vec(&request).unwrap());
        let (ledger, subject, tell) = (self.ledger.clone(), subjects::sync(&self.id), tell.clone());
        tokio::spawn(async move {
            let answer = ledger.request(&subject, body, Duration::from_secs(3)).await.ok();
            let _ = tell.send(Heard::Synced(answer.and_then(|a| serde_json::from_slice(&a).ok())));
        });
    }

    /// Acts on an answer; gives the time to the next sync in ms.
    fn synced(&mut self, answer: Option<SyncAnswer>) -> u64 {
        let Some(answer) = answer else { return 1_000 };
        if answer.status != SyncStatus::Ok {
            return answer.retry_after_ms.unwrap_or(self.options.sync_ms);
        }
        if answer.as_of_seq < self.shared.lock().unwrap().journal.known_seq {
            return 250;
        }
        let stopped: std::collections::BTreeSet<AttemptRef> = answer.stop.into_iter().collect();
        for stop in &stopped {
            self.stop(&stop.task_id, stop.attempt);
        }
        for open in answer.open {
            let command = Command::decode(open.task_id, open.seq, open.command.get().as_bytes()).unwrap();
            self.take(command, false);
        }
        answer.retry_after_ms.unwrap_or(self.options.sync_ms)
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

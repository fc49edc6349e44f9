//! The rules as tables: a line an input, and what must follow from it.
#![allow(clippy::unwrap_used, clippy::panic)]

use fanfold_wire::domain::event::Dispatched;
use fanfold_wire::domain::ids::TerminalId;
use fanfold_wire::terminal::{HoldState, OpenCommand, ReportResult, ReportStatus, SyncAnswer, SyncStatus};
use serde_json::value::RawValue;

use super::*;
use crate::journal::Op;

mod sequences;
mod sync;

const MINE: (&str, &str) = ("journal-1", "boot-1");

fn task(name: &str) -> TaskId {
    TaskId::parse(&format!("{name}.S1.main")).unwrap()
}

fn at(name: &str, attempt: u32) -> AttemptRef {
    AttemptRef { task_id: task(name), attempt }
}

fn dispatched(attempt: u32, (journal, boot): (&str, &str)) -> Dispatched {
    Dispatched {
        protocol_version: 1,
        attempt,
        terminal: TerminalId::new("S1").unwrap(),
        journal: journal.into(),
        boot: boot.into(),
        kind: "inventory".into(),
        version: 1,
        input: RawValue::from_string("{}".into()).unwrap().into(),
        run_timeout_ms: 1000,
    }
}

fn show(action: &Action) -> String {
    let name = |a: &AttemptRef| format!("{}/{}", a.task_id.plan, a.attempt);
    match action {
        Action::Run(order) => format!("run {}", name(&order.attempt)),
        Action::Stop(a) => format!("stop {}", name(a)),
        Action::Report { attempt, event, durable, .. } => {
            let code = match event.as_ref() {
                TaskEvent::Rejected { code, .. } | TaskEvent::Failed { code, .. } => format!(" {code}"),
                _ => String::new(),
            };
            let durable = if *durable { " durably" } else { "" };
            format!("report {} {}{code}{durable}", name(attempt), event.name().trim_start_matches("attempt."))
        }
        Action::Send { attempt, end, .. } => format!("send {} {end:?}", name(attempt)),
        Action::Expedite(a) => format!("expedite {}", name(a)),
        Action::Note(Op::Put { task, attempt, record: Record::Settled { valid, code, .. } }) => {
            format!("settle {}/{attempt} {valid}{}", task.plan, code.as_ref().map(|c| format!(" {c}")).unwrap_or_default())
        }
        Action::Note(Op::Reduce { task, attempt }) => format!("reduce {}/{attempt}", task.plan),
        Action::Note(Op::Forget { task }) => format!("forget {}", task.plan),
        Action::Note(op) => panic!("{op:?}"),
    }
}

/// Without the sequence noted beside whatever is reduced or forgotten: see [`remembered`].
fn shown(actions: &[Action]) -> String {
    let noted = |a: &&Action| !matches!(a, Action::Note(Op::Known { .. }));
    actions.iter().filter(noted).map(show).collect::<Vec<_>>().join(", ")
}

/// What the journal is told to remember as known.
fn remembered(actions: &[Action]) -> Vec<u64> {
    actions.iter().filter_map(|a| if let Action::Note(Op::Known { seq }) = a { Some(*seq) } else { None }).collect()
}

struct Bench {
    holds: Holds,
    seq: u64,
    /// What a journal would know, of everything asked of it by syncs.
    known_seq: u64,
}

impl Bench {
    fn with(slots: usize, rows: Vec<Row>) -> (Self, String) {
        Self::restarted(slots, rows, 0)
    }

    fn restarted(slots: usize, rows: Vec<Row>, known_seq: u64) -> (Self, String) {
        let setup = Setup {
            terminal: TerminalId::new("S1").unwrap(),
            journal: MINE.0.into(),
            boot: MINE.1.into(),
            slots,
            held_max: slots + 2,
        };
        let mut out = Vec::new();
        let holds = Holds::restore(setup, rows, known_seq, &mut out);
        (Self { holds, seq: known_seq.max(100), known_seq }, shown(&out))
    }

    fn new(slots: usize) -> Self {
        Self::with(slots, Vec::new()).0
    }

    fn command(&mut self, name: &str, order: Order, origin: Origin, admission: Admission) -> String {
        self.seq += 1;
        let command = Command { task: task(name), seq: self.seq, traceparent: None, order };
        let mut out = Vec::new();
        self.holds.command(command, origin, &|_| admission.clone(), &mut out);
        shown(&out)
    }

    fn live(&mut self, name: &str, attempt: u32) -> String {
        self.command(name, Order::Run(Box::new(dispatched(attempt, MINE))), Origin::Live, Admission::Taken)
    }

    fn ask_stop(&mut self, name: &str, attempt: u32) -> String {
        self.command(name, Order::Stop { attempt, reason: "task.stop_requested" }, Origin::Live, Admission::Taken)
    }

    fn ended(&mut self, name: &str, attempt: u32, end: EndKind) -> String {
        let mut out = Vec::new();
        self.holds.ended(&at(name, attempt), end, Bytes::from_static(b"{}"), true, &mut out);
        shown(&out)
    }

    fn answered(
        &mut self,
        name: &str,
        attempt: u32,
        end: EndKind,
        status: ReportStatus,
        valid: Option<bool>,
        code: Option<&str>,
    ) -> String {
        self.seq += 1;
        let seq = (status == ReportStatus::Recorded || status == ReportStatus::Duplicate).then_some(self.seq);
        let result = ReportResult { index: 0, status, seq, valid, code: code.map(str::to_owned), message: None };
        let mut out = Vec::new();
        self.holds.answered(&at(name, attempt), end, &result, &mut out);
        shown(&out)
    }

    fn recorded(&mut self, name: &str, attempt: u32, end: EndKind) -> String {
        self.answered(name, attempt, end, ReportStatus::Recorded, Some(true), None)
    }

    fn sync(&mut self, change: impl FnOnce(&mut SyncAnswer)) -> (String, SyncNext) {
        let mut answer = SyncAnswer::bare(SyncStatus::Ok, self.seq, None);
        change(&mut answer);
        let mut out = Vec::new();
        let next = self.holds.synced(answer, &|_| Admission::Taken, &mut out);
        self.known_seq = remembered(&out).pop().unwrap_or(self.known_seq);
        (shown(&out), next)
    }

    fn state(&self, name: &str, attempt: u32) -> Option<HoldState> {
        self.holds.list().into_iter().find(|h| h.attempt == at(name, attempt)).map(|h| h.state)
    }
}

fn open(name: &str, attempt: u32, seq: u64, ids: (&str, &str)) -> OpenCommand {
    let data = serde_json::to_string(&dispatched(attempt, ids)).unwrap();
    let text = format!(r#"{{"specversion":"1.0","type":"fanfold.task.dispatched.v1","data":{data}}}"#);
    OpenCommand { task_id: task(name), seq, command: RawValue::from_string(text).unwrap() }
}

fn row(name: &str, attempt: u32, record: Option<Record>) -> Row {
    Row { task: task(name), attempt, record }
}

fn settled(seq: u64, valid: bool) -> Option<Record> {
    Some(Record::Settled { end: EndKind::Succeeded, seq, valid, code: None })
}

#[test]
fn a_command_runs_once_and_its_repeats_do_nothing() {
    let mut b = Bench::new(1);
    assert_eq!(b.live("p", 1), "run p/1");
    assert_eq!(b.live("p", 1), "");
    assert_eq!(b.ended("p", 1, EndKind::Succeeded), "send p/1 Succeeded");
    assert_eq!(b.live("p", 1), "");
    assert_eq!(b.recorded("p", 1, EndKind::Succeeded), "settle p/1 true");
    assert_eq!(b.live("p", 1), "");
    assert_eq!(b.sync(|_| ()), ("reduce p/1".into(), SyncNext::Normal));
    assert_eq!(b.live("p", 1), "", "the number outlives the attempt");
    assert_eq!((b.holds.counts().duplicates, b.holds.counts().runs), (4, 1));
}

#[test]
fn a_live_command_must_name_this_journal_and_this_boot() {
    for (origin, ids, expected) in [
        (Origin::Live, MINE, "run p/1"),
        (Origin::Live, ("journal-1", "boot-0"), ""),
        (Origin::Live, ("journal-0", "boot-1"), ""),
        (Origin::Sync, ("journal-1", "boot-0"), "run p/1"),
        (Origin::Sync, ("journal-0", "boot-1"), ""),
    ] {
        let mut b = Bench::new(1);
        let got = b.command("p", Order::Run(Box::new(dispatched(1, ids))), origin, Admission::Taken);
        assert_eq!(got, expected, "{origin:?} {ids:?}");
        assert_eq!(b.holds.counts().foreign, u64::from(expected.is_empty()));
        let before = ("journal-1", "boot-0");
        assert_eq!(b.holds.wants_sync(), origin == Origin::Live && ids == before, "for the boot before: a sync hands it out");
    }
    let mut b = Bench::new(1);
    let other = Dispatched { terminal: TerminalId::new("S2").unwrap(), ..dispatched(1, MINE) };
    assert_eq!(b.command("p", Order::Run(Box::new(other)), Origin::Live, Admission::Taken), "");
}

#[test]
fn the_next_attempt_drops_a_queued_one() {
    let mut b = Bench::new(1);
    b.live("other", 1);
    assert_eq!(b.live("p", 1), "");
    assert_eq!(b.live("p", 2), "report p/1 stopped");
    assert_eq!(b.ended("other", 1, EndKind::Failed), "send other/1 Failed, run p/2");
}

#[test]
fn the_next_attempt_waits_until_a_running_one_has_ended() {
    for (end, expected) in [
        (EndKind::Stopped, "send p/1 Stopped, run p/2"),
        (EndKind::Failed, "send p/1 Failed, run p/2"),
        (EndKind::Succeeded, "send p/1 Succeeded, expedite p/1, report p/2 rejected ALREADY_DONE"),
    ] {
        let mut b = Bench::new(4);
        b.live("p", 1);
        assert_eq!(b.live("p", 2), "stop p/1");
        assert_eq!(b.live("q", 1), "run q/1", "others don't wait");
        assert_eq!(b.ended("p", 1, end), expected);
    }
}

#[test]
fn only_the_newest_of_several_waiting_attempts_runs() {
    let mut b = Bench::new(2);
    b.live("p", 1);
    assert_eq!(b.live("p", 2), "stop p/1");
    assert_eq!(b.live("p", 3), "report p/2 stopped");
    assert_eq!(b.ended("p", 1, EndKind::Stopped), "send p/1 Stopped, run p/3");
}

#[test]
fn already_done_only_while_a_success_is_unanswered_or_valid() {
    let rejected = "expedite p/1, report p/2 rejected ALREADY_DONE";
    type Answer = (ReportStatus, Option<bool>, Option<&'static str>);
    let cases: [(EndKind, Option<Answer>, &str); 8] = [
        (EndKind::Succeeded, None, rejected),
        (EndKind::Succeeded, Some((ReportStatus::Retry, None, None)), rejected),
        (EndKind::Succeeded, Some((ReportStatus::Recorded, Some(true), None)), rejected),
        (EndKind::Succeeded, Some((ReportStatus::Duplicate, None, None)), rejected),
        (EndKind::Succeeded, Some((ReportStatus::Recorded, Some(false), None)), "run p/2"),
        (EndKind::Succeeded, Some((ReportStatus::Refused, None, Some("CONFLICT"))), "run p/2"),
        (EndKind::Succeeded, Some((ReportStatus::Refused, None, Some("NOT_YOURS"))), "run p/2"),
        (EndKind::Failed, None, "run p/2"),
    ];
    for (end, answer, expected) in cases {
        let mut b = Bench::new(1);
        b.live("p", 1);
        b.ended("p", 1, end);
        if let Some((status, valid, code)) = answer {
            b.answered("p", 1, end, status, valid, code);
        }
        assert_eq!(b.live("p", 2), expected, "{end:?} {answer:?}");
    }
}

#[test]
fn what_can_not_be_run_is_rejected_with_its_code() {
    let mut b = Bench::new(1);
    let order = |n| Order::Run(Box::new(dispatched(n, MINE)));
    assert_eq!(b.command("a", order(1), Origin::Live, Admission::UnknownType), "report a/1 rejected UNKNOWN_TYPE");
    assert_eq!(b.command("b", order(1), Origin::Live, Admission::BadInput("x".into())), "report b/1 rejected BAD_INPUT");
    b.live("r", 1);
    b.live("s", 1);
    assert_eq!(b.live("t", 1), "", "slots + 2 are held in this bench");
    assert_eq!(b.live("u", 1), "report u/1 rejected BUSY");
    assert_eq!(b.live("u", 1), "", "a rejected attempt is known");
    assert_eq!(b.answered("u", 1, EndKind::Rejected, ReportStatus::Recorded, None, None), "", "it has no row");
    assert_eq!(b.state("u", 1), Some(HoldState::Settled));
    b.holds.set_journal_ok(false);
    assert_eq!(b.live("u", 2), "report u/2 rejected JOURNAL_UNAVAILABLE");
}

#[test]
fn a_journal_that_fails_stops_new_runs_only() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.live("q", 1);
    let mut out = Vec::new();
    b.holds.not_begun(&at("p", 1), &mut out);
    assert_eq!(shown(&out), "report p/1 rejected JOURNAL_UNAVAILABLE, report q/1 rejected JOURNAL_UNAVAILABLE");
    assert_eq!((b.holds.running(), b.holds.queued(), b.holds.counts().runs), (0, 0, 0));
    let mut b = Bench::new(1);
    b.live("p", 1);
    let mut out = Vec::new();
    b.holds.ended(&at("p", 1), EndKind::Succeeded, Bytes::new(), false, &mut out);
    assert_eq!(shown(&out), "send p/1 Succeeded");
    assert!(!b.holds.journal_ok());
    assert_eq!(b.live("q", 1), "report q/1 rejected JOURNAL_UNAVAILABLE");
}

#[test]
fn a_stop_ends_what_is_queued_or_running_and_nothing_else() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.live("q", 1);
    assert_eq!(b.ask_stop("q", 1), "report q/1 stopped");
    assert_eq!(b.ask_stop("p", 1), "stop p/1");
    assert_eq!(b.ask_stop("p", 1), "", "once");
    assert_eq!(b.ask_stop("p", 2), "");
    assert_eq!(b.ask_stop("x", 1), "");
    assert_eq!(b.ended("p", 1, EndKind::Succeeded), "send p/1 Succeeded", "it finished first");
    assert_eq!(b.ask_stop("p", 1), "");
}

#[test]
fn reports_are_settled_only_by_what_is_final() {
    use ReportStatus::{Duplicate, Recorded, Refused, Retry, Unknown};
    let cases = [
        (EndKind::Failed, Recorded, None, "settle p/1 false"),
        (EndKind::Failed, Duplicate, None, "settle p/1 false"),
        (EndKind::Failed, Refused, Some("CONFLICT"), "settle p/1 false CONFLICT"),
        (EndKind::Failed, Refused, Some("RATE_LIMITED"), ""),
        (EndKind::Failed, Refused, Some("NEW_CODE"), ""),
        (EndKind::Failed, Retry, Some("LOG_FULL"), ""),
        (EndKind::Failed, Unknown, None, ""),
        (EndKind::Succeeded, Refused, Some("TOO_LARGE"), "report p/1 failed TOO_LARGE durably"),
        (EndKind::Succeeded, Refused, Some("MALFORMED"), "report p/1 failed MALFORMED durably"),
        (EndKind::Succeeded, Refused, Some("CONFLICT"), "report p/1 failed CONFLICT durably"),
        (EndKind::Succeeded, Refused, Some("UNKNOWN_TASK"), "settle p/1 false UNKNOWN_TASK"),
        (EndKind::Succeeded, Refused, Some("PLAN_CLOSED"), "settle p/1 false PLAN_CLOSED"),
    ];
    for (end, status, code, expected) in cases {
        let mut b = Bench::new(1);
        b.live("p", 1);
        b.ended("p", 1, end);
        assert_eq!(b.answered("p", 1, end, status, None, code), expected, "{end:?} {status:?} {code:?}");
        let finished = expected.is_empty() || expected.starts_with("report");
        assert_eq!(b.state("p", 1), Some(if finished { HoldState::Finished } else { HoldState::Settled }));
        assert_eq!(b.answered("p", 1, EndKind::Stopped, Recorded, None, None), "", "an answer to a report that was not the last");
    }
}

#[test]
fn a_failure_made_of_a_refused_success_is_settled_as_a_failure() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.ended("p", 1, EndKind::Succeeded);
    b.answered("p", 1, EndKind::Succeeded, ReportStatus::Refused, None, Some("CONFLICT"));
    assert_eq!(b.recorded("p", 1, EndKind::Succeeded), "", "a late answer to the success changes nothing");
    assert_eq!(b.recorded("p", 1, EndKind::Failed), "settle p/1 false");
    assert_eq!(b.holds.unanswered(), 0);
}

#[test]
fn a_restart_reports_what_was_begun_as_lost_and_sends_what_was_finished() {
    let finished = Record::Finished { end: EndKind::Succeeded, report: Bytes::from_static(b"{}") };
    let rows = vec![
        row("a", 1, Some(Record::Begun { traceparent: None })),
        row("b", 2, Some(finished)),
        row("c", 3, settled(7, true)),
        row("d", 4, None),
    ];
    let (mut b, actions) = Bench::with(1, rows);
    assert_eq!(actions, "report a/1 failed LOST durably, send b/2 Succeeded");
    assert_eq!((b.holds.known_seq(), b.holds.unanswered(), b.holds.running()), (7, 2, 0));
    for (name, attempt) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("d", 3)] {
        assert_eq!(b.live(name, attempt), "", "{name}/{attempt} never runs again");
    }
    assert_eq!(b.live("a", 2), "run a/2", "after a loss the next one runs");
    assert_eq!(b.live("b", 3), "expedite b/2, report b/3 rejected ALREADY_DONE");
    assert_eq!(b.live("c", 4), "expedite c/3, report c/4 rejected ALREADY_DONE");
}

#[test]
fn a_stopping_terminal_takes_nothing_and_forgets_its_queue() {
    let mut b = Bench::new(1);
    b.live("p", 1);
    b.live("q", 1);
    b.holds.close();
    assert_eq!(b.live("r", 1), "");
    assert_eq!((b.holds.queued(), b.state("q", 1), b.holds.counts().left_to_sync), (0, None, 1));
    let mut out = Vec::new();
    b.holds.stop_all(&mut out);
    assert_eq!(shown(&out), "stop p/1");
    assert_eq!(b.ended("p", 1, EndKind::Stopped), "send p/1 Stopped");
}

#[test]
fn too_much_unanswered_leaves_commands_to_a_later_sync() {
    let mut b = Bench::new(1);
    for i in 0..UNANSWERED_MAX {
        b.command(&format!("p{i}"), Order::Run(Box::new(dispatched(1, MINE))), Origin::Live, Admission::UnknownType);
    }
    assert_eq!(b.live("late", 1), "");
    b.recorded("p0", 1, EndKind::Rejected);
    let seq = b.seq;
    assert_eq!(b.sync(|a| a.open = vec![open("late", 1, seq, MINE)]).0, "reduce p0/1, run late/1");
}

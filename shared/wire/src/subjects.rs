//! Every subject there is, built and read in one place.

use fanfold_domain::event::Writer;
use fanfold_domain::ids::{PlanId, StageId, TargetId, TaskId, TerminalId};

/// What terminals publish their heartbeats under, for HQ's subscription.
pub const BEATS: &str = "ff.beat.*";
/// What terminals send reports under, for the recorder's queue group.
pub const REPORTS: &str = "ff.report.*";
/// What terminals send syncs under.
pub const SYNCS: &str = "ff.sync.*";
/// Every submission there has been.
pub const SUBMISSIONS: &str = "ff.plan.*.submitted";
/// Every summary there has been.
pub const SUMMARIES: &str = "ff.plan.*.summarised";
/// The recorder's counts of what it refused or absorbed, for the registry.
pub const RECORDER_COUNTS: &str = "ff.counts.recorder";

/// `ff.plan.<plan>.<event>`
pub fn plan_event(plan: &PlanId, event: &str) -> String {
    format!("ff.plan.{plan}.{event}")
}

/// Filter of all events of a plan itself: what plan events expect the last sequence of.
pub fn plan_filter(plan: &PlanId) -> String {
    format!("ff.plan.{plan}.*")
}

/// Filter of all events of a plan's tasks.
pub fn plan_tasks_filter(plan: &PlanId) -> String {
    format!("ff.task.{plan}.>")
}

/// Filter of all events of a plan and of its tasks. One filter: the server finds its messages by an index then, while with two it goes
/// through the whole log.
pub fn plan_log_filter(plan: &PlanId) -> String {
    format!("ff.*.{plan}.>")
}

/// The plan a subject of the log is about, without reading the rest of it; `None`: it is about none.
pub fn plan_of(subject: &str) -> Option<&str> {
    let rest = subject.strip_prefix("ff.plan.").or_else(|| subject.strip_prefix("ff.task."))?;
    rest.split_once('.').map(|(plan, _)| plan)
}

/// Filter of all events of one task.
pub fn task_filter(task: &TaskId) -> String {
    format!("ff.task.{task}.>")
}

/// `ff.task.<task>.hq.<terminal>`; `-` when no terminal is concerned.
pub fn task_decision(task: &TaskId, terminal: Option<&TerminalId>) -> String {
    format!("ff.task.{task}.hq.{}", terminal.map_or("-", TerminalId::as_str))
}

/// Filter of all decisions about a task: what a decision expects the last sequence of.
pub fn task_decision_filter(task: &TaskId) -> String {
    format!("ff.task.{task}.hq.*")
}

/// `ff.task.<task>.by.<terminal>`
pub fn task_report(task: &TaskId, terminal: &TerminalId) -> String {
    format!("ff.task.{task}.by.{terminal}")
}

/// `ff.fence.<role>`
pub fn fence(role: &str) -> String {
    format!("ff.fence.{role}")
}

/// `ff.lead.<role>`: the leader's beat on core NATS.
pub fn lead(role: &str) -> String {
    format!("ff.lead.{role}")
}

/// `ff.who.<role>`: the leader answers here; nobody answering means nobody leads.
pub fn who(role: &str) -> String {
    format!("ff.who.{role}")
}

/// What a terminal subscribes to.
pub fn commands(terminal: &TerminalId) -> String {
    format!("ff.cmd.{terminal}.>")
}

/// Where one command is republished to.
pub fn command(terminal: &TerminalId, task: &TaskId) -> String {
    format!("ff.cmd.{terminal}.{task}")
}

/// The task and the terminal of a command's subject.
pub fn parse_command(subject: &str) -> Option<(TerminalId, TaskId)> {
    let (terminal, task) = subject.strip_prefix("ff.cmd.")?.split_once('.')?;
    Some((TerminalId::new(terminal).ok()?, TaskId::parse(task).ok()?))
}

/// `ff.report.<terminal>`
pub fn report(terminal: &TerminalId) -> String {
    format!("ff.report.{terminal}")
}

/// `ff.sync.<terminal>`
pub fn sync(terminal: &TerminalId) -> String {
    format!("ff.sync.{terminal}")
}

/// `ff.beat.<terminal>`
pub fn beat(terminal: &TerminalId) -> String {
    format!("ff.beat.{terminal}")
}

/// The terminal's name in a `ff.beat.*` subject, not checked.
pub fn beat_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("ff.beat.")
}

/// The terminal of a `ff.report.*`, `ff.sync.*` or `ff.beat.*` subject. Identity comes from here, never from a body.
pub fn parse_terminal(subject: &str) -> Option<TerminalId> {
    let rest = subject.strip_prefix("ff.")?;
    let (noun, terminal) = rest.split_once('.')?;
    if !matches!(noun, "report" | "sync" | "beat") {
        return None;
    }
    TerminalId::new(terminal).ok()
}

/// `ff.api.<noun>.<verb>`
pub fn api(noun: &str, verb: &str) -> String {
    format!("ff.api.{noun}.{verb}")
}

/// Whether an answer may be sent to this reply subject: a service import's, or an inbox. Anything else could make HQ write where a
/// terminal may not.
pub fn is_inbox(reply: &str, terminal: Option<&TerminalId>) -> bool {
    let own = terminal
        .is_some_and(|t| reply.strip_prefix("_I.").and_then(|r| r.strip_prefix(t.as_str())).is_some_and(|r| r.starts_with('.')));
    own || reply.starts_with("_R_.") || reply.starts_with("_INBOX.")
}

/// A subject of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSubject {
    /// `ff.plan.<plan>.<event>`
    Plan {
        /// The plan.
        plan: PlanId,
        /// Last token.
        event: String,
    },
    /// `ff.task.<plan>.<target>.<stage>.{hq|by}.<terminal>`
    Task {
        /// The task.
        task: TaskId,
        /// Who wrote it.
        writer: Writer,
        /// The terminal concerned.
        terminal: Option<TerminalId>,
    },
    /// `ff.fence.<role>`
    Fence {
        /// The role.
        role: String,
    },
}

impl LogSubject {
    /// Reads a subject of the log; `None` for any other.
    pub fn parse(subject: &str) -> Option<Self> {
        let mut tokens = subject.split('.');
        if tokens.next() != Some("ff") {
            return None;
        }
        let parsed = match tokens.next()? {
            "plan" => Self::Plan { plan: PlanId::new(tokens.next()?).ok()?, event: tokens.next()?.to_owned() },
            "task" => {
                let plan = PlanId::new(tokens.next()?).ok()?;
                let target = TargetId::new(tokens.next()?).ok()?;
                let stage = StageId::new(tokens.next()?).ok()?;
                let side = tokens.next()?;
                let terminal = match tokens.next()? {
                    "-" => None,
                    text => Some(TerminalId::new(text).ok()?),
                };
                let writer = match (side, &terminal) {
                    ("hq", _) => Writer::Hq,
                    ("by", Some(terminal)) => Writer::Terminal(terminal.clone()),
                    _ => return None,
                };
                Self::Task { task: TaskId::new(plan, target, stage), writer, terminal }
            }
            "fence" => Self::Fence { role: tokens.next()?.to_owned() },
            _ => return None,
        };
        tokens.next().is_none().then_some(parsed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn log_subjects_round_trip() {
        let task = TaskId::parse("p1.S_1.main").unwrap();
        let terminal = TerminalId::new("S_1").unwrap();
        let cases = [
            (
                task_decision(&task, Some(&terminal)),
                LogSubject::Task { task: task.clone(), writer: Writer::Hq, terminal: Some(terminal.clone()) },
            ),
            (task_decision(&task, None), LogSubject::Task { task: task.clone(), writer: Writer::Hq, terminal: None }),
            (
                task_report(&task, &terminal),
                LogSubject::Task {
                    task: task.clone(),
                    writer: Writer::Terminal(terminal.clone()),
                    terminal: Some(terminal.clone()),
                },
            ),
            (plan_event(&task.plan, "sealed"), LogSubject::Plan { plan: task.plan.clone(), event: "sealed".into() }),
            (fence("dispatcher"), LogSubject::Fence { role: "dispatcher".into() }),
        ];
        for (subject, expected) in cases {
            assert_eq!(LogSubject::parse(&subject), Some(expected), "{subject}");
        }
        for bad in [
            "ff.plan.p1",
            "ff.task.p.t.main.by.-",
            "ff.task.p.t.main.x.t",
            "ff.plan.p.sealed.more",
            "gg.plan.p.sealed",
            "ff.task.a b.t.m.hq.-",
        ] {
            assert_eq!(LogSubject::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_plan_of_a_subject_is_told_without_reading_it() {
        let task = TaskId::parse("p1.S_1.main").unwrap();
        for subject in [plan_event(&task.plan, "sealed"), task_decision(&task, None)] {
            assert_eq!(plan_of(&subject), Some("p1"), "{subject}");
        }
        for other in ["ff.fence.dispatcher", "ff.plan.p1", "gg.plan.p1.sealed", ""] {
            assert_eq!(plan_of(other), None, "{other}");
        }
    }

    #[test]
    fn terminal_subjects_round_trip() {
        let terminal = TerminalId::new("SH_0312").unwrap();
        let task = TaskId::parse("p1.SH_0312.main").unwrap();
        for subject in [report(&terminal), sync(&terminal), beat(&terminal)] {
            assert_eq!(parse_terminal(&subject), Some(terminal.clone()));
        }
        assert_eq!(parse_terminal("ff.beat.a.b"), None);
        assert_eq!(parse_terminal("ff.cmd.a"), None);
        assert_eq!(parse_command(&command(&terminal, &task)), Some((terminal.clone(), task)));
    }

    #[test]
    fn only_inboxes_are_answered() {
        let terminal = TerminalId::new("S1").unwrap();
        for good in ["_INBOX.x.y", "_R_.abc", "_I.S1.x"] {
            assert!(is_inbox(good, Some(&terminal)), "{good}");
        }
        for bad in ["ff.task.p.t.main.by.S2", "$JS.API.STREAM.DELETE.FANFOLD", "_I.S2.x", "_I.S10.x", "_INBOX", ""] {
            assert!(!is_inbox(bad, Some(&terminal)), "{bad}");
        }
    }
}

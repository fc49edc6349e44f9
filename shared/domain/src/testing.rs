//! Builders for tests: a sealed plan, events in short, and a given/when/then over one task.
//!
//! Only compiled for tests (feature `testing`). Times are milliseconds after the seal, whose log time is [`SEALED_MS`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::value::RawValue;

use crate::Json;
use crate::event::{Dispatched, ExpiryReason, LoggedTaskEvent, TaskEvent, TimeoutKind, Verdict, Writer};
use crate::fold::Effect;
use crate::ids::{PlanId, TargetId, TaskId, TerminalId};
use crate::plan::{
    Asked, Below, Converge, Limits, LoggedPlanEvent, Moment, PlanEvent, PlanSpec, Seal, Summarised, SummaryKind, SummaryRef,
    Timeouts, TypeRef,
};
use crate::retry::{Backoff, RetryPolicy};
use crate::summary::PlanVerdict;
use crate::task::{Task, TaskState};
use crate::view::PlanView;

/// Log time of the seal of every plan built here, epoch ms.
pub const SEALED_MS: i64 = 1_700_000_000_000;
/// Pause after a failed try in [`spec`], in milliseconds.
pub const BACKOFF_MS: i64 = 10_000;
/// Deadline of [`spec`], milliseconds after the seal.
pub const DEADLINE_MS: i64 = 3_600_000;
/// Expiry of [`spec`], milliseconds after the seal.
pub const EXPIRES_MS: i64 = 86_400_000;

/// A JSON text.
pub fn json(text: &str) -> Json {
    Json::from(RawValue::from_string(text.to_owned()).expect("JSON"))
}

/// A plan with a policy of 3 tries 10 s apart without jitter, codes `BIZ_*` business.
pub fn spec() -> PlanSpec {
    PlanSpec {
        plan_id: PlanId::new("plan_1").unwrap(),
        title: None,
        business_key: None,
        kind: TypeRef { name: "echo".into(), version: 1 },
        input: json("{}"),
        deadline: Moment::AfterSealMs(DEADLINE_MS),
        expires: Moment::AfterSealMs(EXPIRES_MS),
        limits: Limits { in_flight: 100 },
        converge: Converge { min_success: 0.5, below: Below::Reserved },
        retry: RetryPolicy {
            max_attempts: 3,
            backoff_ms: Backoff::List(vec![BACKOFF_MS as u64]),
            jitter: 0.0,
            transient: vec!["NET_*".into(), "BIZ_BUT_LISTED_TWICE".into()],
            business: vec!["BIZ_*".into()],
        },
        timeouts: Timeouts { deliver_ms: 30_000, run_ms: 600_000, progress_ms: None },
        aggregates: Vec::new(),
        output_schema: json("true"),
        rules: crate::RULES_VERSION,
        content_sha256: "00".into(),
        traceparent: None,
    }
}

/// The `i`-th target, `T0`, `T1` ...
pub fn target(i: usize) -> TargetId {
    TargetId::new(&format!("T{i}")).unwrap()
}

/// The id of the `i`-th task of [`spec`]'s plan.
pub fn task_id(i: usize) -> TaskId {
    TaskId::parse(&format!("plan_1.T{i}.main")).unwrap()
}

/// Who says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// HQ.
    Hq,
    /// The target's own terminal.
    Own,
    /// Another terminal.
    Other,
}

/// An event and who says it.
pub type Said = (By, TaskEvent);

/// HQ's decisions, in short.
pub mod hq {
    use super::*;

    /// `task.dispatched`, to the target's own terminal (the story fills in which).
    pub fn dispatched(attempt: u32) -> Said {
        dispatched_to(attempt, "T0")
    }
    /// `task.dispatched` to a named terminal.
    pub fn dispatched_to(attempt: u32, terminal: &str) -> Said {
        let dispatched = Dispatched {
            protocol_version: crate::event::PROTOCOL_VERSION,
            attempt,
            terminal: TerminalId::new(terminal).unwrap(),
            journal: "journal".into(),
            boot: "boot".into(),
            kind: "echo".into(),
            version: 1,
            input: json("{}"),
            run_timeout_ms: 600_000,
        };
        (By::Hq, TaskEvent::Dispatched(Box::new(dispatched)))
    }
    /// `task.deferred`
    pub fn deferred(last_seen_ms: Option<i64>) -> Said {
        (By::Hq, TaskEvent::Deferred { last_seen_ms })
    }
    /// `task.released`
    pub fn released() -> Said {
        (By::Hq, TaskEvent::Released)
    }
    /// `task.attempt_timed_out`
    pub fn timed_out(attempt: u32, kind: TimeoutKind) -> Said {
        (By::Hq, TaskEvent::AttemptTimedOut { attempt, kind })
    }
    /// `task.attempt_lost`
    pub fn lost(attempt: u32) -> Said {
        (By::Hq, TaskEvent::AttemptLost { attempt })
    }
    /// `task.stop_requested`
    pub fn stop(attempt: u32) -> Said {
        (By::Hq, TaskEvent::StopRequested { attempt })
    }
    /// `task.cancel_requested`
    pub fn cancel(attempt: u32) -> Said {
        (By::Hq, TaskEvent::CancelRequested { attempt })
    }
    /// `task.cancelled`
    pub fn cancelled() -> Said {
        (By::Hq, TaskEvent::Cancelled)
    }
    /// `task.expired`
    pub fn expired(attempt: u32) -> Said {
        (By::Hq, TaskEvent::Expired { reason: ExpiryReason::Expired, attempt })
    }
    /// `task.requeued`
    pub fn requeued(request_seq: u64) -> Said {
        (By::Hq, TaskEvent::Requeued { request_seq })
    }
}

/// Reports of the target's own terminal, in short.
pub mod by {
    use super::*;

    /// `attempt.started`
    pub fn started(attempt: u32) -> Said {
        (By::Own, TaskEvent::Started { attempt })
    }
    /// `attempt.progressed`
    pub fn progressed(attempt: u32, k: u32) -> Said {
        (By::Own, TaskEvent::Progressed { attempt, k, step: format!("step {k}"), ms: 5 })
    }
    /// `attempt.succeeded` with a valid result `{"n":1}`
    pub fn succeeded(attempt: u32) -> Said {
        let verdict = Verdict { valid: true, errors: vec![] };
        (By::Own, TaskEvent::Succeeded { attempt, result: json(r#"{"n":1}"#), run_ms: Some(7), verdict })
    }
    /// `attempt.succeeded` with a result that breaks its schema at `/n`
    pub fn invalid(attempt: u32) -> Said {
        let verdict = Verdict { valid: false, errors: vec!["/n: is missing".into()] };
        (By::Own, TaskEvent::Succeeded { attempt, result: json("{}"), run_ms: None, verdict })
    }
    /// `attempt.failed`
    pub fn failed(attempt: u32, code: &str) -> Said {
        (By::Own, TaskEvent::Failed { attempt, code: code.into(), message: "m".into(), run_ms: None })
    }
    /// `attempt.rejected`
    pub fn rejected(attempt: u32, code: &str) -> Said {
        (By::Own, TaskEvent::Rejected { attempt, code: code.into(), message: "m".into() })
    }
    /// `attempt.stopped`
    pub fn stopped(attempt: u32) -> Said {
        (By::Own, TaskEvent::Stopped { attempt })
    }
}

/// Who asked, for requests of people.
pub fn asked() -> Asked {
    Asked { by: "ops".into(), reason: String::new() }
}

/// A plan and its log so far.
#[derive(Debug, Clone)]
pub struct Story {
    /// The folded plan.
    pub view: PlanView,
    /// Sequence of the last event.
    pub seq: u64,
    /// Log time of the next event, epoch ms.
    pub now_ms: i64,
    /// Every task event so far, to be folded again.
    pub log: Vec<(usize, LoggedTaskEvent)>,
}

impl Story {
    /// A sealed plan of [`spec`] with `count` targets.
    pub fn new(count: usize) -> Self {
        Self::with(count, |_| {})
    }

    /// The same with some of the specification changed.
    pub fn with(count: usize, change: impl FnOnce(&mut PlanSpec)) -> Self {
        let mut story = Self::unsealed(count, change);
        story.plan(PlanEvent::Sealed(Seal { count: count as u32, sha256: "ab".repeat(32), by: "ops".into() }));
        story
    }

    /// The same without the seal.
    pub fn unsealed(count: usize, change: impl FnOnce(&mut PlanSpec)) -> Self {
        let mut spec = spec();
        change(&mut spec);
        let submitted = LoggedPlanEvent { seq: 1, time_ms: SEALED_MS, event: PlanEvent::Submitted(Box::new(spec)) };
        let view = PlanView::begin(&submitted).expect("submitted");
        let mut story = Self { view, seq: 1, now_ms: SEALED_MS, log: Vec::new() };
        story.plan(PlanEvent::Targets { targets: (0..count).map(target).collect() });
        story
    }

    /// Sets the log time of what follows, milliseconds after the seal.
    pub fn at(&mut self, ms: i64) -> &mut Self {
        self.now_ms = SEALED_MS + ms;
        self
    }

    /// Appends a plan event.
    pub fn plan(&mut self, event: PlanEvent) -> &mut Self {
        self.seq += 1;
        self.view.apply_plan(&LoggedPlanEvent { seq: self.seq, time_ms: self.now_ms, event });
        self
    }

    /// Appends a summary of the plan as it is now.
    pub fn summarised(&mut self, revision: u32, kind: SummaryKind) -> &mut Self {
        let previous = self.view.plan.summary.as_ref().map(|(s, _, _)| s.this.clone());
        let this = SummaryRef { revision, as_of_seq: self.view.last_seq, sha256: "cd".repeat(32) };
        let counts = self.view.counts();
        let summarised = Summarised { this, kind, counts, previous, verdict: PlanVerdict::Reserved };
        self.plan(PlanEvent::Summarised(Box::new(summarised)))
    }

    /// Appends an event of the `i`-th task; a dispatch goes to the target's own terminal unless it names another than `T0`.
    pub fn say(&mut self, i: usize, said: &Said) -> Effect {
        self.seq += 1;
        let own = target(i).terminal();
        let mut event = said.1.clone();
        if let TaskEvent::Dispatched(d) = &mut event
            && d.terminal.as_str() == "T0"
        {
            d.terminal = own.clone();
        }
        let writer = match said.0 {
            By::Hq => Writer::Hq,
            By::Own => Writer::Terminal(own),
            By::Other => Writer::Terminal(TerminalId::new("other").unwrap()),
        };
        let logged = LoggedTaskEvent { seq: self.seq, time_ms: self.now_ms, writer, event };
        self.log.push((i, logged.clone()));
        self.view.apply_task(&target(i), &logged).expect("a sealed target").1
    }

    /// Appends several events of the `i`-th task.
    pub fn all(&mut self, i: usize, events: &[Said]) -> &mut Self {
        for said in events {
            self.say(i, said);
        }
        self
    }

    /// The `i`-th task.
    pub fn task(&self, i: usize) -> &Task {
        &self.view.tasks[i]
    }

    /// Appends one event of the first task, to be looked at.
    pub fn when(mut self, said: Said) -> When {
        let before = self.task(0).clone();
        let effect = self.say(0, &said);
        When { story: self, before, said, effect }
    }
}

/// A plan with one target and these events.
pub fn given(events: &[Said]) -> Story {
    let mut story = Story::new(1);
    story.all(0, events);
    story
}

/// What one event did to the first task.
#[derive(Debug)]
pub struct When {
    /// After it.
    pub story: Story,
    /// The task before it.
    pub before: Task,
    /// The event.
    pub said: Said,
    /// What the fold answered.
    pub effect: Effect,
}

impl When {
    /// Checks that a row applied and led to `state`; gives the task.
    #[track_caller]
    pub fn then(&self, state: TaskState) -> &Task {
        let task = self.story.task(0);
        assert_eq!((task.state, self.effect), (state, Effect::Applied), "after {:?} on {:?}", self.said, self.before);
        task
    }

    /// Checks that nothing changed but the count of `effect`, sequences, and the end of an attempt that isn't the live one.
    #[track_caller]
    pub fn absorbed(&self, effect: Effect) -> &Task {
        let task = self.story.task(0);
        assert_eq!(self.effect, effect, "after {:?} on {:?}", self.said, self.before);
        assert_only_counted(&self.before, task, effect);
        task
    }
}

/// Checks that two values of a task differ by one absorbed event at most.
#[track_caller]
pub fn assert_only_counted(before: &Task, after: &Task, effect: Effect) {
    let mut expected = before.clone();
    expected.seq = after.seq;
    expected.decision_seq = after.decision_seq;
    expected.created_ms = after.created_ms;
    assert!(!matches!(effect, Effect::Applied | Effect::Repeated), "{effect:?} is not a way to be absorbed");
    expected.absorbed_mut().count(effect);
    let live = before.state.is_live().then_some(before.attempt);
    let may_end = matches!(effect, Effect::Stale | Effect::Late);
    for (expected, after) in expected.attempts.as_mut_slice().iter_mut().zip(&after.attempts) {
        if may_end
            && expected.is_open()
            && Some(expected.number) != live
            && let (Some(outcome), Some(ended_ms)) = (after.outcome, after.ended_ms())
        {
            expected.end(ended_ms, outcome, after.error.as_deref(), after.class);
        }
    }
    assert_eq!(&expected, after);
}

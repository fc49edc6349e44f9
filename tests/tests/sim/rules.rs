//! What the log itself must keep to, message by message: the reference model is fed along, and every decision is held against what was
//! known before it.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_domain::event::TaskEvent;
use fanfold_domain::ids::TaskId;
use fanfold_domain::plan::{PlanEvent, PlanSpec, SummaryKind};
use fanfold_ledger::port::Stored;
use fanfold_model::{Model, Plan, Task};
use fanfold_wire::event::{Envelope, LogEvent, decode};

use super::confused::CONFUSED;

/// A log that was read to its end.
pub struct Judged {
    pub model: Model,
    pub broken: Vec<String>,
    specs: BTreeMap<String, PlanSpec>,
    /// Role to the incarnations that led it, the last one at the end.
    led: BTreeMap<String, Vec<String>>,
    /// Terminals that end their runs by themselves: they said goodbye.
    leavers: BTreeSet<String>,
    /// Tasks that were PENDING at some time since their last decision. A report that is stored between a dispatcher's look and its
    /// append carries no expectation, so a hand-out may meet a task that has just gone on; the table has a row for it.
    pending: BTreeSet<TaskId>,
}

/// Reads a log; `leavers`: terminals that said goodbye.
pub fn judge(log: &[Stored], leavers: &BTreeSet<String>) -> Judged {
    let mut judged = Judged {
        model: Model::new(),
        broken: Vec::new(),
        specs: BTreeMap::new(),
        led: BTreeMap::new(),
        leavers: leavers.clone(),
        pending: BTreeSet::new(),
    };
    for message in log {
        judged.message(message);
    }
    // What was written on purpose to break the rules breaks them.
    let confused = |m: &&Stored| Envelope::parse(&m.payload).is_ok_and(|e| e.source.as_deref() == Some(CONFUSED));
    let meant: Vec<String> = log.iter().filter(confused).map(|m| format!("seq {}:", m.seq)).collect();
    let violations = judged.model.violations();
    judged.broken.extend(violations.into_iter().filter(|v| !meant.iter().any(|m| v.starts_with(m))));
    if judged.model.garbage() > 0 {
        judged.broken.push(format!("{} messages that the model can't read", judged.model.garbage()));
    }
    judged
}

/// Tasks that are out, without those that came back to life by a late start: a hand-out may have been decided before.
fn out(plan: &Plan) -> u64 {
    let revived = |t: &&Task| t.attempt_of(t.attempt).is_some_and(|a| a.revived);
    let live = plan.tasks.values().filter(|t| t.is_live());
    live.filter(|t| !revived(t)).count() as u64
}

impl Judged {
    fn breaks(&mut self, m: &Stored, why: &str) {
        self.broken.push(format!("#{} {}: {why}\n{}", m.seq, m.subject, String::from_utf8_lossy(&m.payload)));
    }

    fn message(&mut self, m: &Stored) {
        let why = match decode(m.seq, m.time_ms, &m.subject, &m.payload) {
            Ok(LogEvent::Fence(_)) => self.fence(m),
            Ok(LogEvent::Plan(plan, logged)) => self.plan(m, plan.as_str(), &logged.event),
            Ok(LogEvent::Task(task, logged)) => self.task(m, &task, &logged.event),
            Err(error) => Some(format!("can't be read: {error}")),
        };
        if let Some(why) = why {
            self.breaks(m, &why);
        }
        self.model.feed(m.seq, m.time_ms, &m.subject, &m.payload);
        if let Ok(LogEvent::Task(task, logged)) = decode(m.seq, m.time_ms, &m.subject, &m.payload) {
            let state = self.model.plan(task.plan.as_str()).and_then(|p| p.tasks.get(task.target.as_str())).map(|t| t.state);
            if state == Some("PENDING") {
                self.pending.insert(task);
            } else if logged.event.is_decision() {
                self.pending.remove(&task);
            }
        }
    }

    /// Who was overtaken appends nothing any more.
    fn fence(&mut self, m: &Stored) -> Option<String> {
        let mut parts = m.id.split('/');
        let (role, incarnation) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let led = self.led.entry(role).or_default();
        if led.last() == Some(&incarnation) {
            return None;
        }
        let again = led.contains(&incarnation).then(|| format!("{incarnation} leads again after it was overtaken"));
        led.push(incarnation);
        again
    }

    fn plan(&mut self, m: &Stored, plan: &str, event: &PlanEvent) -> Option<String> {
        if let PlanEvent::Submitted(spec) = event {
            self.specs.insert(plan.to_owned(), (**spec).clone());
            return None;
        }
        let known = self.model.plan(plan)?;
        match event {
            PlanEvent::DeadlineReached => {
                let (_, sealed_ms) = known.sealed?;
                let due_ms = self.specs.get(plan)?.deadline.resolve(sealed_ms);
                (m.time_ms < due_ms).then(|| format!("{} ms before the deadline", due_ms - m.time_ms))
            }
            PlanEvent::Cancelled => known
                .tasks
                .values()
                .any(|t| !t.is_final() && !t.cancelling)
                .then(|| "a task is open and has no cancel decision".to_owned()),
            PlanEvent::Closed => (!known.all_final()).then(|| "closed while a task is open".to_owned()),
            PlanEvent::Summarised(s) => match s.kind {
                SummaryKind::Final if known.closed_seq != Some(s.this.as_of_seq) => {
                    Some(format!("as of {}, the plan was closed at {:?}", s.this.as_of_seq, known.closed_seq))
                }
                SummaryKind::Complete if !known.all_final() || known.deadline_seq.is_some() => Some("not complete".to_owned()),
                SummaryKind::Partial if known.deadline_seq.is_none() => Some("partial before the deadline".to_owned()),
                _ => None,
            },
            _ => None,
        }
    }

    fn task(&mut self, m: &Stored, task: &TaskId, event: &TaskEvent) -> Option<String> {
        let plan = self.model.plan(task.plan.as_str())?;
        let known = plan.tasks.get(task.target.as_str())?;
        if Envelope::parse(&m.payload).is_ok_and(|e| e.source.as_deref() == Some(CONFUSED)) {
            return None;
        }
        match event {
            TaskEvent::Dispatched(_) if known.seq > 0 && !self.pending.contains(task) => {
                Some(format!("handed out while {}", known.state))
            }
            TaskEvent::Dispatched(_) if m.time_ms < known.not_before_ms.0 => {
                Some(format!("handed out {} ms too soon", known.not_before_ms.0 - m.time_ms))
            }
            TaskEvent::Dispatched(_) if out(plan) >= plan.in_flight => {
                Some(format!("handed out although {} of {} are out", out(plan), plan.in_flight))
            }
            TaskEvent::Dispatched(_) if plan.cancel_seq.is_some() => Some("handed out after plan.cancelled".to_owned()),
            TaskEvent::Dispatched(_) if plan.closed_seq.is_some() => Some("handed out after plan.closed".to_owned()),
            TaskEvent::Stopped { attempt } if known.is_live() && *attempt == known.attempt && !known.cancelling => {
                // A newer attempt on its way is a reason, too.
                let newer = known.last_attempt > *attempt;
                let asked = newer || known.attempt_of(*attempt).is_some_and(|a| a.stop_requested);
                let leaves = self.leavers.contains(task.target.as_str());
                (!asked && !leaves).then(|| "stopped although nobody asked for it".to_owned())
            }
            _ => None,
        }
    }
}

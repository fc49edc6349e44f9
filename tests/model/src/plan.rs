//! One plan: its sealed list, its tasks, and what was said about it as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::message::PlanSaid;
use crate::task::Task;

/// The eight sets.
pub const SETS: [&str; 8] = ["succeeded", "failed", "invalid", "timedOut", "offline", "running", "pending", "cancelled"];

/// What the plan says about retries and ends; pinned with its submission, but for the closing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    pub(crate) max_attempts: u32,
    pub(crate) backoff_ms: Value,
    pub(crate) jitter: f64,
    pub(crate) business: Vec<String>,
    pub(crate) closed_seq: Option<u64>,
    /// How far a writer's clock may be from the log's, in milliseconds.
    pub(crate) clocks_apart_ms: i64,
}

impl Policy {
    /// Whether a code must not be retried: an entry names it, or its beginning with `*`.
    pub(crate) fn is_business(&self, code: &str) -> bool {
        self.business.iter().any(|pattern| match pattern.split_once('*') {
            Some((beginning, "")) => code.starts_with(beginning),
            _ => pattern == code,
        })
    }

    /// Shortest and longest pause after so many failed tries, in milliseconds.
    pub(crate) fn pause_ms(&self, tries: u32) -> (i64, i64) {
        let base = match &self.backoff_ms {
            Value::Array(list) => {
                let at = (tries.max(1) as usize - 1).min(list.len().saturating_sub(1));
                list.get(at).and_then(Value::as_f64).unwrap_or(0.0)
            }
            object => {
                let number = |name: &str| object[name].as_f64().unwrap_or(0.0);
                let grown = number("baseMs") * number("factor").powi(tries.max(1) as i32 - 1);
                grown.min(number("maxMs"))
            }
        };
        let spread = base * self.jitter.clamp(0.0, 1.0);
        ((base - spread).floor() as i64, (base + spread).ceil() as i64)
    }
}

/// A published summary, as its event says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Sequence of its event.
    pub seq: u64,
    /// Log time of its event, epoch ms.
    pub time_ms: i64,
    /// From 1.
    pub revision: u32,
    /// `complete`, `partial`, `update` or `final`.
    pub kind: String,
    /// Position of the log that it describes.
    pub as_of_seq: u64,
    /// Digest of the document, hex.
    pub sha256: String,
    /// The eight sets.
    pub counts: BTreeMap<String, u64>,
    /// `full`, `reserved` or `failed`.
    pub verdict: String,
    /// The one before, as this one names it: revision, position, digest.
    pub previous: Option<(u32, u64, String)>,
}

impl Summary {
    pub(crate) fn read(said: &PlanSaid) -> Option<Self> {
        let data = &said.value;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let small = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let counts = data["counts"].as_object()?.iter().map(|(set, n)| Some((set.clone(), n.as_u64()?)));
        let previous = match &data["previous"] {
            Value::Null => None,
            p => Some((small(&p["revision"])?, p["asOfSeq"].as_u64()?, text(&p["sha256"])?)),
        };
        Some(Self {
            seq: said.seq,
            time_ms: said.time_ms,
            revision: small(&data["revision"])?,
            kind: text(&data["kind"])?,
            as_of_seq: data["asOfSeq"].as_u64()?,
            sha256: text(&data["sha256"])?,
            counts: counts.collect::<Option<_>>()?,
            verdict: text(&data["verdict"])?,
            previous,
        })
    }
}

/// One plan as the log says it is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Id.
    pub id: String,
    /// The target list, in the order it was sealed.
    pub targets: Vec<String>,
    /// Tasks by target.
    pub tasks: BTreeMap<String, Task>,
    /// Sequence and log time (epoch ms) of `plan.sealed`.
    pub sealed: Option<(u64, i64)>,
    /// Sequence of `plan.deadline_reached`.
    pub deadline_seq: Option<u64>,
    /// Sequence of the first `plan.cancel_requested`.
    pub cancel_request_seq: Option<u64>,
    /// Sequence of `plan.cancelled`.
    pub cancel_seq: Option<u64>,
    /// Sequence of the first `plan.close_requested`.
    pub close_seq: Option<u64>,
    /// Sequence of `plan.closed`.
    pub closed_seq: Option<u64>,
    /// Whether hand-outs are paused.
    pub paused: bool,
    /// Tasks of this plan that may be out at once.
    pub in_flight: u64,
    /// Every summary, in order.
    pub summaries: Vec<Summary>,
    /// Requeue requests: sequence and the event's data.
    pub requeues: Vec<(u64, Value)>,
    /// Events about targets that are not in the list.
    pub unknown: u32,
    /// Sequence of the last event of the plan or of its tasks.
    pub last_seq: u64,
    /// Sequence of the last event of the plan itself.
    pub plan_seq: u64,
    /// `plan.submitted`'s data.
    pub submitted: Value,
    pub(crate) policy: Policy,
    /// Targets of tasks that are out.
    pub(crate) out: BTreeSet<String>,
    /// Targets of tasks that have an attempt to be stopped.
    pub(crate) out_beside: BTreeSet<String>,
    /// Who is in which set, as it changed.
    pub(crate) changes: Vec<Change>,
    /// Sequences of every event of the plan and its tasks.
    pub(crate) event_seqs: Vec<u64>,
    /// Sequence at which hand-outs were paused, while they are.
    pub(crate) paused_seq: Option<u64>,
    /// Limits that were in force before, and until when (epoch ms) a hand-out decided under one may still come in.
    pub(crate) former_limits: Vec<(u64, i64)>,
    /// Digest of the content of each report, by its id.
    pub(crate) report_ids: BTreeMap<String, [u8; 32]>,
    /// Targets of the chunks as they came, repeated ones too.
    pub(crate) listed: Vec<String>,
}

/// One task went from one set to another, or ended, or was opened again.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) seq: u64,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// 1: it was opened; -1: it ended; 0.
    pub(crate) opened: i64,
}

/// How long a hand-out decided under a limit that was lowered meanwhile may be under way, in milliseconds.
const LIMIT_SETTLES_MS: i64 = 5_000;

impl Plan {
    /// Begins with `plan.submitted`.
    pub(crate) fn begin(id: &str, said: &PlanSaid, clocks_apart_ms: i64) -> Option<Self> {
        let data = &said.value;
        let retry = &data["retry"];
        let codes = |value: &Value| value.as_array().map(|l| l.iter().filter_map(|c| c.as_str().map(str::to_owned)).collect());
        let policy = Policy {
            max_attempts: u32::try_from(retry["maxAttempts"].as_u64()?).ok()?,
            backoff_ms: retry["backoffMs"].clone(),
            jitter: retry["jitter"].as_f64()?,
            business: codes(&retry["business"])?,
            closed_seq: None,
            clocks_apart_ms,
        };
        Some(Self {
            id: id.to_owned(),
            targets: Vec::new(),
            tasks: BTreeMap::new(),
            sealed: None,
            deadline_seq: None,
            cancel_request_seq: None,
            cancel_seq: None,
            close_seq: None,
            closed_seq: None,
            paused: false,
            in_flight: data["limits"]["inFlight"].as_u64()?,
            summaries: Vec::new(),
            requeues: Vec::new(),
            unknown: 0,
            last_seq: said.seq,
            plan_seq: said.seq,
            submitted: data.clone(),
            policy,
            out: BTreeSet::new(),
            out_beside: BTreeSet::new(),
            changes: Vec::new(),
            event_seqs: vec![said.seq],
            paused_seq: None,
            former_limits: Vec::new(),
            report_ids: BTreeMap::new(),
            listed: Vec::new(),
        })
    }

    /// Notes how a task counts against the caps.
    pub(crate) fn note_out(&mut self, target: &str) {
        let Some(task) = self.tasks.get(target) else { return };
        let note = |set: &mut BTreeSet<String>, is_in: bool| {
            if !is_in {
                set.remove(target);
            } else if !set.contains(target) {
                set.insert(target.to_owned());
            }
        };
        note(&mut self.out, task.is_live());
        note(&mut self.out_beside, task.open_beside().next().is_some());
    }

    /// Notes where a task of the plan went with an event.
    pub(crate) fn note_change(&mut self, seq: u64, before: (&'static str, bool), after: (&'static str, bool)) {
        if before != after {
            let opened = i64::from(before.1) - i64::from(after.1);
            self.changes.push(Change { seq, from: before.0, to: after.0, opened });
        }
    }

    /// The eight sets as they were at a position of the log, and how many tasks had not ended.
    pub(crate) fn sets_at(&self, seq: u64) -> (BTreeMap<&'static str, u64>, i64) {
        let mut sets = self.sets();
        let mut open = self.tasks.values().filter(|t| !t.is_final()).count() as i64;
        for change in self.changes.iter().rev().take_while(|c| c.seq > seq) {
            open -= change.opened;
            let back = sets.entry(change.to).or_default();
            *back = back.saturating_sub(1);
            *sets.entry(change.from).or_default() += 1;
        }
        (sets, open)
    }

    /// Moment of the plan that is given in its submission as `{"atMs"}` or `{"afterSealMs"}`, epoch ms.
    pub(crate) fn moment_ms(&self, name: &str) -> Option<i64> {
        let moment = &self.submitted[name];
        let after = || Some(self.sealed?.1.saturating_add(moment["afterSealMs"].as_i64()?));
        moment["atMs"].as_i64().or_else(after)
    }

    /// The eight sets; they add up to the target list.
    pub fn sets(&self) -> BTreeMap<&'static str, u64> {
        let mut sets: BTreeMap<&'static str, u64> = SETS.iter().map(|set| (*set, 0)).collect();
        for task in self.tasks.values() {
            *sets.entry(task.set(self.deadline_seq.is_some())).or_default() += 1;
        }
        sets
    }

    /// The set of a target's task; `pending` if there is no such target.
    pub fn set_of(&self, target: &str) -> &'static str {
        self.tasks.get(target).map_or("pending", |task| task.set(self.deadline_seq.is_some()))
    }

    /// Whether the final summary is in the log.
    pub fn is_over(&self) -> bool {
        self.summaries.iter().any(|s| s.kind == "final")
    }

    /// Whether every task has ended.
    pub fn all_final(&self) -> bool {
        self.sealed.is_some() && self.tasks.values().all(Task::is_final)
    }

    /// Tasks that are out.
    pub fn live(&self) -> usize {
        self.tasks.values().filter(|task| task.is_live()).count()
    }

    /// What was folded without effect, over all tasks: duplicate, stale, late, foreign, ignored.
    pub fn absorbed(&self) -> [u32; 5] {
        let mut sum = [0, 0, 0, self.unknown, 0];
        for a in self.tasks.values().map(|t| &t.absorbed) {
            for (sum, one) in sum.iter_mut().zip([a.duplicate, a.stale, a.late, a.foreign, a.ignored]) {
                *sum += one;
            }
        }
        sum
    }

    /// Takes an event of the plan; `false` if it can't be read.
    pub(crate) fn take(&mut self, said: &PlanSaid) -> bool {
        let first = |slot: &mut Option<u64>| {
            slot.get_or_insert(said.seq);
        };
        match said.name.as_str() {
            "submitted" => {}
            "targets" => {
                let Some(list) = said.value["targets"].as_array() else { return false };
                if self.sealed.is_none() {
                    self.add_targets(list);
                }
            }
            "sealed" => {
                self.sealed.get_or_insert((said.seq, said.time_ms));
            }
            "paused" => {
                self.paused = true;
                self.paused_seq.get_or_insert(said.seq);
            }
            "resumed" => {
                self.paused = false;
                self.paused_seq = None;
            }
            "limits_changed" => match said.value["inFlight"].as_u64() {
                Some(in_flight) => {
                    self.former_limits.push((self.in_flight, said.time_ms.saturating_add(LIMIT_SETTLES_MS)));
                    self.in_flight = in_flight;
                }
                None => return false,
            },
            "cancel_requested" => first(&mut self.cancel_request_seq),
            "cancelled" => first(&mut self.cancel_seq),
            "close_requested" => first(&mut self.close_seq),
            "closed" => {
                first(&mut self.closed_seq);
                first(&mut self.policy.closed_seq);
            }
            "deadline_reached" => self.reach_deadline(said.seq),
            "requeue_requested" => self.requeues.push((said.seq, said.value.clone())),
            "summarised" => match Summary::read(said) {
                Some(summary) => self.summaries.push(summary),
                None => return false,
            },
            _ => return false,
        }
        self.plan_seq = said.seq;
        self.last_seq = said.seq;
        self.event_seqs.push(said.seq);
        true
    }

    fn reach_deadline(&mut self, seq: u64) {
        if self.deadline_seq.is_some() {
            return;
        }
        self.deadline_seq = Some(seq);
        let seen = |task: &Task, after| (task.set(after), task.is_final());
        let moved: Vec<_> = self.tasks.values().map(|task| (seen(task, false), seen(task, true))).collect();
        moved.into_iter().for_each(|(before, after)| self.note_change(seq, before, after));
    }

    fn add_targets(&mut self, list: &[Value]) {
        for target in list.iter().filter_map(Value::as_str) {
            self.listed.push(target.to_owned());
            if !self.tasks.contains_key(target) {
                self.targets.push(target.to_owned());
                self.tasks.insert(target.to_owned(), Task::new(&self.id, target));
            }
        }
    }
}

//! The handlers' own account: no attempt ran twice, no two attempts of a task at once, what was done is in the log, and what the log calls
//! done was done.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_terminal::host::{Execution, Moment};
use fanfold_wire::event::report_id;
use fanfold_wire::terminal::ReportStatus;
use serde_json::Value;

use super::plans::PlanAccount;
use super::{Findings, in_log};
use crate::chaos::ground::{Ground, SLOTS};
use crate::chaos::tap::Answered;
use crate::chaos::watch::Watch;
use crate::fleet::Fleet;
use crate::hand::succeeded;

/// One run of a handler.
#[derive(Debug)]
pub(super) struct Run {
    task: TaskId,
    attempt: u32,
    terminal: TerminalId,
    process: u32,
    begin_us: i64,
    end_us: i64,
    /// What it returned, if it was good.
    done: Option<String>,
    /// Its process was killed and this was among the last it did, or it was put out of service for ever.
    cut_off: bool,
}

impl Run {
    /// Id of the report that it succeeded.
    fn success_id(&self) -> String {
        report_id(&self.task, &self.terminal, &succeeded(self.attempt, &Value::Null))
    }

    fn told(&self) -> String {
        let (task, attempt, process) = (&self.task, self.attempt, self.process);
        let done = if self.done.is_some() { "done" } else { "not done" };
        format!("{task} attempt {attempt} in process {process}, {} to {} us, {done}", self.begin_us, self.end_us)
    }
}

/// Every run of every terminal and twin.
pub(super) fn of(ground: &Ground) -> Vec<Run> {
    let stores = ground.stores.values().map(|s| (&s.fleet, s.retired));
    stores.chain(ground.twins.iter().map(|(_, f)| (f, false))).flat_map(|(fleet, retired)| of_fleet(fleet, retired)).collect()
}

fn of_fleet(fleet: &Fleet, retired: bool) -> Vec<Run> {
    let account = fleet.account();
    let mut ends: HashMap<(u32, u64), &Execution> = HashMap::new();
    let mut by_process: BTreeMap<u32, Vec<(i64, u64)>> = BTreeMap::new();
    for line in account.lines().iter().filter(|l| l.moment != Moment::Begin) {
        ends.insert((line.process, line.run), line);
        by_process.entry(line.process).or_default().push((line.at_us, line.run));
    }
    // What a kill may have cut off: the runs that were open, and as many that had just ended.
    let mut last: BTreeSet<(u32, u64)> = BTreeSet::new();
    for (process, _) in fleet.killed() {
        let ended = by_process.entry(*process).or_default();
        ended.sort_unstable();
        last.extend(ended.iter().rev().take(2 * SLOTS as usize).map(|(_, run)| (*process, *run)));
    }
    let run = |line: &Execution| {
        let end = ends.get(&(line.process, line.run));
        Run {
            task: TaskId::parse(&line.task).expect("a task id"),
            attempt: line.attempt,
            terminal: TerminalId::new(&line.terminal).expect("a terminal id"),
            process: line.process,
            begin_us: line.at_us,
            end_us: end.map_or(i64::MAX, |e| e.at_us),
            done: end.filter(|e| e.moment == Moment::Done).map(|e| e.result.clone().unwrap_or_default()),
            cut_off: retired || last.contains(&(line.process, line.run)),
        }
    };
    account.lines().iter().filter(|l| l.moment == Moment::Begin).map(run).collect()
}

/// Whether its plan was closed so soon after it that its report may have come too late, with the refusal not heard on the wire: what the
/// listener misses is not judged. A recorder that is away keeps reports waiting that long.
fn came_too_late(watch: &Watch, run: &Run) -> bool {
    const LATE_US: i64 = 15_000_000;
    let closed_us = watch.plans.get(&run.task.plan).and_then(|v| v.plan.close.as_ref()).map(|(_, _, at_ms)| at_ms * 1_000);
    closed_us.is_some_and(|closed_us| closed_us < run.end_us.saturating_add(LATE_US))
}

/// Judges the runs by themselves and against the log.
pub(super) fn judge(runs: &[Run], watch: &Watch, answered: &[Answered], found: &mut Findings) {
    let refused: HashMap<&str, &Answered> =
        answered.iter().filter(|a| a.status == ReportStatus::Refused).map(|a| (a.id.as_str(), a)).collect();
    let mut tasks: BTreeMap<&TaskId, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        tasks.entry(&run.task).or_default().push(run);
        found.check(run.terminal.as_str() == &*run.task.target.to_string(), || format!("at another terminal: {}", run.told()));
    }
    let (mut lost, mut turned_away) = (0, 0);
    for of_task in tasks.values_mut() {
        of_task.sort_by_key(|r| (r.begin_us, r.end_us));
        let mut seen = BTreeSet::new();
        for run in of_task.iter() {
            found.check(seen.insert(run.attempt), || format!("ran twice: {}", run.told()));
        }
        for pair in of_task.windows(2) {
            found.check(pair[1].begin_us >= pair[0].end_us, || format!("at once: {} and {}", pair[0].told(), pair[1].told()));
        }
        for run in of_task.iter().filter(|r| r.done.is_some()) {
            let id = run.success_id();
            if in_log(watch, &id) {
                let again: Vec<String> = of_task.iter().filter(|r| r.begin_us >= run.end_us).map(|r| r.told()).collect();
                found.check(again.is_empty(), || {
                    format!("ran again after a success that is in the log: {}: {again:?}", run.told())
                });
            } else if refused.contains_key(id.as_str()) || came_too_late(watch, run) {
                turned_away += 1;
            } else {
                // Done, and killed before it could be written down: nobody was ever told.
                lost += 1;
                found.check(run.cut_off, || format!("done, never killed, and not in the log: {}", run.told()));
            }
        }
    }
    judge_claims(runs, watch, found);
    let done = runs.iter().filter(|r| r.done.is_some()).count();
    let cut = runs.iter().filter(|r| r.done.is_none() && r.cut_off).count();
    found.compared.push(format!(
        "{} runs of {} tasks, {done} done: none twice, none at once; {cut} cut off by a kill, {lost} killed between done and written down, {turned_away} turned away after their plan's end",
        runs.len(),
        tasks.len()
    ));
}

/// Whatever the log says succeeded was done by a handler.
fn judge_claims(runs: &[Run], watch: &Watch, found: &mut Findings) {
    let done: BTreeSet<String> = runs.iter().filter(|r| r.done.is_some()).map(Run::success_id).collect();
    for (id, seq) in watch.ids.iter().filter(|(id, _)| id.ends_with("/attempt.succeeded")) {
        found.check(done.contains(id), || format!("#{seq} {id}: no handler did that"));
    }
    let claimed = watch.ids.keys().filter(|id| id.ends_with("/attempt.succeeded")).count();
    found.check(claimed > 0, || "the log has no success".to_owned());
}

/// The results HQ shows are what the handlers returned.
pub(super) fn judge_results(runs: &[Run], accounts: &[PlanAccount], found: &mut Findings) {
    let mut returned: HashMap<String, Vec<Value>> = HashMap::new();
    for run in runs {
        if let Some(result) = &run.done {
            let value = serde_json::from_str(result).unwrap_or_default();
            returned.entry(run.task.to_string()).or_default().push(value);
        }
    }
    for account in accounts {
        for (task, result) in &account.results {
            let known = returned.get(task).is_some_and(|all| all.contains(result));
            found.check(known, || format!("{task}: HQ shows {result}, the handlers returned {:?}", returned.get(task)));
        }
    }
}

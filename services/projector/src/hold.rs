//! Records that may wait. While much changes at once, the record of a task that has not ended is written a while later: most such
//! tasks have ended by then, and are written once instead of twice.
//!
//! Nobody is misled by it: readers are told of open plans from the fold, and a projector that starts writes every open plan's records
//! anew, so what was held by one that died is not missed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fanfold_domain::bits::Bits;
use fanfold_domain::ids::PlanId;
use fanfold_ledger::open::Changes;
use tokio::time::Instant;

/// With up to so many changed tasks in a flush nothing waits.
pub(crate) const BUSY_TASKS: usize = 1_000;

/// See the module. Bounded by the tasks of the open plans.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    tasks: BTreeMap<PlanId, BTreeSet<u32>>,
    /// Since when the longest held one waits.
    since: Option<Instant>,
}

impl Hold {
    /// What is to be written now of what changed and of what waited; nothing waits longer than `most`. `plan_of` tells whether a plan
    /// is over and which of its tasks have ended; `None`: the fold does not have it.
    pub(crate) fn pass<'v>(
        &mut self,
        mut taken: Changes,
        most: Duration,
        now: Instant,
        plan_of: impl Fn(&PlanId) -> Option<(bool, &'v Bits)>,
    ) -> Changes {
        let changed: usize = taken.values().map(|change| change.tasks.len()).sum();
        let all = changed <= BUSY_TASKS || self.since.unwrap_or(now) + most <= now;
        if all {
            self.since = None;
            for (plan, tasks) in std::mem::take(&mut self.tasks) {
                // The fold lets a plan go only when everything of it is written.
                if plan_of(&plan).is_some() {
                    merge(&mut taken.entry(plan).or_default().tasks, tasks);
                }
            }
            return taken;
        }
        for (plan, change) in &mut taken {
            let waiting = self.tasks.remove(plan).unwrap_or_default();
            let Some((over, ended)) = plan_of(plan) else { continue };
            if change.whole || over {
                merge(&mut change.tasks, waiting);
                continue;
            }
            let (write, wait): (BTreeSet<u32>, BTreeSet<u32>) =
                change.tasks.iter().copied().chain(waiting).partition(|task| ended.contains(*task as usize));
            change.tasks = write.into_iter().collect();
            if !wait.is_empty() {
                self.tasks.insert(plan.clone(), wait);
            }
        }
        self.since = (!self.tasks.is_empty()).then(|| self.since.unwrap_or(now));
        taken
    }
}

fn merge(tasks: &mut Vec<u32>, more: BTreeSet<u32>) {
    if !more.is_empty() {
        *tasks = tasks.drain(..).chain(more).collect::<BTreeSet<u32>>().into_iter().collect();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fanfold_ledger::open::PlanChange;

    use super::*;

    const MOST: Duration = Duration::from_secs(3);

    fn plan(name: &str) -> PlanId {
        PlanId::new(name).unwrap()
    }

    fn changed(name: &str, tasks: std::ops::Range<u32>) -> Changes {
        Changes::from([(plan(name), PlanChange { whole: false, plan: false, tasks: tasks.collect() })])
    }

    /// Tasks of which every second one has ended.
    fn every_second() -> Bits {
        let mut ended = Bits::default();
        for task in (0..4_000).step_by(2) {
            ended.set(task, true);
        }
        ended
    }

    fn written(changes: &Changes, name: &str) -> usize {
        changes.get(&plan(name)).map_or(0, |change| change.tasks.len())
    }

    #[test]
    fn while_little_changes_nothing_waits() {
        let (mut hold, ended) = (Hold::default(), Bits::default());
        let passed = hold.pass(changed("p", 0..1_000), MOST, Instant::now(), |_| Some((false, &ended)));
        assert_eq!(written(&passed, "p"), 1_000);
    }

    #[test]
    fn what_has_not_ended_waits_until_it_ends_or_it_is_quiet_or_it_has_waited_long() {
        let (mut hold, ended, now) = (Hold::default(), every_second(), Instant::now());
        let passed = hold.pass(changed("p", 0..2_000), MOST, now, |_| Some((false, &ended)));
        assert!(passed[&plan("p")].tasks.iter().all(|task| task % 2 == 0) && written(&passed, "p") == 1_000);
        // Meanwhile all have ended, and others change.
        let mut all = Bits::default();
        for task in 0..2_000 {
            all.set(task, true);
        }
        let passed = hold.pass(changed("p", 2_000..4_000), MOST, now, |_| Some((false, &all)));
        assert_eq!(passed[&plan("p")].tasks, (1..2_000).step_by(2).collect::<Vec<u32>>(), "once each, those that have ended");
        let passed = hold.pass(changed("p", 0..1_500), MOST, now + MOST, |_| Some((false, &ended)));
        assert_eq!(written(&passed, "p"), 3_500, "busy still, but it has waited long");

        drop(hold.pass(changed("p", 0..2_000), MOST, now, |_| Some((false, &ended))));
        let quiet = hold.pass(Changes::new(), MOST, now, |_| Some((false, &ended)));
        assert_eq!(written(&quiet, "p"), 1_000);
        assert!(hold.pass(Changes::new(), MOST, now, |_| Some((false, &ended))).is_empty(), "once");
    }

    #[test]
    fn a_plan_that_is_over_is_written_whole_and_one_that_is_gone_not_at_all() {
        let (mut hold, ended, now) = (Hold::default(), every_second(), Instant::now());
        drop(hold.pass(changed("p", 0..2_000), MOST, now, |_| Some((false, &ended))));
        let passed = hold.pass(changed("p", 0..1_100), MOST, now, |_| Some((true, &ended)));
        assert_eq!(written(&passed, "p"), 1_100 + 450, "with what waited");

        drop(hold.pass(changed("q", 0..2_000), MOST, now, |_| Some((false, &ended))));
        assert!(hold.pass(Changes::new(), MOST, now, |_| None).is_empty());
        assert_eq!(written(&hold.pass(changed("q", 0..2_000), Duration::ZERO, now, |_| Some((false, &ended))), "q"), 2_000);
    }
}

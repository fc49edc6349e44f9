//! Which faults and which rows of the state table were visited, over all seeds: a simulation that never goes somewhere says nothing
//! about it, so that one that doesn't fails.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fanfold_tests::world::Role;
use fanfold_tests::world::handle::{Op, When};
use fanfold_tests::world::terminal::Step;

use super::trace;

thread_local! {
    static HIT: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// How often something happened.
pub type Counts = BTreeMap<String, u64>;

/// Every fault there is, beside the crashes of services.
pub const FAULTS: &[&str] = &[
    "append: answer lost",
    "append: nothing stored",
    "append: log full",
    "append: log full for a while",
    "append: one member refused",
    "delivery: command late",
    "delivery: command twice",
    "delivery: command out of order",
    "delivery: command lost",
    "delivery: report late",
    "delivery: report twice",
    "delivery: report out of order",
    "delivery: report lost",
    "delivery: sync late",
    "delivery: sync twice",
    "delivery: sync out of order",
    "delivery: sync lost",
    "delivery: beat late",
    "delivery: beat twice",
    "delivery: beat out of order",
    "delivery: beat lost",
    "delivery: answer late",
    "delivery: answer twice",
    "delivery: answer out of order",
    "delivery: answer lost",
    "hq: a service killed",
    "hq: everything killed, a new fold",
    "hq: away for an hour",
    "hq: a second recorder and api",
    "hq: dispatcher frozen past its lease, overtaken, thawed",
    "hq: convergence frozen past its lease, overtaken, thawed",
    "hq: projector frozen past its lease, overtaken, thawed",
    "hq: the fold's tail frozen (stale view)",
    "server: away",
    "server: reconnect",
    "terminal: killed",
    "terminal: goodbye",
    "terminal: crash, command received",
    "terminal: crash, begin written",
    "terminal: crash, started",
    "terminal: crash, working",
    "terminal: crash, ended, not written",
    "terminal: crash, finished",
    "terminal: crash, reported",
    "terminal: crash, answered",
    "terminal: crash, answer noted",
    "terminal: crash, forgetting",
    "terminal: held up at a step",
    "terminal: journal lost",
    "terminal: journal full",
    "terminal: line cut",
    "terminal: twin with a disk of its own",
    "terminal: twin with a copied disk",
    "terminal: replaced by a person",
    "terminal: offline past the deadline",
    "terminal: offline past expiry",
    "terminal: offline for ever",
    "terminal: clock off by hours",
    "report: garbage",
    "report: foreign",
    "report: conflicting",
    "report: foreign, written past the recorder",
    "hq: a confused writer",
    "person: cancel",
    "person: close",
    "person: requeue",
];

/// Points at which services crash.
pub const CRASHES: &[(Role, Op, When, &str)] = &[
    (Role::Api, Op::Atomic, When::Before, "crash: api before a plan is stored"),
    (Role::Api, Op::Atomic, When::After, "crash: api after a plan is stored"),
    (Role::Api, Op::Append, When::Before, "crash: api before a request is stored"),
    (Role::Api, Op::Append, When::After, "crash: api after a request is stored"),
    (Role::Recorder, Op::Append, When::Before, "crash: recorder before reports are stored"),
    (Role::Recorder, Op::Append, When::After, "crash: recorder after reports are stored"),
    (Role::Recorder, Op::Publish, When::After, "crash: recorder after an answer"),
    (Role::Dispatcher, Op::Fence, When::Before, "crash: dispatcher before it takes the lead"),
    (Role::Dispatcher, Op::Fence, When::After, "crash: dispatcher after it took the lead"),
    (Role::Dispatcher, Op::Fenced, When::Before, "crash: dispatcher between deciding and appending"),
    (Role::Dispatcher, Op::Fenced, When::After, "crash: dispatcher after appending"),
    (Role::Dispatcher, Op::Registry, When::Before, "crash: dispatcher before the registry is written"),
    (Role::Dispatcher, Op::Registry, When::After, "crash: dispatcher after the registry was written"),
    (Role::Convergence, Op::Fence, When::Before, "crash: convergence before it takes the lead"),
    (Role::Convergence, Op::Fence, When::After, "crash: convergence after it took the lead"),
    (Role::Convergence, Op::Object, When::Before, "crash: convergence before a summary's document"),
    (Role::Convergence, Op::Object, When::After, "crash: convergence between a summary's document and its event"),
    (Role::Convergence, Op::Fenced, When::Before, "crash: convergence between deciding and appending"),
    (Role::Convergence, Op::Fenced, When::After, "crash: convergence after appending"),
    (Role::Projector, Op::PutState, When::Before, "crash: projector before records"),
    (Role::Projector, Op::PutState, When::After, "crash: projector between records"),
    (Role::Projector, Op::Checkpoint, When::Before, "crash: projector between records and checkpoint"),
    (Role::Projector, Op::Checkpoint, When::After, "crash: projector after the checkpoint"),
];

/// The name of a terminal's crash at a step.
pub fn crash_of(step: Step) -> &'static str {
    match step {
        Step::Received => "terminal: crash, command received",
        Step::Begun => "terminal: crash, begin written",
        Step::Started => "terminal: crash, started",
        Step::Working => "terminal: crash, working",
        Step::Ended => "terminal: crash, ended, not written",
        Step::Finished => "terminal: crash, finished",
        Step::Reported => "terminal: crash, reported",
        Step::Answered => "terminal: crash, answered",
        Step::Settled => "terminal: crash, answer noted",
        Step::Forgotten => "terminal: crash, forgetting",
    }
}

/// Something went wrong, as planned.
pub fn fault(name: &'static str) {
    HIT.with_borrow_mut(|hit| *hit.entry(name).or_default() += 1);
    trace::say("FAULT", || name.to_owned());
}

/// Takes what this thread has counted.
pub fn take() -> BTreeMap<&'static str, u64> {
    HIT.take()
}

/// Every name that must be visited.
pub fn faults() -> impl Iterator<Item = &'static str> {
    FAULTS.iter().copied().chain(CRASHES.iter().map(|(.., name)| *name))
}

/// Adds counts to counts.
pub fn add(to: &mut Counts, more: &Counts) {
    for (name, count) in more {
        *to.entry(name.clone()).or_default() += count;
    }
}

/// Those of these names that were never counted.
pub fn missed<'a>(names: impl Iterator<Item = &'a str>, counts: &Counts) -> Vec<&'a str> {
    names.filter(|name| counts.get(*name).copied().unwrap_or(0) == 0).collect()
}

//! What a task costs in memory: live bytes of a view folded from stored messages, and what a copy of it and a summary take beside it.
//!
//! Counted at the allocator, so the figures are the same on every machine. One test: nothing else may allocate meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "support/folded.rs"]
mod folded;

use fanfold_domain::event::TaskEvent;
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::summary::{PIECE_BYTES, Summary};
use fanfold_wire::digest::Sha256Stream;
use folded::{Folded, aggregates, dispatched, result, succeeded};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TASKS: usize = 20_000;

/// Live bytes a task beyond those before.
fn per_task(before: usize) -> usize {
    HEAP.current_usage().saturating_sub(before) / TASKS
}

/// Most bytes beyond those that were live before, while it ran.
fn extra<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let done = work();
    (done, HEAP.peak_usage().saturating_sub(before))
}

#[test]
fn a_task_costs_what_is_kept_of_it_and_a_summary_next_to_nothing() {
    let before = HEAP.current_usage();
    let mut folded = Folded::sealed(TASKS, aggregates());
    let sealed = per_task(before);
    folded.all(|_| TaskEvent::Deferred { last_seen_ms: None });
    let offline = per_task(before);
    folded.all(dispatched);
    let out = per_task(before);
    folded.all(succeeded);
    let done = per_task(before) - result(0).get().len();
    eprintln!("bytes a task: sealed {sealed}, offline {offline}, out {out}, done {done} and its result");
    assert!(sealed <= 210 && offline <= 210 && out <= 310 && done <= 330, "{sealed} {offline} {out} {done}");

    let (copy, copied) = extra(|| folded.view.clone());
    let (size, written) = extra(|| {
        let summary = Summary::compute(&copy, SummaryKind::Complete).unwrap();
        let mut sha256 = Sha256Stream::default();
        summary.pieces().map(|piece| piece.map(|piece| (sha256.update(&piece), piece.len()).1).unwrap()).sum::<usize>()
    });
    eprintln!("a copy takes {copied} bytes, a summary of {size} bytes {written}");
    assert!(copied <= 8 * TASKS, "a copy of the view shares its tasks: {copied} bytes");
    // Some numbers a task for the percentile, and pieces that come and go.
    assert!(size > 350 * TASKS && written <= 4 * PIECE_BYTES + 16 * TASKS, "{written} bytes for a summary of {size}");
    let ((), changed) = extra(|| {
        (0..100).for_each(|i| {
            folded.view.tasks.get_mut(i).unwrap().tries += 1;
        })
    });
    assert!(changed <= 100_000, "of what changes while a copy is kept only the neighbours are copied: {changed} bytes");
}

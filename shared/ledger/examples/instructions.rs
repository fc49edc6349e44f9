//! Fixed work for counting instructions, which are steady where the clock is not: `just bench-instructions`.
//!
//! Only what runs in [`measured`] counts. One argument says what: `fold`, `decide`, `summary`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a tool for developers, not part of the product

#[path = "../tests/support/folded.rs"]
mod folded;

use std::hint::black_box;

use fanfold_domain::dispatch::{Hq, Presence, next_step};
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::summary::Summary;
use folded::{Folded, SEALED_MS, aggregates, dispatched, succeeded};

/// Tasks of the plan; the recipe divides by it.
const TASKS: usize = 10_000;

#[inline(never)]
fn measured(work: impl FnOnce()) {
    work();
}

/// Reading and folding what a task needs: its hand-out and its result.
fn fold() {
    let mut folded = Folded::sealed(TASKS, aggregates());
    let handed_out: Vec<_> = (0..TASKS).map(|i| folded.message(i, &dispatched(i))).collect();
    let results: Vec<_> = (0..TASKS).map(|i| folded.message(i, &succeeded(i))).collect();
    measured(|| handed_out.iter().chain(&results).for_each(|message| folded.fold(message)));
    assert!(folded.view.all_final());
}

/// What HQ ought to do about each task, before it is handed out and while it is out.
fn decide() {
    let mut folded = Folded::sealed(TASKS, aggregates());
    let hq = Hq {
        now_ms: SEALED_MS + 60_000,
        started_ms: SEALED_MS,
        connected_ms: SEALED_MS,
        caught_up: true,
        beat_ms: 15_000,
        cancel_grace_ms: 10_000,
    };
    let presence =
        Presence { last_seen_ms: Some(hq.now_ms), usable: true, same_journal: true, synced: true, ..Presence::default() };
    let look = |folded: &Folded| (0..TASKS).for_each(|i| drop(black_box(next_step(&folded.view, i, &presence, &hq))));
    measured(|| look(&folded));
    folded.all(dispatched);
    measured(|| look(&folded));
}

/// Computing and writing a summary.
fn summary() {
    let mut folded = Folded::sealed(TASKS, aggregates());
    folded.all(dispatched);
    folded.all(succeeded);
    measured(|| {
        let summary = Summary::compute(&folded.view, SummaryKind::Complete).unwrap();
        summary.pieces().for_each(|piece| drop(black_box(piece.unwrap())));
    });
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("fold") => fold(),
        Some("decide") => decide(),
        Some("summary") => summary(),
        other => panic!("{other:?} is none of fold, decide, summary"),
    }
}

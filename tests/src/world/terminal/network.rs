//! What is between a terminal and HQ: messages are late, come twice, overtake each other, or never arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fanfold_sdk::SplitMix64;

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leg {
    /// From the terminal to HQ: reports, syncs, beats.
    Up,
    /// From HQ to the terminal: commands and answers.
    Down,
}

/// What becomes of one message: how long each copy of it is on its way, in ms. None: it is lost.
pub type Passage = Vec<u64>;

/// Decides for the n-th message of a leg, from 1, over all lives of the terminal.
pub type Air = Arc<dyn Fn(Leg, u64) -> Passage + Send + Sync>;

/// Air that is bad in every way, from a seed: a third of the messages is late by up to `late_ms`, `lost` and `twice` are in percent.
pub fn bad_air(seed: u64, late_ms: u64, lost: u64, twice: u64) -> Air {
    Arc::new(move |leg, n| {
        let salt = if leg == Leg::Up { 0x55 } else { 0xaa };
        let draw = |k: u64| mix(seed ^ salt << 56 ^ n << 8 ^ k);
        let delay = |k| if draw(k) % 3 == 0 { draw(k + 1) % (late_ms + 1) } else { draw(k + 1) % (late_ms / 20 + 1) };
        match draw(0) % 100 {
            x if x < lost => Vec::new(),
            x if x < lost + twice => vec![delay(10), delay(20)],
            _ => vec![delay(10)],
        }
    })
}

/// The first number of a seed.
pub(super) fn mix(seed: u64) -> u64 {
    SplitMix64::new(seed).next_u64()
}

/// A terminal's line, over all its lives and processes.
pub(super) struct Line {
    air: Air,
    up: AtomicU64,
    down: AtomicU64,
    linked: AtomicBool,
}

impl Line {
    pub(super) fn new(air: Air) -> Self {
        Self { air, up: AtomicU64::new(0), down: AtomicU64::new(0), linked: AtomicBool::new(true) }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.linked.load(Ordering::SeqCst)
    }

    pub(super) fn set_linked(&self, linked: bool) {
        self.linked.store(linked, Ordering::SeqCst);
    }

    /// What becomes of the next message.
    pub(super) fn passage(&self, leg: Leg) -> Passage {
        let count = if leg == Leg::Up { &self.up } else { &self.down };
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_linked() { (self.air)(leg, n) } else { Vec::new() }
    }
}

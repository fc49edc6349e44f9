//! When to sync, and what to do with the answer.

use std::time::Duration;

use fanfold_wire::subjects;
use fanfold_wire::terminal::{SyncAnswer, SyncRequest};
use tokio::time::Instant;

use super::{Running, admit};
use crate::chance::Chance;
use crate::holds::SyncNext;
use crate::outbox::Backoff;
use crate::reporter::ask;

/// Pause before asking again when there is more, or an answer was too old.
const SOON_MS: u64 = 250;
/// Bounds of what HQ may ask a terminal to wait.
const LATER_MS: std::ops::RangeInclusive<u64> = 50..=60_000;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// The time of the next sync.
pub(super) struct SyncClock {
    next: Instant,
    failures: u32,
}

impl SyncClock {
    /// The first comes within the jitter.
    pub(super) fn starting(chance: &Chance, jitter_ms: u64) -> Self {
        Self { next: chance.within(jitter_ms), failures: 0 }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// After a connect, whatever was planned.
    pub(super) fn reconnected(&mut self, chance: &Chance, jitter_ms: u64) {
        *self = Self::starting(chance, jitter_ms);
    }

    /// Not much later than now.
    pub(super) fn soon(&mut self, chance: &Chance) {
        self.next = self.next.min(Instant::now() + chance.spread(SOON_MS));
    }

    fn failed(&mut self, chance: &Chance, interval_ms: u64) {
        self.failures += 1;
        let pause = BACKOFF.pause(self.failures, chance.unit());
        self.next = Instant::now() + pause.min(Duration::from_millis(interval_ms));
    }

    fn answered(&mut self, chance: &Chance, next: SyncNext, interval_ms: u64) {
        self.failures = 0;
        let pause_ms = match next {
            SyncNext::Normal => {
                self.next = chance.tick_after(interval_ms);
                return;
            }
            SyncNext::InUse => interval_ms,
            SyncNext::Soon | SyncNext::Later(None) => SOON_MS,
            SyncNext::Later(Some(ms)) => ms.clamp(*LATER_MS.start(), *LATER_MS.end()),
        };
        self.next = Instant::now() + chance.spread(pause_ms);
    }
}

impl Running {
    /// Asks, if it is time and no answer is awaited. A stopping terminal has nothing to ask.
    pub(super) fn sync_if_due(&mut self) {
        if !self.syncs.is_empty() || self.closing.is_some() || Instant::now() < self.clock.next() {
            return;
        }
        let actor = &mut self.actor;
        let request = SyncRequest {
            identity: actor.identity.clone(),
            holds: actor.holds.list(),
            known_seq: actor.holds.known_seq(),
            closed_plans: actor.holds.plans_to_ask(),
        };
        let interval_ms = actor.config.sync_interval_ms;
        let Ok(payload) = serde_json::to_vec(&request) else {
            self.clock.failed(&actor.config.chance, interval_ms);
            return;
        };
        let (transport, subject) = (actor.transport.clone(), subjects::sync(&actor.config.id));
        let timeout = Duration::from_millis(actor.config.request_timeout_ms);
        self.syncs.push(Box::pin(async move { ask(transport.as_ref(), &subject, payload.into(), timeout).await }));
    }

    /// Acts on an answer, or plans the next try.
    pub(super) fn take_sync(&mut self, answer: Option<SyncAnswer>) {
        let interval_ms = self.actor.config.sync_interval_ms;
        let Some(answer) = answer else {
            self.stats.syncs_unanswered += 1;
            self.clock.failed(&self.actor.config.chance, interval_ms);
            return;
        };
        if let Some(code) = &answer.code {
            tracing::error!(terminal = %self.actor.config.id, code, message = answer.message, "HQ can't read what this terminal holds");
        }
        let actor = &mut self.actor;
        let registry = &actor.registry;
        let discarded = actor.holds.counts().syncs_discarded;
        let acted_on = answer.status == fanfold_wire::terminal::SyncStatus::Ok;
        let next = actor.holds.synced(answer, &|dispatched| admit(registry, dispatched), &mut actor.actions);
        if acted_on && discarded == actor.holds.counts().syncs_discarded {
            self.stats.syncs += 1;
        }
        let in_use = next == SyncNext::InUse;
        if in_use && !self.stats.id_in_use {
            tracing::error!(terminal = %actor.config.id, code = "TERMINAL_ID_IN_USE",
                "another process uses this terminal's id; stop one of the two, then confirm the one that stays with `terminal replace`");
        }
        self.stats.id_in_use = in_use;
        self.clock.answered(&actor.config.chance, next, interval_ms);
    }
}

//! When to beat, and what a beat says.

use std::time::Duration;

use fanfold_wire::subjects;
use fanfold_wire::terminal::Beat;
use tokio::time::Instant;

use super::{Running, Written};
use crate::chance::Chance;

/// Attempts listed in a beat.
const BEAT_HOLDS_MAX: usize = 256;
/// How long a publish may wait for room in the client's buffer.
const PUBLISH_WAIT: Duration = Duration::from_secs(1);
/// A connect is told of a moment before the connection counts as up: so long, and so often, it is looked at again.
const COMING_UP: Duration = Duration::from_secs(1);
const COMING_UP_LOOK: Duration = Duration::from_millis(100);
/// Who has its first connection within this time of its start came alone; whoever waited longer waited for a server, as one of many.
const FIRST_CONNECT: Duration = Duration::from_secs(3);

/// The time of the next beat.
pub(super) struct BeatClock {
    next: Instant,
    started: Instant,
    /// A beat came due while nothing could be sent.
    owed: bool,
    /// Until then the connection is expected to be up any moment.
    coming_up_until: Instant,
}

impl BeatClock {
    /// The first is due at once.
    pub(super) fn starting() -> Self {
        let now = Instant::now();
        Self { next: now, started: now, owed: false, coming_up_until: now + COMING_UP }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// After a connect: what is owed is not put off for a whole interval. At once at a start; after an outage everybody comes back,
    /// and the jitter keeps them apart.
    pub(super) fn connected(&mut self, chance: &Chance, jitter_ms: u64) {
        let now = Instant::now();
        self.coming_up_until = now + COMING_UP;
        if std::mem::take(&mut self.owed) {
            let first = now.duration_since(self.started) < FIRST_CONNECT;
            self.next = if first { now } else { self.next.min(chance.within(jitter_ms)) };
        }
    }

    /// It is due and nothing can be sent.
    fn put_off(&mut self, chance: &Chance, interval_ms: u64) {
        let now = Instant::now();
        self.owed = true;
        self.next = now + if now < self.coming_up_until { COMING_UP_LOOK } else { chance.spread(interval_ms) };
    }

    fn beaten(&mut self, chance: &Chance, interval_ms: u64) {
        self.owed = false;
        self.next = chance.tick_after(interval_ms);
    }
}

impl Running {
    /// Beats, if it is time.
    pub(super) async fn beat_if_due(&mut self) {
        if Instant::now() < self.beats.next() {
            if self.told_journal_ok != self.actor.holds.journal_ok() {
                // At once: until HQ knows, it hands out work that uses up the tasks' tries here.
                self.beat(false).await;
            }
            return;
        }
        let (chance, interval_ms) = (&self.actor.config.chance, self.actor.config.beat_interval_ms);
        if self.actor.transport.is_connected() {
            self.beats.beaten(chance, interval_ms);
        } else {
            self.beats.put_off(chance, interval_ms);
        }
        if !self.actor.holds.journal_ok() && self.writes.is_empty() {
            self.probe_journal();
        }
        self.beat(false).await;
    }

    /// Beats; the last one is the goodbye.
    pub(super) async fn beat(&mut self, goodbye: bool) {
        // Beats are worth nothing later; while the connection is down they would fill the client's buffer and then block.
        if !self.actor.transport.is_connected() {
            return;
        }
        let unavailable = !self.actor.holds.journal_ok();
        let (identity, holds) = (self.actor.identity.clone(), self.actor.holds.live(BEAT_HOLDS_MAX));
        let beat = Beat { identity, holds, goodbye, journal_unavailable: unavailable };
        let Ok(payload) = serde_json::to_vec(&beat) else { return };
        let subject = subjects::beat(&self.actor.config.id);
        let publish = self.actor.transport.publish(&subject, payload.into());
        if let Ok(Ok(())) = tokio::time::timeout(PUBLISH_WAIT, publish).await {
            self.stats.beats += 1;
            self.told_journal_ok = !unavailable;
        }
    }

    /// While the journal is away every beat asks whether it is back.
    fn probe_journal(&self) {
        let shared = self.actor.shared.clone();
        self.writes.push(Box::pin(async move {
            Written::Probe { ok: shared.journal.write(&shared.terminal, Vec::new()).await.is_ok() }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_MS: u64 = 15_000;
    const JITTER_MS: u64 = 2_000;

    fn at(clock: &BeatClock) -> Duration {
        clock.next().saturating_duration_since(Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_connect_that_comes_soon_is_followed_by_a_beat_at_once() {
        let (chance, mut clock) = (Chance::seeded(1), BeatClock::starting());
        assert_eq!(at(&clock), Duration::ZERO);
        clock.put_off(&chance, INTERVAL_MS);
        assert_eq!(at(&clock), COMING_UP_LOOK, "its connection may be up before anybody tells");
        tokio::time::advance(Duration::from_millis(1_500)).await;
        clock.put_off(&chance, INTERVAL_MS);
        assert!(at(&clock) >= Duration::from_secs(12));
        clock.connected(&chance, JITTER_MS);
        assert_eq!(at(&clock), Duration::ZERO);
        // Told of before it was up: looked at again, not in a whole interval.
        clock.put_off(&chance, INTERVAL_MS);
        assert_eq!(at(&clock), COMING_UP_LOOK);
        clock.beaten(&chance, INTERVAL_MS);
        assert!(at(&clock) >= Duration::from_secs(12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_herd_that_waited_for_its_server_beats_within_the_jitter() {
        let chance = Chance::seeded(2);
        let mut due = Vec::new();
        for _ in 0..200 {
            let mut clock = BeatClock::starting();
            tokio::time::advance(Duration::from_secs(60)).await;
            clock.put_off(&chance, INTERVAL_MS);
            clock.connected(&chance, JITTER_MS);
            due.push(at(&clock));
        }
        assert!(due.iter().all(|d| *d <= Duration::from_millis(JITTER_MS)), "{due:?}");
        assert!(due.iter().filter(|d| **d < Duration::from_millis(JITTER_MS / 10)).count() < 50, "they are spread: {due:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconnect_between_two_beats_changes_nothing() {
        let (chance, mut clock) = (Chance::seeded(3), BeatClock::starting());
        clock.beaten(&chance, INTERVAL_MS);
        let next = clock.next();
        clock.connected(&chance, JITTER_MS);
        assert_eq!(clock.next(), next);
    }
}

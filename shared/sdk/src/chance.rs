//! Where a terminal's random numbers come from: ids, jitters, pauses. Seeded, a terminal does the same again.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// SplitMix64: small, well known, the same on every machine and in every release. Not for anything that must not be guessed.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0. Slightly uneven, which matters to nobody who may use this.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }
}

/// A source of random numbers. Clones of a seeded one draw from the same sequence.
#[derive(Debug, Clone, Default)]
pub struct Chance {
    /// `None`: the machine's own randomness.
    seeded: Option<Arc<Mutex<SplitMix64>>>,
}

/// Terminals of one process wake together: so far apart at most, and at least so often in an interval.
const TICK_MAX: Duration = Duration::from_millis(500);
const TICKS_MIN: u32 = 20;
/// What the ticks of a process are counted from.
static TICKS_FROM: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Chance {
    /// Real randomness.
    pub fn system() -> Self {
        Self::default()
    }

    /// The same sequence for the same seed, for tests. Not for anything that must not be guessed.
    pub fn seeded(seed: u64) -> Self {
        Self { seeded: Some(Arc::new(Mutex::new(SplitMix64::new(seed)))) }
    }

    fn next(&self) -> u64 {
        let Some(seeded) = &self.seeded else { return rand::random() };
        seeded.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// From 0 to below 1.
    pub fn unit(&self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.next() >> 11) as f64 / STEPS
    }

    /// An id for a journal or a boot: 32 hex digits.
    pub fn id(&self) -> String {
        match self.seeded {
            None => uuid::Uuid::new_v4().simple().to_string(),
            Some(_) => format!("{:016x}{:016x}", self.next(), self.next()),
        }
    }

    /// A pause of 80 to 100 % of `interval_ms`: never longer, so that three missing beats stay three.
    pub(crate) fn spread(&self, interval_ms: u64) -> Duration {
        Duration::from_millis(interval_ms).mul_f64(0.8 + 0.2 * self.unit())
    }

    /// The end of a pause of 80 to 100 % of `interval_ms`, on the last tick of this process before it: beats and syncs of many terminals on
    /// one connection leave in one go, which spares everybody a wake-up each. A seeded terminal keeps its own time.
    pub fn tick_after(&self, interval_ms: u64) -> Instant {
        let (now, pause) = (Instant::now(), self.spread(interval_ms));
        let tick = (Duration::from_millis(interval_ms) / TICKS_MIN).min(TICK_MAX).as_nanos();
        if self.seeded.is_some() || tick == 0 {
            return now + pause;
        }
        let past = (now + pause).saturating_duration_since(*TICKS_FROM).as_nanos() % tick;
        now + pause.saturating_sub(Duration::from_nanos(u64::try_from(past).unwrap_or(0)))
    }

    /// A time from now, at most `jitter_ms` away.
    pub(crate) fn within(&self, jitter_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(jitter_ms).mul_f64(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_algorithm() {
        let mut numbers = SplitMix64::new(1_234_567);
        assert_eq!([numbers.next_u64(), numbers.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(numbers.below(0), 0);
        assert!((0..1_000).all(|_| numbers.below(7) < 7));
    }

    #[test]
    fn a_seed_repeats_itself_and_the_system_does_not() {
        let draw = |chance: &Chance| (0..5).map(|_| chance.id()).collect::<Vec<_>>();
        assert_eq!(draw(&Chance::seeded(7)), draw(&Chance::seeded(7)));
        assert_ne!(draw(&Chance::seeded(7)), draw(&Chance::seeded(8)));
        assert_ne!(draw(&Chance::system()), draw(&Chance::system()));
        let one = Chance::seeded(1);
        let two = one.clone();
        assert_ne!(one.id(), two.id(), "clones draw from one sequence");
    }

    #[test]
    fn units_and_spreads_stay_in_their_bounds() {
        for chance in [Chance::seeded(3), Chance::system()] {
            for _ in 0..10_000 {
                assert!((0.0..1.0).contains(&chance.unit()));
                let pause = chance.spread(1_000);
                assert!(pause >= Duration::from_millis(799) && pause <= Duration::from_millis(1_000), "{pause:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn terminals_of_a_process_wake_together() {
        let mut moments = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            let at = Chance::system().tick_after(15_000);
            let pause = at.saturating_duration_since(Instant::now());
            assert!(pause >= Duration::from_millis(11_499) && pause <= Duration::from_millis(15_000), "{pause:?}");
            moments.insert(at);
        }
        assert!((4..=8).contains(&moments.len()), "half a second apart over three seconds: {}", moments.len());
        let own: std::collections::BTreeSet<_> = {
            let chance = Chance::seeded(5);
            (0..100).map(|_| chance.tick_after(15_000)).collect()
        };
        assert!(own.len() > 90, "a seeded one keeps its own time: {}", own.len());
    }
}

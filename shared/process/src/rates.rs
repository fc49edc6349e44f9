//! Bounds on what comes from outside: a token bucket for each sender, and log lines that are written seldom.
//!
//! Both remember a bounded number of senders, so that inventing names fills no memory.

use std::hash::Hash;
use std::num::NonZeroUsize;

use lru::LruCache;

/// One sender's tokens, for whoever keeps them where they keep the sender.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    tokens: f64,
    at_ms: i64,
}

/// What a bucket grants, both at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Tokens a second on average.
    pub per_s: f64,
    /// Tokens at once after a pause.
    pub burst: f64,
}

impl Bucket {
    /// A full one.
    pub fn full(now_ms: i64) -> Self {
        Self { tokens: f64::INFINITY, at_ms: now_ms }
    }

    fn fill(&mut self, rate: Rate, now_ms: i64) {
        let elapsed_ms = now_ms.saturating_sub(self.at_ms).max(0) as f64;
        self.tokens = (self.tokens + elapsed_ms * rate.per_s / 1000.0).min(rate.burst);
        self.at_ms = now_ms;
    }

    /// How many of `wanted` tokens there are now, whole ones; they are taken.
    pub fn take(&mut self, rate: Rate, wanted: usize, now_ms: i64) -> usize {
        self.fill(rate, now_ms);
        let granted = wanted.min(self.tokens as usize);
        self.tokens -= granted as f64;
        granted
    }
}

/// A token bucket for each key. The key not heard of for longest is forgotten first; it starts anew with a full bucket. A bucket that is
/// full again is as good as none, so only those that were used a moment ago are remembered.
pub struct Rates<K: Hash + Eq> {
    buckets: LruCache<K, Bucket>,
    kept: NonZeroUsize,
    rate: Rate,
}

impl<K: Hash + Eq + Clone> Rates<K> {
    /// Grants each key `per_s` tokens a second on average and `burst` at once after a pause, both at least 1; remembers `kept` keys.
    pub fn new(per_s: f64, burst: f64, kept: NonZeroUsize) -> Self {
        // Bounded by `bucket`: a bounded cache takes its whole room when it is made.
        Self { buckets: LruCache::unbounded(), kept, rate: Rate { per_s: per_s.max(1.0), burst: burst.max(1.0) } }
    }

    fn bucket(&mut self, key: &K, now_ms: i64) -> &mut Bucket {
        self.forget_full(now_ms);
        if self.buckets.len() >= self.kept.get() && !self.buckets.contains(key) {
            self.buckets.pop_lru();
        }
        let bucket = self.buckets.get_or_insert_mut_ref(key, || Bucket::full(now_ms));
        bucket.fill(self.rate, now_ms);
        bucket
    }

    /// Forgets up to two buckets that are full again, of those not used for longest: more than can come in meanwhile.
    fn forget_full(&mut self, now_ms: i64) {
        for _ in 0..2 {
            let full = |bucket: &Bucket| {
                let mut now = *bucket;
                now.fill(self.rate, now_ms);
                now.tokens >= self.rate.burst
            };
            if !self.buckets.peek_lru().is_some_and(|(_, bucket)| full(bucket)) {
                return;
            }
            self.buckets.pop_lru();
        }
    }

    /// What each key is granted.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// How many of `wanted` tokens the key gets now, whole ones.
    pub fn take(&mut self, key: &K, wanted: usize, now_ms: i64) -> usize {
        let rate = self.rate;
        self.bucket(key, now_ms).take(rate, wanted, now_ms)
    }

    /// Takes `wanted` tokens if there is one at all, going into debt for the rest: for what can't be divided. Says whether it did.
    pub fn take_whole(&mut self, key: &K, wanted: usize, now_ms: i64) -> bool {
        let bucket = self.bucket(key, now_ms);
        let granted = bucket.tokens >= 1.0;
        if granted {
            bucket.tokens -= wanted as f64;
        }
        granted
    }

    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

/// Says something about a key at most once in a while, and how often it was held back meanwhile. Over all keys there is a bound too.
pub struct Seldom<K: Hash + Eq> {
    said: LruCache<K, (i64, u64)>,
    pause_ms: i64,
    all: Rates<()>,
}

impl<K: Hash + Eq + Clone> Seldom<K> {
    /// At most one line a key in `pause_ms`, for up to `kept` keys, and at most `kept` lines at once and one a second over all.
    pub fn new(pause_ms: i64, kept: NonZeroUsize) -> Self {
        Self { said: LruCache::new(kept), pause_ms, all: Rates::new(1.0, kept.get() as f64, NonZeroUsize::MIN) }
    }

    /// Notes that there is something to say. Gives how often it was held back since the last time if it may be said now.
    pub fn may_say(&mut self, key: &K, now_ms: i64) -> Option<u64> {
        let (said_ms, held_back) = self.said.get_or_insert_mut_ref(key, || (i64::MIN, 0));
        if now_ms.saturating_sub(*said_ms) < self.pause_ms || self.all.take(&(), 1, now_ms) == 0 {
            *held_back += 1;
            return None;
        }
        *said_ms = now_ms;
        Some(std::mem::take(held_back))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

    #[test]
    fn a_flood_is_held_to_its_rate_and_others_are_not() {
        let mut rates = Rates::new(10.0, 20.0, KEPT);
        let granted: usize = (0..1_000).map(|ms| rates.take(&"loud", 10, ms)).sum();
        assert!((28..=31).contains(&granted), "{granted}");
        assert_eq!(rates.take(&"calm", 5, 1_000), 5);
        assert_eq!(rates.take(&"loud", 5, 500), 0, "a clock that runs back grants nothing");
    }

    #[test]
    fn what_can_not_be_divided_is_paid_for_later() {
        let mut rates = Rates::new(10.0, 20.0, KEPT);
        assert!(rates.take_whole(&"big", 120, 0), "a full bucket takes one of any size");
        assert!(!rates.take_whole(&"big", 1, 5_000), "in debt for ten seconds");
        assert!(rates.take_whole(&"big", 1, 10_200));
    }

    #[test]
    fn invented_names_fill_nothing() {
        let mut rates = Rates::new(10.0, 20.0, KEPT);
        for name in 0..100_000_u32 {
            assert_eq!(rates.take(&name, 1, 0), 1);
        }
        assert_eq!(rates.len(), KEPT.get());
    }

    #[test]
    fn who_keeps_within_the_rate_is_not_remembered() {
        let mut rates = Rates::new(10.0, 20.0, NonZeroUsize::MIN.saturating_add(99_999));
        assert_eq!(rates.take(&u32::MAX, 30, 0), 20, "all it has");
        for name in 0..10_000_u32 {
            assert_eq!(rates.take(&name, 1, i64::from(name)), 1);
            assert!(rates.len() <= 2_103, "{} at {name} ms", rates.len());
        }
        assert_eq!(rates.take(&u32::MAX, 30, 10_000), 20, "forgotten, and full again all the same");
        assert!(rates.len() < 110, "those of the last 100 ms: {}", rates.len());
        assert_eq!(rates.take(&u32::MAX, 1, 10_050), 0, "it is remembered while it is not full");
    }

    #[test]
    fn a_line_comes_seldom_and_says_what_was_held_back() {
        let mut seldom = Seldom::new(60_000, KEPT);
        assert_eq!(seldom.may_say(&1, 0), Some(0));
        assert!((1..1_000).all(|ms| seldom.may_say(&1, ms).is_none()));
        assert_eq!(seldom.may_say(&1, 60_000), Some(999));
        let lines = (2..100_000).filter(|name| seldom.may_say(name, 60_000).is_some()).count();
        assert!(lines <= KEPT.get(), "{lines} lines about invented names");
    }
}

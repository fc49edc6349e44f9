//! Each terminal's rate: a token bucket, so that one that floods does not delay the others.

use std::num::NonZeroUsize;

use fanfold_domain::ids::TerminalId;
use lru::LruCache;

/// Terminals whose rate is remembered; one not heard of for longest starts anew with a full bucket.
const TERMINALS_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(131_071);

struct Bucket {
    tokens: f64,
    at_ms: i64,
}

pub(crate) struct Rates {
    buckets: LruCache<TerminalId, Bucket>,
    per_s: f64,
    burst: f64,
}

impl Rates {
    pub(crate) fn new(per_s: u32, burst: u32) -> Self {
        Self { buckets: LruCache::new(TERMINALS_KEPT), per_s: f64::from(per_s.max(1)), burst: f64::from(burst.max(1)) }
    }

    /// How many of `wanted` reports the terminal may hand in now.
    pub(crate) fn take(&mut self, terminal: &TerminalId, wanted: usize, now_ms: i64) -> usize {
        let (per_s, burst) = (self.per_s, self.burst);
        let bucket = self.buckets.get_or_insert_mut_ref(terminal, || Bucket { tokens: burst, at_ms: now_ms });
        let elapsed_ms = (now_ms - bucket.at_ms).max(0) as f64;
        bucket.tokens = (bucket.tokens + elapsed_ms * per_s / 1000.0).min(burst);
        bucket.at_ms = now_ms;
        let granted = wanted.min(bucket.tokens as usize);
        bucket.tokens -= granted as f64;
        granted
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_held_to_its_rate_and_others_are_not() {
        let mut rates = Rates::new(10, 20);
        let (loud, calm) = (TerminalId::new("LOUD").unwrap(), TerminalId::new("CALM").unwrap());
        let granted: usize = (0..1_000).map(|ms| rates.take(&loud, 10, ms)).sum();
        assert!((28..=31).contains(&granted), "{granted}");
        assert_eq!(rates.take(&calm, 5, 1_000), 5);
        assert_eq!(rates.take(&loud, 5, 500), 0, "a clock that runs back grants nothing");
    }
}

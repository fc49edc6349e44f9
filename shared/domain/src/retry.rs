//! Retry as data: which codes may be tried again, how often, and after how long. Pinned in the plan.

use serde::{Deserialize, Serialize};

use crate::planted::{self, Planted};

/// How an error code is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorClass {
    /// Trying again may help; an unlisted code is transient.
    Transient,
    /// Trying again is wrong.
    Business,
}

/// Delays between attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Backoff {
    /// Delay before try k+1 in milliseconds; the last one repeats.
    List(Vec<u64>),
    /// `base * factor^k`, at most `max`; milliseconds.
    #[serde(rename_all = "camelCase")]
    Exponential {
        /// First delay, in milliseconds.
        base_ms: u64,
        /// Factor between delays.
        factor: u32,
        /// Longest delay, in milliseconds.
        max_ms: u64,
    },
}

impl Backoff {
    /// Delay after the `tries`-th failed try (1 = the first), without jitter, in milliseconds.
    pub fn base_ms(&self, tries: u32) -> u64 {
        let k = tries.saturating_sub(1);
        match self {
            Backoff::List(list) => list.get(k as usize).or(list.last()).copied().unwrap_or(0),
            Backoff::Exponential { base_ms, factor, max_ms } => {
                let factor = u64::from(*factor);
                let grown = (0..k.min(64)).fold(*base_ms, |delay, _| delay.saturating_mul(factor).min(*max_ms));
                grown.min(*max_ms)
            }
        }
    }
}

/// A plan's retry policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// Tries that a task may use up; at least 1.
    pub max_attempts: u32,
    /// Delays between tries.
    pub backoff_ms: Backoff,
    /// Share by which a delay is stretched or shortened, 0 to 1; drawn from a hash of task and attempt, so it is reproducible.
    pub jitter: f64,
    /// Code patterns that may be tried again (`NETWORK`, `HTTP_5*`).
    pub transient: Vec<String>,
    /// Code patterns that must not be tried again; wins over `transient`.
    pub business: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff_ms: Backoff::Exponential { base_ms: 1_000, factor: 4, max_ms: 60_000 },
            jitter: 0.2,
            transient: Vec::new(),
            business: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// Class of a code: business wins when both match, an unlisted code is transient.
    pub fn classify(&self, code: &str) -> ErrorClass {
        if !planted::is(Planted::BusinessRetried) && self.business.iter().any(|p| matches(p, code)) {
            ErrorClass::Business
        } else {
            ErrorClass::Transient
        }
    }

    /// Delay after the `tries`-th failed try of `task_id`, attempt `attempt`, jittered, in milliseconds.
    pub fn delay_ms(&self, task_id: &str, attempt: u32, tries: u32) -> i64 {
        let base = self.backoff_ms.base_ms(tries).min(i64::MAX as u64 / 4) as i64;
        let jitter_permille = (self.jitter.clamp(0.0, 1.0) * 1000.0) as i64;
        let draw = (hash(task_id, attempt) % 2001) as i64 - 1000;
        base + (base / 1000).saturating_mul(jitter_permille * draw / 1000) + (base % 1000) * jitter_permille * draw / 1_000_000
    }
}

/// A pattern is a code, or the beginning of one followed by `*`.
fn matches(pattern: &str, code: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => code.starts_with(prefix),
        None => pattern == code,
    }
}

/// FNV-1a with a final avalanche: stable over versions and machines, unlike the standard library's hasher.
pub(crate) fn hash(text: &str, number: u32) -> u64 {
    let bytes = text.bytes().chain(number.to_le_bytes());
    let mut h = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn business_wins_and_unlisted_is_transient() {
        let policy =
            RetryPolicy { transient: vec!["HTTP_*".into()], business: vec!["HTTP_404".into()], ..RetryPolicy::default() };
        assert_eq!(policy.classify("HTTP_404"), ErrorClass::Business);
        assert_eq!(policy.classify("HTTP_500"), ErrorClass::Transient);
        assert_eq!(policy.classify("WHATEVER"), ErrorClass::Transient);
    }

    #[test]
    fn backoff_lists_repeat_their_last_and_exponentials_are_capped() {
        let list = Backoff::List(vec![300, 600]);
        assert_eq!([1, 2, 3, 9].map(|t| list.base_ms(t)), [300, 600, 600, 600]);
        assert_eq!(Backoff::List(vec![]).base_ms(1), 0);
        let exp = Backoff::Exponential { base_ms: 100, factor: 3, max_ms: 1_000 };
        assert_eq!([1, 2, 3, 4, 4_000_000_000].map(|t| exp.base_ms(t)), [100, 300, 900, 1_000, 1_000]);
    }

    #[test]
    fn jitter_is_reproducible_and_bounded() {
        let policy = RetryPolicy { backoff_ms: Backoff::List(vec![10_000]), jitter: 0.2, ..RetryPolicy::default() };
        let delays: Vec<i64> = (0..200).map(|i| policy.delay_ms(&format!("p.t{i}.main"), 1, 1)).collect();
        assert!(delays.iter().all(|d| (8_000..=12_000).contains(d)), "{delays:?}");
        assert!(delays.iter().any(|d| *d < 9_000) && delays.iter().any(|d| *d > 11_000));
        assert_eq!(delays[7], policy.delay_ms("p.t7.main", 1, 1));
    }
}

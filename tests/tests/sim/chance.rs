//! What chance has in store: SplitMix64, so that a seed means the same on every machine and for ever.

use fanfold_sdk::SplitMix64;

/// A stream of numbers from a seed.
#[derive(Debug, Clone)]
pub struct Chance(SplitMix64);

impl Chance {
    /// The stream of a seed; different `purpose`s of one seed give streams that have nothing to do with each other.
    pub fn of(seed: u64, purpose: u64) -> Self {
        let mut numbers = SplitMix64::new(seed ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        numbers.next_u64();
        Self(numbers)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// One of `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// One of `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// Happens `n` times in a hundred.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// One of these.
    pub fn of_these<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[self.below(these.len() as u64) as usize]
    }
}

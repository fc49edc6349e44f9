//! What is drawn from the seed: which disturbance comes next, of whom, how, for how long.

use std::time::Duration;

use fanfold_sdk::SplitMix64;

use crate::stack::ROLES;

/// Numbers of a seed.
#[derive(Debug, Clone)]
pub struct Draw(SplitMix64);

impl Draw {
    /// A sequence of its own for each seed and purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut numbers = SplitMix64::new(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        numbers.next_u64();
        Self(numbers)
    }

    /// From `from` up to, but not including, `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from)
    }

    /// One time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.between(0, n) == 0
    }

    /// Milliseconds, as a duration.
    pub fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// Puts them in another order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.between(0, i as u64 + 1) as usize);
        }
    }
}

/// What a disturbance hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Whom {
    /// A service, as an index into [`ROLES`].
    Role(usize),
    /// Some terminals.
    Terminals,
    /// The server.
    Nats,
}

/// A kind of disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL, and a restart at once or up to 3 s later.
    Kill(Whom),
    /// SIGSTOP, and SIGCONT later; past the lease for who has one.
    Freeze(Whom),
    /// A second process under the id of a terminal that is live.
    Twin,
}

impl Kind {
    /// Every kind.
    pub fn all() -> Vec<Self> {
        let whom: Vec<Whom> = (0..ROLES.len()).map(Whom::Role).chain([Whom::Terminals, Whom::Nats]).collect();
        let kills = whom.iter().map(|w| Self::Kill(*w));
        kills.chain(whom.iter().map(|w| Self::Freeze(*w))).chain([Self::Twin]).collect()
    }
}

/// The order of disturbances: every kind once and terminals killed once more (there are many of them), shuffled, and again, so that no
/// kind waits for ever.
pub struct Deck {
    draw: Draw,
    left: Vec<Kind>,
}

impl Deck {
    /// The seed's order.
    pub fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed, 1), left: Vec::new() }
    }

    /// The next one.
    pub fn deal(&mut self) -> Kind {
        if self.left.is_empty() {
            self.left = Kind::all();
            self.left.push(Kind::Kill(Whom::Terminals));
            self.draw.shuffle(&mut self.left);
        }
        self.left.pop().unwrap_or(Kind::Twin)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn thirty_two_disturbances_have_every_kind_twice_in_an_order_of_the_seeds() {
        let dealt = |seed| {
            let mut deck = Deck::new(seed);
            (0..32).map(|_| deck.deal()).collect::<Vec<Kind>>()
        };
        let (one, again, other) = (dealt(1), dealt(1), dealt(2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        for round in one.chunks(16) {
            assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), Kind::all().into_iter().collect());
        }
    }
}

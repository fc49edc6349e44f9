//! The sealed list of a plan: names in order, and where a name stands.

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use crate::ids::TargetId;

/// Targets in order, read as a slice; copies share them. No target is in it twice.
#[derive(Debug, Clone, Default)]
pub struct Targets(Arc<List>);

#[derive(Debug, Clone, Default)]
struct List {
    names: Vec<TargetId>,
    /// Open addressing: place in `names` and one, 0 where there is nothing. A map that held the names again would be many times larger.
    slots: Vec<u32>,
    /// Seeded by the process: the names come from outside. The order of the slots is never seen.
    hasher: RandomState,
}

impl List {
    /// The slot of a name, or the free one where it would be put.
    fn slot(&self, name: &str) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = self.hasher.hash_one(name) as usize & mask;
        loop {
            match self.slots.get(at).copied() {
                Some(place) if place > 0 && self.names.get(place as usize - 1).is_none_or(|n| n.as_str() != name) => {
                    at = (at + 1) & mask;
                }
                found => return found.map(|_| at),
            }
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let place = *self.slots.get(self.slot(name)?)?;
        (place as usize).checked_sub(1)
    }

    /// Makes room for so many names, so that at most three of four slots are taken.
    fn make_room(&mut self, names: usize) {
        let wanted = (names + names / 3 + 1).next_power_of_two();
        if wanted <= self.slots.len() {
            return;
        }
        self.slots = vec![0; wanted];
        for place in 0..self.names.len() {
            let Some(at) = self.names.get(place).and_then(|name| self.slot(name.as_str())) else { continue };
            self.fill(at, place);
        }
    }

    fn fill(&mut self, at: usize, place: usize) {
        if let (Some(slot), Ok(place)) = (self.slots.get_mut(at), u32::try_from(place + 1)) {
            *slot = place;
        }
    }
}

impl Targets {
    /// Where a target stands.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.position(name)
    }

    /// Adds targets at the end. Gives how many of them were there already: a repeat keeps its first place.
    pub fn extend(&mut self, targets: &[TargetId]) -> u32 {
        let list = Arc::make_mut(&mut self.0);
        list.make_room(list.names.len() + targets.len());
        let mut repeated = 0;
        for target in targets {
            if list.position(target.as_str()).is_some() {
                repeated += 1;
                continue;
            }
            if let Some(at) = list.slot(target.as_str()) {
                list.fill(at, list.names.len());
                list.names.push(target.clone());
            }
        }
        repeated
    }

    /// Nothing more will come: gives back the room that is left.
    pub fn finish(&mut self) {
        Arc::make_mut(&mut self.0).names.shrink_to_fit();
    }
}

impl Deref for Targets {
    type Target = [TargetId];

    fn deref(&self) -> &[TargetId] {
        &self.0.names
    }
}

impl<'a> IntoIterator for &'a Targets {
    type Item = &'a TargetId;
    type IntoIter = std::slice::Iter<'a, TargetId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_found_where_it_stands() {
        let name = |i: usize| TargetId::new(&format!("S_{i}")).unwrap();
        let mut targets = Targets::default();
        assert_eq!(targets.position("S_0"), None);
        let mut len = 0;
        for chunk in [1, 2, 5, 700, 3_000] {
            let names: Vec<TargetId> = (len..len + chunk).map(name).collect();
            assert_eq!(targets.extend(&names), 0);
            len += chunk;
            assert!((0..len).all(|i| targets.position(name(i).as_str()) == Some(i)), "of {len}");
            assert_eq!(targets.position(name(len).as_str()), None);
        }
        let copy = targets.clone();
        assert_eq!(targets.extend(&[name(3), name(len), name(len), name(0)]), 3, "repeats keep their first place");
        targets.finish();
        assert_eq!((targets.len(), targets.position(name(len).as_str()), targets.position("S_3")), (len + 1, Some(len), Some(3)));
        assert_eq!((copy.len(), copy.position(name(len).as_str())), (len, None));
        assert_eq!(targets.iter().map(TargetId::as_str).take(2).collect::<Vec<_>>(), ["S_0", "S_1"]);
    }
}

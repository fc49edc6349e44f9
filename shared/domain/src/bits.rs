//! A set of task indexes. Its size is the set's own: it changes only where a member comes or goes, so it can't drift from the members.

/// A growable bit set over task indexes of one plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    /// How many bits are set in `words`.
    len: usize,
}

impl Bits {
    /// An empty set with room for `len` indexes.
    pub fn with_len(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len: 0 }
    }

    /// Puts an index in or takes it out; says whether that changed the set.
    pub fn set(&mut self, index: usize, present: bool) -> bool {
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        if word >= self.words.len() {
            if !present {
                return false;
            }
            self.words.resize(word + 1, 0);
        }
        let before = self.words[word] & bit != 0;
        if before == present {
            return false;
        }
        self.words[word] ^= bit;
        if present {
            self.len += 1;
        } else {
            self.len -= 1;
        }
        true
    }

    /// Whether an index is in the set.
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|w| w & (1 << (index % 64)) != 0)
    }

    /// How many are in the set.
    pub fn count(&self) -> usize {
        self.len
    }

    /// Whether none is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The indexes, rising.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn behaves_like_a_set() {
        let mut bits = Bits::with_len(10);
        assert!(bits.set(3, true) && bits.set(200, true) && !bits.set(3, true));
        assert!(!bits.set(5_000, false));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [3, 200]);
        assert!(bits.contains(200) && !bits.contains(4) && !bits.contains(1 << 20));
        assert!(bits.set(3, false) && !bits.set(3, false));
        assert_eq!(bits.count(), 1);
        assert!(!bits.is_empty());
        let mut drawn = 12_345_u64;
        for _ in 0..10_000 {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bits.set((drawn >> 33) as usize % 300, drawn >> 62 != 0);
            assert_eq!(bits.count(), bits.iter().count());
        }
        let members: Vec<usize> = bits.iter().collect();
        members.iter().for_each(|i| assert!(bits.set(*i, false)));
        assert!(bits.is_empty());
    }
}

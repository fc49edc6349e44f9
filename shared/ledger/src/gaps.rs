//! Missing ranges of a log: first and last sequence, in order, none touching the next.

use crate::port::GAPS_MAX;

/// Adds a range; ranges that touch become one. Whether it told anything new; beyond [`GAPS_MAX`] nothing is kept.
pub(crate) fn insert(gaps: &mut Vec<(u64, u64)>, from: u64, to: u64) -> bool {
    let begin = gaps.partition_point(|gap| gap.1.saturating_add(1) < from);
    let end = gaps.partition_point(|gap| gap.0 <= to.saturating_add(1));
    let Some(touched) = gaps.get(begin..end).filter(|touched| !touched.is_empty()) else {
        if gaps.len() >= GAPS_MAX || from > to {
            return false;
        }
        gaps.insert(begin, (from, to));
        return true;
    };
    let low = touched.first().map_or(from, |gap| gap.0.min(from));
    let high = touched.last().map_or(to, |gap| gap.1.max(to));
    if touched == [(low, high)] {
        return false;
    }
    gaps.splice(begin..end, [(low, high)]);
    true
}

/// The end of the range a sequence lies in.
pub(crate) fn end_of(gaps: &[(u64, u64)], seq: u64) -> Option<u64> {
    let at = gaps.partition_point(|gap| gap.1 < seq);
    gaps.get(at).filter(|gap| gap.0 <= seq).map(|gap| gap.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut gaps = Vec::new();
        for (from, to, new, expected) in [
            (10, 12, true, vec![(10, 12)]),
            (11, 12, false, vec![(10, 12)]),
            (20, 20, true, vec![(10, 12), (20, 20)]),
            (13, 13, true, vec![(10, 13), (20, 20)]),
            (5, 6, true, vec![(5, 6), (10, 13), (20, 20)]),
            (7, 19, true, vec![(5, 20)]),
            (1, 30, true, vec![(1, 30)]),
            (4, 3, false, vec![(1, 30)]),
        ] {
            assert_eq!(insert(&mut gaps, from, to), new, "{from} to {to}");
            assert_eq!(gaps, expected, "{from} to {to}");
        }
        assert_eq!([0, 1, 30, 31].map(|seq| end_of(&gaps, seq)), [None, Some(30), Some(30), None]);
    }

    #[test]
    fn there_is_a_most() {
        let mut gaps = Vec::new();
        assert_eq!((0..GAPS_MAX as u64 + 5).filter(|n| insert(&mut gaps, n * 3 + 1, n * 3 + 1)).count(), GAPS_MAX);
    }
}

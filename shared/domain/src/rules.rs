//! Versions of the rules by which events become states and accounts.
//!
//! `plan.submitted` names the version its plan is folded by, for ever. A fix of the fold, of the sets or of the summary that would
//! change what an existing log means is a new version: it is added here, [`Rules::CURRENT`] moves on, and the code that differs asks
//! for the version (`match plan.rules`, as [`crate::fold::fold`] does). What a plan of an unknown version means, nobody here can say:
//! it is [`UnsupportedRules`], and no view of it can be made.

/// A version of the rules this build knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rules {
    /// The first one.
    V1,
    /// As V1, but an attempt that was stopped by a cancel is said to be: V1 says of every stop that it came without one.
    V2,
}

impl Rules {
    /// What new plans are submitted with.
    pub const CURRENT: Rules = Rules::V2;
    /// Every version this build folds, in order.
    pub const SUPPORTED: [Rules; 2] = [Rules::V1, Rules::V2];

    /// The version of a number.
    ///
    /// # Errors
    /// [`UnsupportedRules`] when this build does not know it.
    pub fn of(version: u32) -> Result<Self, UnsupportedRules> {
        Self::SUPPORTED.into_iter().find(|rules| rules.version() == version).ok_or(UnsupportedRules { found: version })
    }

    /// Its number, as `plan.submitted` has it.
    pub const fn version(self) -> u32 {
        match self {
            Rules::V1 => 1,
            Rules::V2 => 2,
        }
    }
}

/// A plan is to be folded by rules this build does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "rules version {found} is not known here, only {} up to {} (run the version of fanfold that submitted the plan, or a newer one)",
    Rules::SUPPORTED[0].version(),
    Rules::CURRENT.version()
)]
pub struct UnsupportedRules {
    /// The version that was found.
    pub found: u32,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_supported_version_is_found_and_no_other() {
        for rules in Rules::SUPPORTED {
            assert_eq!(Rules::of(rules.version()).unwrap(), rules);
        }
        assert_eq!(Rules::SUPPORTED.last(), Some(&Rules::CURRENT));
        assert!(Rules::SUPPORTED.is_sorted());
        for unknown in [0, Rules::CURRENT.version() + 1, u32::MAX] {
            assert_eq!(Rules::of(unknown), Err(UnsupportedRules { found: unknown }));
        }
    }
}

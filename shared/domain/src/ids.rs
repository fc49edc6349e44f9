//! Names as validated newtypes: checked once at the edge, trusted everywhere inside.
//!
//! An id is a single NATS token of at most 64 characters, `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`, so it can stand in a subject, a KV key and
//! a file name without escaping.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest id, in bytes.
pub const ID_BYTES_MAX: usize = 64;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` is not a valid {what}: {reason} (1 to 64 of A-Z a-z 0-9 _ -, beginning with a letter or digit)")]
pub struct IdError {
    /// The text, cut to 80 characters.
    pub shown: String,
    /// What it should have been.
    pub what: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

fn check(text: &str, what: &'static str) -> Result<(), IdError> {
    let reason = match text.as_bytes() {
        [] => "it is empty",
        bytes if bytes.len() > ID_BYTES_MAX => "it is longer than 64 characters",
        [first, ..] if !first.is_ascii_alphanumeric() => "it does not begin with a letter or digit",
        bytes if !bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-') => {
            "it has a character outside the set"
        }
        _ => return Ok(()),
    };
    Err(IdError { shown: text.chars().take(80).collect(), what, reason })
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a text that came from outside.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check(text, $what)?;
                Ok(Self(Arc::from(text)))
            }

            /// The token itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

token!(
    /// Name of a plan, unique for ever.
    PlanId,
    "plan id"
);
token!(
    /// What a task is for: a store, a shop, a rendition.
    TargetId,
    "target id"
);
token!(
    /// Name of a stage of a plan; `main` where there is one only.
    StageId,
    "stage"
);
token!(
    /// Name of a process that executes tasks. For store plans it equals the target's id.
    TerminalId,
    "terminal id"
);

impl StageId {
    /// The stage of a plan that has just one.
    pub fn main() -> Self {
        Self(Arc::from("main"))
    }
}

impl TargetId {
    /// The terminal that serves this target: for store plans, the one of the same name.
    pub fn terminal(&self) -> TerminalId {
        TerminalId(self.0.clone())
    }
}

/// `<planId>.<target>.<stage>`: the same however often it is computed; KV key and subject infix at once.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// The plan.
    pub plan: PlanId,
    /// The target.
    pub target: TargetId,
    /// The stage.
    pub stage: StageId,
}

impl TaskId {
    /// Puts the three together.
    pub fn new(plan: PlanId, target: TargetId, stage: StageId) -> Self {
        Self { plan, target, stage }
    }

    /// Reads `plan.target.stage`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(plan), Some(target), Some(stage), None) => {
                Ok(Self { plan: PlanId::new(plan)?, target: TargetId::new(target)?, stage: StageId::new(stage)? })
            }
            _ => Err(IdError {
                shown: text.chars().take(80).collect(),
                what: "task id",
                reason: "it is not three tokens joined by dots, plan.target.stage",
            }),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.plan, self.target, self.stage)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_single_tokens() {
        for good in ["SH_0312", "a", "9", "x-y_z", &"a".repeat(64)] {
            assert!(TargetId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "_a", "-a", "a.b", "a b", "a*", ">", "é", &"a".repeat(65), &"a".repeat(1_000_000)] {
            let error = TargetId::new(bad).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.len() < 300), "{error:?}");
        }
    }

    #[test]
    fn task_ids_round_trip() {
        let id = TaskId::parse("plan_7788.SH_0312.main");
        assert_eq!(id.as_ref().map(ToString::to_string), Ok("plan_7788.SH_0312.main".to_owned()));
        assert!(TaskId::parse("a.b").is_err());
        assert!(TaskId::parse("a.b.c.d").is_err());
    }
}

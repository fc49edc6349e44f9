//! The pure core of fanfold: what a plan and a task are, how events are folded, what ought to happen next.
//!
//! **Invariants of this crate.** No clock, no randomness, no I/O, no async, no NATS. Time comes in as epoch milliseconds with the
//! event or as an argument; two folds of the same events give equal values; nothing here panics on stored bytes.
//!
//! Reading order: [`ids`], [`event`], [`plan`], [`task`], [`fold`] (the state table), [`view`] (a plan with its tasks), then the
//! policies that return decisions as values: [`dispatch`], [`barrier`], and the account: [`summary`], [`aggregate`].

pub mod aggregate;
pub mod barrier;
pub mod bits;
pub mod dispatch;
pub mod event;
pub mod fold;
pub mod holes;
pub mod ids;
pub mod plan;
#[doc(hidden)]
pub mod planted;
pub mod retry;
pub mod rules;
pub mod sets;
pub mod summary;
pub mod targets;
pub mod task;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod view;

use std::sync::Arc;

use serde_json::value::RawValue;

/// A JSON text kept as it was written: never parsed on the hot path, never reordered.
pub type Json = Arc<RawValue>;

/// Version of the rules new plans are submitted with; pinned in `plan.submitted`, so that a fix of the fold never changes an old
/// account. See [`rules`].
pub const RULES_VERSION: u32 = rules::Rules::CURRENT.version();

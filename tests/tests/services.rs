//! The real service loops over the ledger in memory, in virtual time, with the real terminals, scripted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "services/behind.rs"]
mod behind;
#[path = "services/control.rs"]
mod control;
#[path = "services/edges.rs"]
mod edges;
#[path = "services/elsewhere.rs"]
mod elsewhere;
#[path = "services/flood.rs"]
mod flood;
#[path = "services/full.rs"]
mod full;
#[path = "services/heal.rs"]
mod heal;
#[path = "services/hq.rs"]
mod hq;
#[path = "services/large.rs"]
mod large;
#[path = "services/record.rs"]
mod record;
#[path = "services/replaced.rs"]
mod replaced;
#[path = "services/rules.rs"]
mod rules;
#[path = "services/runs.rs"]
mod runs;
#[path = "services/terminal_crashes.rs"]
mod terminal_crashes;
#[path = "services/terminal_faults.rs"]
mod terminal_faults;

//! The real service loops over the ledger in memory, in virtual time, with small scripted terminals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "services/control.rs"]
mod control;
#[path = "services/edges.rs"]
mod edges;
#[path = "services/hq.rs"]
mod hq;
#[path = "services/runs.rs"]
mod runs;
#[path = "services/sim.rs"]
mod sim;

//! The ledger: the one place that knows where the truth is kept.
//!
//! [`port`] says what services may ask; [`memory`] and [`jetstream`] answer it; [`conformance`] is the one suite both pass.
//!
//! What is deliberately absent: no business rule is decided here, no event is folded outside the open-plans component,
//! and no name of async-nats appears in the port.

pub mod conformance;
pub mod jetstream;
pub mod lead;
pub mod memory;
pub mod open;
pub mod port;
pub mod subject;
pub mod watch;
pub mod write;

mod fence;
mod gaps;
mod intake;

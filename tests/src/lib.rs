//! The harness: a real nats-server, every service and every store as a process of its own, judged by what the log, the readers'
//! records and the stores' own accounts say.
//!
//! ```text
//! Stack::together(BIN) / apart(BIN)   server on a random port, services, all ended when dropped, also when a test fails
//!   .fleet("east", &ids).start()      terminals in one process: faults, journal, kill, restart, their own account
//!   .hq                               submit, look, wait for an event, verify
//!   .cli()                            the command line as people use it
//! Cluster::start(BIN, false)          three servers from nats/cluster, killed, ended and brought back; services and fleets on them
//! Hand::connect(url, id)              a terminal played by hand over plain NATS
//! World::new()                        every service over one ledger in memory, in virtual time ([`world`])
//!   .terminal("S1", script)           the real terminal library on it ([`world::terminal`]): crash_at, twin, journal_full, bad_air
//! ```
//!
//! Nothing here waits by sleeping: [`wait::until`] looks again until something is so, and fails with what it was when its time is up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod account;
pub mod chaos;
pub mod cli;
pub mod cluster;
pub mod fleet;
pub mod hand;
pub mod hq;
pub mod left;
pub mod plans;
pub mod process;
pub mod stack;
pub mod wait;
pub mod world;

//! The terminal library: everything a process needs to execute fanfold's tasks, except what the tasks do.
//!
//! A terminal author writes a [`Handler`], puts it into a [`Registry`] under its type and version, opens a [`Journal`] and calls
//! [`Terminal::start`]. Many terminals may share one process, one connection and one journal file; a store's agent is the case of
//! one.
//!
//! **Invariants of this crate.** No attempt is run twice, across restarts too: its begin is durable before the handler starts. No
//! result is lost once the handler returned and the journal took it: it is sent, byte for byte the same, until HQ answers. A task has
//! at most one run at a time. What a terminal does is decided in [`holds`], which does no I/O and reads no clock. Only durations from
//! receipt are used, never HQ's absolute times. A killed process may have acted half way: handlers must be repeatable.

mod actor;
mod chance;
mod clock;
mod config;
pub mod connection;
mod connects;
mod error;
mod handler;
pub mod holds;
pub mod journal;
mod outbox;
mod reporter;
mod reports;
mod runner;
mod slots;
mod stats;
mod terminal;
pub mod transport;

pub use chance::{Chance, SplitMix64};
pub use clock::WallClock;
pub use config::TerminalConfig;
pub use connects::Connects;
pub use error::TerminalError;
pub use handler::{Handler, HandlerError, Registry, RunContext, STEPS_MAX, StepReporter};
pub use journal::{DiskJournal, DiskOptions, Journal, JournalError, MemoryJournal};
pub use slots::slots_ceiling;
pub use stats::TerminalStats;
pub use terminal::{Terminal, TerminalHandle};
pub use transport::Transport;

pub use fanfold_wire as wire;

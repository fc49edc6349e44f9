//! The store terminal: what runs in a shop and does the work HQ hands out.
//!
//! * [`collect_log`] gathers one day's log lines and the configuration of a store.
//! * [`agent`] is the process of one store; [`host`] runs many simulated ones, with faults on purpose.
//! * [`fixture`] writes store folders for examples, benches and tests, the same ones every time.

pub mod agent;
pub mod collect_log;
pub mod crowd;
pub mod fixture;
pub mod handlers;
pub mod host;

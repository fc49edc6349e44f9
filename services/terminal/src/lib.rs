//! The store terminal: what runs in a shop and does the work HQ hands out.
//!
//! * [`collect_log`] gathers one day's log lines and the configuration of a store.
//! * [`fixture`] writes store folders for examples, benches and tests, the same ones every time.

pub mod collect_log;
pub mod fixture;

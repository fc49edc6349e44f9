//! The state table, row by row, as a whole, and under arbitrary histories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod lifecycle;
mod properties;
mod retry;
mod rows;
mod table;

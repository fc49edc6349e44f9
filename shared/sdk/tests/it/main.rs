//! Terminals against a real nats-server and an HQ played by the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod hq;
mod many;
mod restart;
mod runs;
mod work;

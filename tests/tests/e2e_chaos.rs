//! Every process there is, killed, frozen and doubled while a hundred terminals work: nothing is lost, nothing is done twice, and everybody
//! says the same.
//!
//! `just chaos SEED DISTURBANCES` runs more of it, and shows the table. A failure keeps the files of every process; with
//! `FANFOLD_CHAOS_KEEP=1` a success does, too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_tests::chaos::{Run, Settings};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_or_frozen_the_stores_own_account_agrees() {
    let mut run = Run::start(BIN, Settings::from_env()).await;
    run.disturb().await;
    run.settle().await;
    run.judge().await;
}

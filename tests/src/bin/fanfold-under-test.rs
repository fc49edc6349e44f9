//! The binary `fanfold` as the tests start it: the same library main as `services/fanfold/src/main.rs`.

use std::process::ExitCode;

use fanfold_tests::process::DIE_WITH_PARENT;

#[tokio::main]
async fn main() -> ExitCode {
    die_with_parent();
    fanfold::run(std::env::args_os()).await
}

/// Asks the kernel to kill this process when its test is gone; where there is no such kernel, an orderly end does.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if std::env::var_os(DIE_WITH_PARENT).is_some() {
        use rustix::process::{Signal, set_parent_process_death_signal};
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

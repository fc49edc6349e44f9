//! The binary `fanfold` as the tests start it: the same library main as `services/fanfold/src/main.rs`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    fanfold::run(std::env::args_os()).await
}

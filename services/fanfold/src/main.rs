//! The binary `fanfold`: everything is in the library, so that tests can link it.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    fanfold::run(std::env::args_os()).await
}

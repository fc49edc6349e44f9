//! The binary `fanfold`: everything is in the library, so that tests can link it.

use std::process::ExitCode;

/// See docs/adr/0012-mimalloc.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    fanfold::run(std::env::args_os()).await
}

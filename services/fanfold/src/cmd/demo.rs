//! `fanfold demo`: the whole thing on one machine, with stores that are late and stores that are broken.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::host::{HandlerKind, HostSpec, run_process};

use crate::cli::Global;
use crate::demo;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;

/// What the stores do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoHandler {
    /// Collect real logs from real files
    #[value(name = "collect_log")]
    CollectLog,
    /// Nothing, at once
    Noop,
}

/// Where the stores' journals are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoJournal {
    /// On disk, synced
    Disk,
    /// In memory
    Memory,
}

/// Show the whole thing: a server, every service, 300 stores, some of them broken
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold demo
  fanfold demo --stores 1000 --offline 0.1 --seed 7
  fanfold demo --stores 500 --in-flight 500 --offline 0 --slow 0 --flaky 0 \\
      --garbage 0 --hang 0 --duplicate 0 --json

Shares are of all stores, 0 to 1, and 1 at most together.
It ends with 0 only when every summary adds up, nothing ran twice, and the log
replays to the same bytes.")]
pub struct DemoArgs {
    /// How many stores
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub stores: u32,
    /// Servers that replicate each other, 1 or 3
    #[arg(long, value_name = "N", default_value = "1", value_parser = super::up::replicas)]
    pub replicas: u32,
    /// Time from the seal to the deadline, in milliseconds
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub deadline_ms: u64,
    /// Tasks out at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: u32,
    /// Share of stores that are offline until after the deadline
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    pub offline: f64,
    /// Share of stores that take most of a second
    #[arg(long, default_value_t = 0.03, value_parser = share)]
    pub slow: f64,
    /// Share of stores that fail once with a code that may be retried
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    pub flaky: f64,
    /// Share of stores that answer with other field names
    #[arg(long, default_value_t = 0.02, value_parser = share)]
    pub garbage: f64,
    /// Share of stores that never answer
    #[arg(long, default_value_t = 0.01, value_parser = share)]
    pub hang: f64,
    /// Share of stores that send every report three times
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    pub duplicate: f64,
    /// Which stores, logs and faults are drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What the stores do
    #[arg(long, value_enum, default_value = "collect_log")]
    pub handler: DemoHandler,
    /// Where the stores' journals are
    #[arg(long, value_enum, default_value = "disk")]
    pub journal: DemoJournal,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is not a share between 0 and 1")),
    }
}

impl DemoArgs {
    /// Whether this can be run at all; looked at before anything is started.
    ///
    /// # Errors
    /// `USAGE` where the shares of broken stores are more than all stores.
    pub fn check(&self) -> Result<(), CliError> {
        let shares = [
            ("--offline", self.offline),
            ("--slow", self.slow),
            ("--flaky", self.flaky),
            ("--garbage", self.garbage),
            ("--hang", self.hang),
            ("--duplicate", self.duplicate),
        ];
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if sum <= 1.0 {
            return Ok(());
        }
        let all: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {share}")).collect();
        let advice = "make some smaller, also those with defaults";
        Err(CliError::Usage(format!("the shares add up to {sum:.2}, more than all stores ({}); {advice}", all.join(", "))))
    }

    /// The handler as a host is told it.
    pub fn handler_kind(&self) -> HandlerKind {
        match self.handler {
            DemoHandler::CollectLog => HandlerKind::CollectLog,
            DemoHandler::Noop => HandlerKind::Noop,
        }
    }
}

/// Runs the demo.
///
/// # Errors
/// What keeps it from starting; that it was interrupted.
pub async fn run(args: &DemoArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    args.check()?;
    global.refuse_server("demo")?;
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    demo::run(args, global.json, out, shutdown).await
}

/// Run simulated terminals; started by the demo
#[derive(Debug, Args)]
pub struct TerminalHostArgs {
    /// What to run, a JSON file
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
}

/// Runs simulated terminals until stdin ends.
///
/// # Errors
/// A spec that can't be read; what keeps terminals from starting.
pub async fn run_host(args: &TerminalHostArgs, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    let spec: HostSpec = super::read_spec(&args.spec)?;
    run_process(spec, shutdown, |line| super::tell_parent(out, line))
        .await
        .map_err(|e| CliError::input(e.code(), e.to_string()))?;
    Ok(Exit::Ok)
}

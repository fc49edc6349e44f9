//! `fanfold bench`: how fast it is, against what the server itself can do.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::crowd::{CrowdSpec, run_crowd};

use crate::bench::{self, Scenario};
use crate::cli::Global;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;

/// Measure: the whole job against bare publishes of the same bytes
#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  fanfold bench
  fanfold bench --tasks 100000 --durable false --json
  fanfold bench --tasks 100000 --plans 50 --terminals 2000
  fanfold bench --tasks 500 --runs 20
  fanfold bench idle --terminals 100000

Server, services and terminals run on this machine, each a process of its own.
A task is handed out, answered at once with a result of about 300 bytes, folded,
projected and summarised. The floor is the same three messages a task, published
by one client and acknowledged, with nothing else done.
With --nats the given server is measured, without credentials. Services of the
bench serve on it, and its log keeps the plans: use one of your own. A server
that only the environment names is left alone."
)]
pub struct BenchArgs {
    /// Tasks of a run, over all its plans
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: u32,
    /// Terminals; without it one a task of a plan
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub terminals: Option<u32>,
    /// Tasks out at once; without it all
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: Option<u32>,
    /// Plans at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub plans: u32,
    /// Sync the log to disk at every write
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub durable: bool,
    /// Runs; figures are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub runs: u32,
    /// Connections the terminals share
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Heartbeat interval of the terminals, in milliseconds
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    pub beat_ms: u64,
    /// What else is measured; without it the whole job
    #[command(subcommand)]
    pub scenario: Option<Scenario>,
}

impl BenchArgs {
    /// Tasks of the `n`th plan: as equal as can be.
    pub fn tasks_of(&self, n: u32) -> u32 {
        self.tasks / self.plans + u32::from(n < self.tasks % self.plans)
    }

    /// Terminals.
    pub fn terminals(&self) -> u32 {
        self.terminals.unwrap_or_else(|| self.tasks_of(0))
    }

    /// Tasks out at once.
    pub fn window(&self) -> u32 {
        self.window.unwrap_or(self.tasks)
    }
}

/// Runs the bench.
///
/// # Errors
/// What keeps it from running to its end.
pub async fn run(args: &BenchArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    if global.creds_given().is_some() {
        return Err(CliError::Usage("`fanfold bench` measures a server without credentials and does not use --creds".to_owned()));
    }
    if let Some(scenario) = &args.scenario {
        if global.nats_given().is_some() {
            return Err(CliError::Usage("this scenario needs a server of its own and does not use --nats".to_owned()));
        }
        let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
        return bench::run_scenario(scenario, global.json, out, shutdown).await;
    }
    if args.tasks_of(0) > args.terminals() {
        return Err(CliError::Usage(format!(
            "a plan of {} tasks needs as many terminals, --terminals is {}: raise it, or divide the tasks over more --plans",
            args.tasks_of(0),
            args.terminals()
        )));
    }
    if args.plans > args.tasks {
        return Err(CliError::Usage(format!("{} plans for {} tasks: some would have none", args.plans, args.tasks)));
    }
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    bench::run(args, global.nats_given(), global.json, out, shutdown).await
}

/// Run a crowd of terminals; started by the bench
#[derive(Debug, Args)]
pub struct CrowdArgs {
    /// What to run, a JSON file
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
}

/// Runs a crowd until stdin ends.
///
/// # Errors
/// A spec that can't be read; what keeps terminals from starting.
pub async fn run_host(args: &CrowdArgs, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    let spec: CrowdSpec = super::read_spec(&args.spec)?;
    run_crowd(&spec, shutdown, |line| super::tell_parent(out, line))
        .await
        .map_err(|e| CliError::input(e.code(), e.to_string()))?;
    Ok(Exit::Ok)
}

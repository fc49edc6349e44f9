//! What can be said at the command line.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::cmd;
use crate::error::CliError;
use crate::exit;

/// Fans one plan out to every store's terminal and folds what comes back into an honest summary.
#[derive(Debug, Parser)]
#[command(name = "fanfold", version, propagate_version = true, after_help = exit::TABLE, max_term_width = 110)]
pub struct Cli {
    /// Options every command knows.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options every command knows.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The nats-server; without it the running `fanfold up`'s, else nats://127.0.0.1:4222
    #[arg(long, global = true, env = "FANFOLD_NATS", value_name = "URL")]
    pub nats: Option<String>,
    /// Credentials file for the server
    #[arg(long, global = true, env = "FANFOLD_NATS_CREDS", value_name = "FILE")]
    pub creds: Option<PathBuf>,
    /// Answer in JSON, errors too
    #[arg(long, global = true)]
    pub json: bool,
    /// Who asks, as the log will say; without it $USER
    #[arg(long, global = true, value_name = "NAME")]
    pub by: Option<String>,
    /// Say more on stderr; twice: everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

impl Global {
    /// Refuses `--nats` and `--creds` of a command that starts a server of its own; what the environment says is no concern of it.
    ///
    /// # Errors
    /// `USAGE`.
    pub fn refuse_server(&self, command: &str) -> Result<(), CliError> {
        let given = self.nats_given().map(|_| "--nats").or(self.creds_given().map(|_| "--creds"));
        given.map_or(Ok(()), |given| {
            Err(CliError::Usage(format!(
                "`fanfold {command}` starts a server of its own and does not use {given}; `fanfold serve` works on a server that is there"
            )))
        })
    }

    /// The server, where it is not only the environment that names it.
    pub fn nats_given(&self) -> Option<&str> {
        let env = std::env::var_os("FANFOLD_NATS");
        self.nats.as_deref().filter(|url| env.as_deref() != Some(OsStr::new(url)))
    }

    /// The credentials, where it is not only the environment that names them.
    pub fn creds_given(&self) -> Option<&Path> {
        let env = std::env::var_os("FANFOLD_NATS_CREDS");
        self.creds.as_deref().filter(|file| env.as_deref() != Some(file.as_os_str()))
    }

    /// Who asks.
    pub fn who(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|u| !u.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "unknown".to_owned())
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole thing: a server, every service, 300 stores, some of them broken
    Demo(cmd::demo::DemoArgs),
    /// Start a nats-server and every service; keep the log in a folder
    Up(cmd::up::UpArgs),
    /// Run services on an existing nats-server
    Serve(cmd::serve::ServeArgs),
    /// Measure: the whole job against bare publishes of the same bytes
    Bench(cmd::bench::BenchArgs),
    /// Run a crowd of terminals; started by the bench
    #[command(hide = true)]
    BenchCrowd(cmd::bench::CrowdArgs),
    /// Run simulated terminals; started by the demo
    #[command(hide = true)]
    TerminalHost(cmd::demo::TerminalHostArgs),
    /// Run a store's terminal, list terminals, replace one
    #[command(subcommand)]
    Terminal(cmd::terminal::TerminalCommand),
    /// Import and list stores
    #[command(subcommand)]
    Stores(cmd::stores::StoresCommand),
    /// Submit, follow, cancel and close plans
    #[command(subcommand)]
    Plan(cmd::plan::PlanCommand),
    /// Look at tasks and requeue failed ones
    #[command(subcommand)]
    Task(cmd::task::TaskCommand),
    /// Show the account of a plan: who is in, who is missing, why
    Summary(cmd::summary::SummaryArgs),
    /// Read the log
    Events(cmd::events::EventsArgs),
    /// Register and list task types
    #[command(subcommand)]
    Type(cmd::types::TypeCommand),
    /// Compute a plan's account again from the log, or check that everything written is true
    Replay(cmd::replay::ReplayArgs),
    /// Carry the log away: a copy of everything that is kept, while the system runs
    Backup(cmd::backup::BackupArgs),
    /// Bring a backup back, to an empty folder or a server without these streams
    Restore(cmd::restore::RestoreArgs),
    /// Fold the log anew into the state bucket, while everything runs
    Rebuild(cmd::rebuild::RebuildArgs),
    /// Say what is running and what is not, and what to do about it
    Doctor(cmd::doctor::DoctorArgs),
    /// The exit codes and what they mean
    #[command(long_about = exit::TABLE)]
    ExitCodes,
}

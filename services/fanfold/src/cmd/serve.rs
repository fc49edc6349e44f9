//! `fanfold serve`: some or all services, on a server that is there.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fanfold_ledger::jetstream::{ConnectOpts, ProvisionOpts};
use fanfold_ledger::port::Ledger;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::server_url::shown_url;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::up::read_config;
use crate::cli::Global;
use crate::client::server_url;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{self, Role, server};
use crate::out::Out;

/// Run services on an existing nats-server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fanfold serve --nats nats://hq:4222                  # all in one process
  fanfold serve --nats nats://hq:4222 --role recorder  # one more recorder
  fanfold serve --nats nats://hq:4222 --role dispatcher --role convergence

Several processes may serve the same role: recorders and apis share the work,
of the others one acts and the rest stand by.")]
pub struct ServeArgs {
    /// Service to run; may be repeated; without it all
    #[arg(long, value_enum)]
    pub role: Vec<Role>,
    /// Replicas of streams and buckets that are made here, 1 to 5
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub replicas: u32,
    /// How long the server remembers message ids, in seconds, where the log is made here
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub duplicate_window_s: u64,
    /// TOML file with bounds and clocks of the services
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End when stdin does: whoever started this process is gone
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// Runs until a signal.
///
/// # Errors
/// What keeps it from starting; a service that died.
pub async fn run(args: &ServeArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    if args.until_stdin_ends {
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            // Nothing is said on stdin: whatever comes of reading it is its end.
            let _ = tokio::io::stdin().read(&mut [0]).await;
            shutdown.trigger();
        });
    }
    let config = read_config(args.config.as_deref())?;
    let roles = if args.role.is_empty() { Role::ALL.to_vec() } else { args.role.clone() };
    let url = server_url(global.nats.as_deref());
    let mut opts = ConnectOpts::new(url.clone(), "fanfold-serve");
    opts.creds_file = global.creds.as_ref().map(|p| p.display().to_string());
    let window_ms = args.duplicate_window_s * 1_000;
    opts.policy.known_ids_ms = opts.policy.known_ids_ms.min(window_ms);
    let provision = ProvisionOpts { replicas: args.replicas, duplicate_window_ms: window_ms, ..ProvisionOpts::default() };
    let connect = || {
        let (opts, provision) = (opts.clone(), provision.clone());
        async move { Ok(Arc::new(server::connect(opts, &provision).await?) as Arc<dyn Ledger>) }
    };
    let started = || {
        let names: Vec<String> = roles.iter().map(|r| format!("{r:?}").to_lowercase()).collect();
        if global.json {
            out.json(&json!({ "url": shown_url(&url), "pid": std::process::id(), "roles": names }))
        } else {
            out.text(&format!("serving {} on {}; Ctrl-C ends it", names.join(", "), shown_url(&url)))
        }
    };
    let told = out.clone();
    host::keep(connect, &roles, &config, &shutdown, started, move |line| told.note(line)).await?;
    Ok(Exit::Ok)
}

//! `fanfold up`: everything in one process, on an embedded server that keeps its log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use fanfold_ledger::jetstream::ConnectOpts;
use fanfold_ledger::port::Ledger;
use fanfold_process::embedded::EmbeddedServers;
use fanfold_process::shutdown::Shutdown;
use fanfold_process::tasks::Tasks;
use serde_json::json;

use crate::cli::Global;
use crate::client::UpState;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{self, Role, ServicesConfig, server};
use crate::out::Out;

/// Start a nats-server and every service; keep the log in a folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fanfold up --data ./fanfold-data
  fanfold up --data ./fanfold-data --port 4222
  fanfold up --data ./fanfold-cluster --replicas 3

The same folder is found again by the next `up`, on the same port where that is
free: open plans go on where they were, and terminals that run find it again.
Other commands on this machine find the server by themselves. It listens on
loopback only; for stores elsewhere run a nats-server with credentials and
`fanfold serve` (see README). With --replicas 3 there are three servers, each
with a copy of everything: any one of them may die or be damaged and the work
goes on.")]
pub struct UpArgs {
    /// Folder of the server's log
    #[arg(long, value_name = "DIR", default_value = "fanfold-data")]
    pub data: PathBuf,
    /// Servers that replicate each other, 1 or 3; without it as many as the folder was made for, else 1
    #[arg(long, value_name = "N", value_parser = replicas)]
    pub replicas: Option<u32>,
    /// Port of the server (with three: of the first, the others take the next two); without it the folder's last, else a free one
    #[arg(long)]
    pub port: Option<u16>,
    /// TOML file with bounds and clocks of the services
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// One server or three: two would stand still as soon as one is away.
pub(super) fn replicas(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(replicas @ (1 | 3)) => Ok(replicas),
        _ => Err(format!("`{text}` is neither 1 nor 3")),
    }
}

/// Reads a services configuration.
///
/// # Errors
/// `BAD_CONFIG` with the place.
pub fn read_config(path: Option<&Path>) -> Result<ServicesConfig, CliError> {
    let Some(path) = path else { return Ok(ServicesConfig::default()) };
    let text = std::fs::read_to_string(path).map_err(|e| CliError::file(path, e))?;
    toml::from_str(&text).map_err(|e| CliError::input("BAD_CONFIG", format!("{}: {e}", path.display())))
}

/// Runs until a signal.
///
/// # Errors
/// What keeps it from starting; a service that died.
pub async fn run(args: &UpArgs, global: &Global, out: &Out) -> Result<Exit, CliError> {
    global.refuse_server("up")?;
    let shutdown = Shutdown::on_signals().map_err(|e| CliError::Internal(e.to_string()))?;
    let config = read_config(args.config.as_deref())?;
    let told = out.clone();
    let binary = server::find(move |line| told.note(line)).await?;
    let version = binary.version.to_string();
    // A log that takes long to be restored must not keep it from ending.
    let nats = tokio::select! {
        nats = server::start(binary, args.data.clone(), args.port, args.replicas) => nats?,
        () = shutdown.wait() => return Ok(Exit::Ok),
    };
    for moved in server::moved(&nats) {
        out.note(&moved);
    }
    let result = serve_on(&nats, &config, global, out, &version, &shutdown).await;
    nats.stop().await;
    result
}

async fn serve_on(
    nats: &Arc<EmbeddedServers>,
    config: &ServicesConfig,
    global: &Global,
    out: &Out,
    version: &str,
    shutdown: &Shutdown,
) -> Result<Exit, CliError> {
    let url = nats.url();
    let provision = server::provision_for(nats);
    let connect = || {
        let (opts, provision) = (ConnectOpts::new(nats.url(), "fanfold-up"), provision.clone());
        async move { Ok(Arc::new(server::connect(opts, &provision).await?) as Arc<dyn Ledger>) }
    };
    // The servers are watched apart from the services: they must outlive them while they drain.
    let mut watched = Tasks::new(shutdown.clone());
    let told = out.clone();
    server::watch_all(nats, &mut watched, shutdown, move |line| told.note(line));
    let mut state = None;
    let started = || {
        state = StateFile::write(&url, out)?;
        if global.json {
            let (urls, pids) = (nats.urls(), nats.pids());
            return out.json(&json!({
                "url": url, "urls": urls, "pid": std::process::id(), "serverPid": pids.first(), "serverPids": pids,
                "replicas": pids.len(), "serverVersion": version
            }));
        }
        let servers = if nats.members().len() > 1 { format!("{} replicas, ", nats.members().len()) } else { String::new() };
        out.text(&format!(
            "fanfold is up on {url} ({servers}nats-server {version})\n\n  fanfold terminal run --id SH_0312 --root ./store     be a store\n  \
             fanfold plan submit docs/examples/plan.json --watch  hand out a task\n  fanfold doctor                                       see that all is well\n\nCtrl-C ends it; the log stays."
        ))
    };
    let told = out.clone();
    let ended = host::keep(connect, &Role::ALL, config, shutdown, started, move |line| told.note(line)).await;
    drop(state);
    ended?;
    watched
        .join(std::time::Duration::from_secs(5))
        .await
        .map_err(|e| CliError::Server { code: e.code(), message: e.to_string() })?;
    Ok(Exit::Ok)
}

/// Where other commands find this server; removed at the end if it is still ours.
struct StateFile {
    state: UpState,
    path: PathBuf,
}

impl StateFile {
    fn write(url: &str, out: &Out) -> Result<Option<Self>, CliError> {
        let Some(path) = UpState::path() else { return Ok(None) };
        if let Some(other) = UpState::read(&path).filter(|o| o.pid != std::process::id()) {
            out.note(&format!(
                "another `fanfold up` runs (process {}) and other commands find that one; name this one with --nats {url}",
                other.pid
            ));
            return Ok(None);
        }
        let state = UpState { url: url.to_owned(), pid: std::process::id() };
        state.write(&path).map_err(|e| CliError::file(&path, e))?;
        Ok(Some(Self { state, path }))
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        self.state.remove(&self.path);
    }
}

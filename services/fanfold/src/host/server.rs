//! The embedded server: found or installed, started, watched and brought back when it dies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::LedgerError;
use fanfold_process::embedded::{EmbeddedConfig, EmbeddedError, EmbeddedServer, LocateOptions, ServerBinary, locate};
use fanfold_process::shutdown::Shutdown;

use crate::error::CliError;

/// Times a server that dies is brought back before it is given up; the count starts anew after a minute of life.
const REVIVALS_MAX: u32 = 5;

impl From<EmbeddedError> for CliError {
    fn from(error: EmbeddedError) -> Self {
        CliError::Server { code: error.code(), message: error.to_string() }
    }
}

/// Finds or installs the server; `say` hears what takes time.
///
/// # Errors
/// `NATS_SERVER_UNAVAILABLE` with three ways out, `NATS_SERVER_UNUSABLE`.
pub async fn find(say: impl Fn(&str) + Send + 'static) -> Result<ServerBinary, CliError> {
    let located = tokio::task::spawn_blocking(move || locate(&LocateOptions::from_env(), &say)).await;
    Ok(located.map_err(|e| CliError::Internal(e.to_string()))??)
}

/// Starts a server on a folder that keeps its log.
///
/// # Errors
/// `DATA_DIR_LOCKED` and the other codes of the embedded server.
pub async fn start(binary: ServerBinary, data_dir: PathBuf, port: Option<u16>) -> Result<Arc<EmbeddedServer>, CliError> {
    let mut config = EmbeddedConfig::new(binary.path, data_dir);
    config.port = port;
    Ok(Arc::new(EmbeddedServer::start(config).await?))
}

/// Brings the server back whenever it ends unasked, until shutdown.
///
/// # Errors
/// When it keeps dying.
pub async fn watch(server: Arc<EmbeddedServer>, shutdown: Shutdown) -> Result<(), CliError> {
    let mut revivals = 0;
    loop {
        let started = tokio::time::Instant::now();
        let exit = tokio::select! {
            exit = server.exited() => exit,
            () = shutdown.wait() => return Ok(()),
        };
        if shutdown.is_triggered() {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(60) {
            revivals = 0;
        }
        revivals += 1;
        tracing::error!(pid = exit.pid, code = ?exit.code, signal = ?exit.signal, revivals, "nats-server ended; it is started again on the same log");
        if revivals > REVIVALS_MAX {
            let message = format!("nats-server ended {revivals} times within a minute; its last words:\n{}", exit.log_tail);
            return Err(CliError::Server { code: "NATS_SERVER_FAILED", message });
        }
        tokio::time::sleep(Duration::from_millis(100 * u64::from(revivals))).await;
        server.restart().await?;
    }
}

/// Connects and makes sure that every stream and bucket is as it should be.
///
/// # Errors
/// Those of the ledger.
pub async fn connect(opts: ConnectOpts, provision: &ProvisionOpts) -> Result<JetStreamLedger, LedgerError> {
    let ledger = JetStreamLedger::connect(opts).await?;
    ledger.provision(provision).await?;
    Ok(ledger)
}

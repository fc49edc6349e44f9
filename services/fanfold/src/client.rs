//! Reaching the services: which server, and requests to `ff.api.<noun>.<verb>`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, Policy};
use fanfold_ledger::port::Ledger;
use fanfold_wire::api::ApiAnswer;
use fanfold_wire::subjects;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::session::Session;

/// The server where nobody says which.
pub const DEFAULT_URL: &str = "nats://127.0.0.1:4222";
/// How long an answer is waited for.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long the answer to a submission is waited for: a million targets are checked and sealed in it.
pub const SUBMIT_WAIT: Duration = Duration::from_secs(60);
/// How long a command tries to reach the log before it says so, in milliseconds.
const BUDGET_MS: u64 = 10_000;

/// What a running `fanfold up` leaves for other commands of the same person to find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpState {
    /// URL of its server; of several, divided by commas.
    pub url: String,
    /// Its process id.
    pub pid: u32,
}

impl UpState {
    /// Where the file is: `$XDG_RUNTIME_DIR/fanfold/up.json`, else `$HOME/.cache/fanfold/up.json`; `None` where neither is set.
    pub fn path() -> Option<PathBuf> {
        let dir = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self::path_in(dir("XDG_RUNTIME_DIR"), dir("HOME"))
    }

    fn path_in(runtime: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
        runtime.or_else(|| home.map(|h| h.join(".cache"))).map(|dir| dir.join("fanfold").join("up.json"))
    }

    /// Reads the file; `None` when it isn't there, can't be read, or its process has gone.
    pub fn read(path: &Path) -> Option<Self> {
        let state: Self = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        // Where there is no /proc a stale file only leads to "no server at ...", which names the URL.
        let known_dead = Path::new("/proc/self").exists() && !Path::new("/proc").join(state.pid.to_string()).exists();
        (!known_dead).then_some(state)
    }

    /// Writes the file, in one step.
    ///
    /// # Errors
    /// The system's, when the folder can't be made or the file can't be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let beside = path.with_extension(format!("{}.tmp", self.pid));
        std::fs::write(&beside, serde_json::to_vec(self)?)?;
        std::fs::rename(&beside, path)
    }

    /// Removes the file if it is still this process's.
    pub fn remove(&self, path: &Path) {
        if Self::read(path).as_ref() == Some(self) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The server to use: the one named, else the running `fanfold up`'s, else [`DEFAULT_URL`].
pub fn server_url(named: Option<&str>) -> String {
    let running = || UpState::path().and_then(|p| UpState::read(&p)).map(|s| s.url);
    named.map(ToOwned::to_owned).or_else(running).unwrap_or_else(|| DEFAULT_URL.to_owned())
}

/// Connects a command to the server.
///
/// # Errors
/// `UNAVAILABLE`, `UNAUTHORIZED`, `SERVER_TOO_OLD`.
pub async fn connect(url: &str, creds: Option<&Path>) -> Result<JetStreamLedger, CliError> {
    let mut opts = ConnectOpts::new(url, "fanfold-cli");
    opts.creds_file = creds.map(|p| p.to_string_lossy().into_owned());
    opts.policy = Policy { budget_ms: BUDGET_MS, ..Policy::default() };
    Ok(JetStreamLedger::connect(opts).await?)
}

/// Asks the API `ff.api.<noun>.<verb>` and reads its answer.
///
/// # Errors
/// [`CliError::Api`] when it says no, [`CliError::Request`] when nobody answers, [`CliError::Answer`] when the answer can't be read.
pub async fn call<T: DeserializeOwned>(
    ledger: &dyn Ledger,
    noun: &str,
    verb: &str,
    request: &impl Serialize,
    wait: Duration,
) -> Result<T, CliError> {
    let body =
        serde_json::to_vec(request).map_err(|e| CliError::Internal(format!("a request could not be written as JSON: {e}")))?;
    call_raw(ledger, noun, verb, body, wait).await
}

async fn call_raw<T: DeserializeOwned>(
    ledger: &dyn Ledger,
    noun: &str,
    verb: &str,
    body: Vec<u8>,
    wait: Duration,
) -> Result<T, CliError> {
    let subject = subjects::api(noun, verb);
    let answer = ledger.request(&subject, Bytes::from(body), wait).await?;
    match serde_json::from_slice::<ApiAnswer<T>>(&answer) {
        Ok(ApiAnswer::Ok(value)) => Ok(value),
        Ok(ApiAnswer::Error(error)) => Err(CliError::Api(error)),
        Err(e) => Err(CliError::Answer { subject, reason: e.to_string() }),
    }
}

impl Session {
    /// Asks the API and reads its answer.
    ///
    /// # Errors
    /// [`CliError::Api`] when it says no, [`CliError::Request`] when nobody answers, [`CliError::Answer`] when the answer can't be read.
    pub async fn call<T: DeserializeOwned>(&self, noun: &str, verb: &str, request: &impl Serialize) -> Result<T, CliError> {
        call(self.ledger.as_ref(), noun, verb, request, ANSWER_WAIT).await
    }

    /// As [`Session::call`], with an encoded request and a time to wait.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub async fn call_raw<T: DeserializeOwned>(
        &self,
        noun: &str,
        verb: &str,
        body: Vec<u8>,
        wait: Duration,
    ) -> Result<T, CliError> {
        call_raw(self.ledger.as_ref(), noun, verb, body, wait).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_state_file_is_found_and_believed_only_while_its_process_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = UpState::path_in(Some(dir.path().to_owned()), None).unwrap();
        assert_eq!(UpState::read(&path), None);
        let state = UpState { url: "nats://127.0.0.1:5000".into(), pid: std::process::id() };
        state.write(&path).unwrap();
        assert_eq!(UpState::read(&path), Some(state.clone()));
        let other = UpState { pid: 4_000_000_000, ..state.clone() };
        other.remove(&path);
        assert!(path.exists());
        state.remove(&path);
        assert!(!path.exists());
        other.write(&path).unwrap();
        if Path::new("/proc/self").exists() {
            assert_eq!(UpState::read(&path), None);
        }
        let home = UpState::path_in(None, Some("/h".into())).unwrap();
        assert_eq!(home, Path::new("/h/.cache/fanfold/up.json"));
        assert_eq!(UpState::path_in(None, None), None);
    }
}

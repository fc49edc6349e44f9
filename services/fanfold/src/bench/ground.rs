//! Where a bench takes place: a server, the services on it, and terminals, each a process of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger};
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::crowd::CrowdSpec;
use tokio::time::Instant;

use super::usage::Usage;
use crate::child::ChildProcess;
use crate::error::CliError;

/// How long a process may take to start; a hundred thousand terminals take a while.
const START_WITHIN: Duration = Duration::from_secs(180);
/// How long terminals may take until HQ has answered each.
const SYNCED_WITHIN: Duration = Duration::from_secs(180);
/// Between two looks at the terminals, and how long such a look may take.
const LOOK: Duration = Duration::from_millis(50);
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// See the module. Dropping it kills services and terminals; the server is its owner's.
pub(crate) struct Ground {
    pub(crate) ledger: Arc<JetStreamLedger>,
    url: String,
    folder: PathBuf,
    hq: Option<ChildProcess>,
    crowd: Option<ChildProcess>,
}

/// Goes on with it until a signal comes.
pub(crate) async fn unless<T>(shutdown: &Shutdown, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        biased;
        () = shutdown.wait() => Err(CliError::Interrupted),
        done = work => done,
    }
}

fn written(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|e| CliError::file(path, e))
}

impl Ground {
    /// Connects to a server; `folder` takes the files of what is started here.
    ///
    /// # Errors
    /// Those of the ledger.
    pub(crate) async fn on(url: &str, folder: &Path) -> Result<Self, CliError> {
        let ledger = Arc::new(JetStreamLedger::connect(ConnectOpts::new(url, "fanfold-bench")).await?);
        Ok(Self { ledger, url: url.to_owned(), folder: folder.to_owned(), hq: None, crowd: None })
    }

    /// Starts services, all where no role is named; those that ran are killed before. Returns when they serve.
    ///
    /// # Errors
    /// What keeps them from starting.
    pub(crate) async fn serve(&mut self, config: &str, roles: &[&str]) -> Result<(), CliError> {
        self.hq = None;
        let file = self.folder.join("services.toml");
        written(&file, config)?;
        let mut args: Vec<&OsStr> =
            vec!["serve".as_ref(), "--until-stdin-ends".as_ref(), "--nats".as_ref(), self.url.as_ref(), "--config".as_ref()];
        args.push(file.as_os_str());
        for role in roles {
            args.extend([OsStr::new("--role"), OsStr::new(role)]);
        }
        let mut hq = ChildProcess::start("the services", args)?;
        hq.hear("serving", START_WITHIN).await?;
        self.hq = Some(hq);
        Ok(())
    }

    /// Kills the services.
    pub(crate) fn kill_services(&mut self) {
        self.hq = None;
    }

    /// Ends the terminals.
    pub(crate) fn stop_terminals(&mut self) {
        self.crowd = None;
    }

    /// Starts a crowd and waits until HQ has answered each of it; one that ran is killed before.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub(crate) async fn crowd(&mut self, mut spec: CrowdSpec) -> Result<(), CliError> {
        self.crowd = None;
        spec.url.clone_from(&self.url);
        let file = self.folder.join("crowd.json");
        written(&file, &serde_json::to_string(&spec).map_err(|e| CliError::Internal(e.to_string()))?)?;
        let mut crowd = ChildProcess::start("the terminals", ["bench-crowd".as_ref(), "--spec".as_ref(), file.as_os_str()])?;
        crowd.hear("ready", START_WITHIN).await?;
        self.crowd = Some(crowd);
        self.synced().await.map(drop)
    }

    /// The terminals.
    ///
    /// # Errors
    /// There are none.
    fn terminals(&mut self) -> Result<&mut ChildProcess, CliError> {
        self.crowd.as_mut().ok_or_else(|| CliError::Internal("no terminals were started".into()))
    }

    /// Waits until each terminal has had a sync answered since the last `mark`, or its start; gives most asked by one of them, and
    /// unanswered ones of all.
    ///
    /// # Errors
    /// Not all had one in three minutes.
    pub(crate) async fn synced(&mut self) -> Result<(u64, u64), CliError> {
        let begun = Instant::now();
        let terminals = self.terminals()?;
        loop {
            terminals.tell("stats").await?;
            let line = terminals.hear("stats", ANSWERS_WITHIN).await?;
            let numbers: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
            match numbers.as_slice() {
                [least, most, _, unanswered, ..] if *least > 0 => return Ok((*most, *unanswered)),
                _ if begun.elapsed() > SYNCED_WITHIN => {
                    return Err(CliError::Internal(format!(
                        "not all terminals had a sync answered in {SYNCED_WITHIN:?}: {line}"
                    )));
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// From here on [`Ground::synced`] counts anew.
    ///
    /// # Errors
    /// The terminals are gone.
    pub(crate) async fn mark(&mut self) -> Result<(), CliError> {
        let terminals = self.terminals()?;
        terminals.tell("mark").await?;
        terminals.hear("marked", ANSWERS_WITHIN).await.map(drop)
    }

    /// Of the services and the terminals.
    pub(crate) fn usage(&self) -> (Usage, Usage) {
        let of = |child: &Option<ChildProcess>| Usage::of(child.as_ref().and_then(ChildProcess::pid));
        (of(&self.hq), of(&self.crowd))
    }
}

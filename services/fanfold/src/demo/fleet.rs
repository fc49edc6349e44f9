//! The stores: their folders, their faults, and the processes their terminals run in.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fanfold_domain::ids::TerminalId;
use fanfold_terminal::fixture::{ExpectedStore, SplitMix64, write_store};
use fanfold_terminal::host::{Fault, HostSpec, HostedTerminal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::plan::DATE;
use crate::cmd::demo::{DemoArgs, DemoHandler, DemoJournal};
use crate::error::CliError;
use crate::out::Out;

/// Stores of one process.
const STORES_PER_PROCESS: usize = 150;
/// Most processes.
const PROCESSES_MAX: usize = 8;
/// How long a process may take to start or end.
const PROCESS_WITHIN: Duration = Duration::from_secs(60);

struct HostProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

/// All stores of the demo.
pub(crate) struct Fleet {
    terminals: Vec<HostedTerminal>,
    processes: Vec<HostProcess>,
    executions: Vec<PathBuf>,
    expected: Vec<ExpectedStore>,
}

/// What the stores know by themselves.
pub(crate) struct Expected {
    /// Files of the handlers' own accounts.
    pub(crate) executions: Vec<PathBuf>,
    /// What each store should have answered; empty for `noop`.
    pub(crate) stores: Vec<ExpectedStore>,
}

fn internal(error: impl std::fmt::Display) -> CliError {
    CliError::Internal(error.to_string())
}

impl Fleet {
    /// Writes the stores' folders and starts their processes; returns when every store that is there has started.
    pub(crate) async fn muster(args: &DemoArgs, folder: &Path, url: &str, beat_ms: u64, out: &Out) -> Result<Self, CliError> {
        let terminals = draw(args)?;
        let stores = folder.join("stores");
        let expected = write_stores(args, &stores, &terminals).await?;
        let mut fleet = Self { terminals, processes: Vec::new(), executions: Vec::new(), expected };
        let processes = fleet.terminals.len().div_ceil(STORES_PER_PROCESS).clamp(2.min(fleet.terminals.len()), PROCESSES_MAX);
        let share = fleet.terminals.len().div_ceil(processes);
        for (i, terminals) in fleet.terminals.chunks(share).enumerate() {
            let executions = folder.join(format!("executions-{i}.jsonl"));
            let spec = HostSpec {
                url: url.to_owned(),
                terminals: terminals.to_vec(),
                handler: args.handler_kind(),
                stores: stores.clone(),
                journal: (args.journal == DemoJournal::Disk).then(|| folder.join(format!("journal-{i}.redb"))),
                executions: executions.clone(),
                time_zone: Some("Asia/Shanghai".into()),
                beat_interval_ms: beat_ms,
                work_ms: (0, 0),
                slots: 1,
                connections: 1,
                sync_jitter_ms: None,
                die_after: None,
            };
            let path = folder.join(format!("host-{i}.json"));
            std::fs::write(&path, serde_json::to_vec(&spec).map_err(internal)?).map_err(|e| CliError::file(&path, e))?;
            fleet.processes.push(HostProcess::start(&path)?);
            fleet.executions.push(executions);
        }
        for process in &mut fleet.processes {
            process.hear("ready").await?;
        }
        out.note(&format!("{} stores in {} processes of their own", fleet.terminals.len(), fleet.processes.len()));
        Ok(fleet)
    }

    /// Ids of all stores, in order.
    pub(crate) fn store_ids(&self) -> Vec<&str> {
        self.terminals.iter().map(|t| t.id.as_str()).collect()
    }

    /// How many stores are there from the start.
    pub(crate) fn online_at_start(&self) -> usize {
        self.terminals.iter().filter(|t| !t.faults.contains(&Fault::Offline)).count()
    }

    /// Brings the offline stores back.
    pub(crate) async fn bring_back(&mut self) -> Result<(), CliError> {
        for process in &mut self.processes {
            if let Some(stdin) = &mut process.stdin {
                stdin.write_all(b"back\n").await.map_err(internal)?;
                stdin.flush().await.map_err(internal)?;
            }
        }
        Ok(())
    }

    /// Ends every process and gives what the stores know.
    pub(crate) async fn stop(mut self) -> Result<Expected, CliError> {
        for process in &mut self.processes {
            process.stdin = None;
        }
        for process in &mut self.processes {
            match tokio::time::timeout(PROCESS_WITHIN, process.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => return Err(CliError::Internal(format!("a process of stores ended with {status}"))),
                Ok(Err(error)) => return Err(internal(error)),
                Err(_) => return Err(CliError::Internal("a process of stores did not end".into())),
            }
        }
        Ok(Expected { executions: self.executions, stores: self.expected })
    }
}

impl HostProcess {
    fn start(spec: &Path) -> Result<Self, CliError> {
        let program = std::env::current_exe().map_err(internal)?;
        let mut child = Command::new(&program)
            .arg("terminal-host")
            .arg("--spec")
            .arg(spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C is for the demo alone; it ends its stores in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| CliError::file(&program, e))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| CliError::Internal("no stdout of a process of stores".into()))?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout).lines() })
    }

    /// Waits for a line that begins with `word`.
    async fn hear(&mut self, word: &str) -> Result<(), CliError> {
        let line = tokio::time::timeout(PROCESS_WITHIN, self.stdout.next_line()).await;
        match line {
            Ok(Ok(Some(line))) if line.starts_with(word) => Ok(()),
            other => Err(CliError::Internal(format!("a process of stores did not say `{word}` but {other:?}"))),
        }
    }
}

/// Which store has which fault: drawn without replacement, so that shares are exact.
fn draw(args: &DemoArgs) -> Result<Vec<HostedTerminal>, CliError> {
    let shares = [
        (Fault::Offline, args.offline),
        (Fault::Slow, args.slow),
        (Fault::Flaky, args.flaky),
        (Fault::Garbage, args.garbage),
        (Fault::Hang, args.hang),
        (Fault::Duplicate, args.duplicate),
    ];
    let sum: f64 = shares.iter().map(|(_, s)| s).sum();
    if sum > 1.0 {
        return Err(CliError::Usage(format!("the shares of faulty stores add up to {sum}, more than all of them")));
    }
    let stores = args.stores as usize;
    let mut order: Vec<usize> = (0..stores).collect();
    let mut numbers = SplitMix64::new(args.seed);
    for i in (1..stores).rev() {
        order.swap(i, numbers.below(i as u64 + 1) as usize);
    }
    let mut faults: Vec<Vec<Fault>> = vec![Vec::new(); stores];
    let mut order = order.into_iter();
    for (fault, share) in shares {
        for store in order.by_ref().take((share * f64::from(args.stores)).round() as usize) {
            if let Some(faults) = faults.get_mut(store) {
                faults.push(fault);
            }
        }
    }
    let terminal = |(i, faults): (usize, Vec<Fault>)| {
        TerminalId::new(&format!("SH_{:04}", i + 1)).map(|id| HostedTerminal { id, faults }).map_err(internal)
    };
    faults.into_iter().enumerate().map(terminal).collect()
}

async fn write_stores(args: &DemoArgs, stores: &Path, terminals: &[HostedTerminal]) -> Result<Vec<ExpectedStore>, CliError> {
    if args.handler == DemoHandler::Noop {
        return Ok(Vec::new());
    }
    let date = DATE.parse().map_err(internal)?;
    let (stores, seed) = (stores.to_owned(), args.seed);
    let ids: Vec<String> = terminals.iter().map(|t| t.id.to_string()).collect();
    let written = tokio::task::spawn_blocking(move || {
        ids.iter().map(|id| write_store(&stores.join(id), id, seed, date, 3)).collect::<std::io::Result<Vec<_>>>()
    });
    written.await.map_err(internal)?.map_err(internal)
}

//! The stores: their folders, their faults, and the processes their terminals run in.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanfold_domain::ids::TerminalId;
use fanfold_terminal::fixture::{ExpectedStore, SplitMix64, write_store};
use fanfold_terminal::host::{Fault, HostSpec, HostedTerminal};

use super::plan::DATE;
use crate::child::ChildProcess;
use crate::cmd::demo::{DemoArgs, DemoHandler, DemoJournal};
use crate::error::CliError;
use crate::out::Out;

/// Stores of one process.
const STORES_PER_PROCESS: usize = 150;
/// Most processes.
const PROCESSES_MAX: usize = 8;
/// How long a process may take to start or end.
const PROCESS_WITHIN: Duration = Duration::from_secs(60);

/// All stores of the demo.
pub(crate) struct Fleet {
    terminals: Vec<HostedTerminal>,
    processes: Vec<ChildProcess>,
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
            let args: [&OsStr; 3] = ["terminal-host".as_ref(), "--spec".as_ref(), path.as_ref()];
            fleet.processes.push(ChildProcess::start("a process of stores", args)?);
            fleet.executions.push(executions);
        }
        for process in &mut fleet.processes {
            process.hear("ready", PROCESS_WITHIN).await?;
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
            process.tell("back").await?;
        }
        Ok(())
    }

    /// Ends every process and gives what the stores know.
    pub(crate) async fn stop(mut self) -> Result<Expected, CliError> {
        self.processes.iter_mut().for_each(ChildProcess::close);
        for process in self.processes {
            process.ended(PROCESS_WITHIN).await?;
        }
        Ok(Expected { executions: self.executions, stores: self.expected })
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

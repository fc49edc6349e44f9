//! A journal in one file, shared by any number of terminals of this process.
//!
//! A thread of its own writes: whatever is queued when it looks is one transaction and one flush to disk, so a thousand terminals
//! that begin at once cost a handful of flushes. Lazy operations ride with the next durable ones. After an I/O error the file is
//! closed and opened again by a later write, so a disk that was full for a while needs no restart.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use async_trait::async_trait;
use fanfold_wire::domain::ids::TerminalId;
use tokio::sync::{mpsc, oneshot};

use self::store::Store;
use super::{Journal, JournalError, Loaded, Op};
use crate::chance::Chance;

mod store;

/// Requests waiting for the writer; callers wait beyond it.
const QUEUE_MAX: usize = 8192;
/// Requests in one transaction.
const GROUP_MAX: usize = 4096;
/// Lazy operations kept for the next transaction before they get one of their own.
const LAZY_MAX: usize = 1024;

/// How to open a [`DiskJournal`].
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// The file; made when absent.
    pub path: PathBuf,
    /// Rename a damaged file to `<path>.damaged-<id>` and begin an empty one, with new journal ids: HQ then concludes what the old
    /// one held as lost. Off by default: a person decides that.
    pub move_damaged_aside: bool,
}

enum Request {
    Load(TerminalId, oneshot::Sender<Result<Loaded, JournalError>>),
    Write(TerminalId, Vec<Op>, oneshot::Sender<Result<(), JournalError>>),
    Lazy(TerminalId, Vec<Op>),
}

/// See the module.
pub struct DiskJournal {
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl DiskJournal {
    /// Opens or makes the file, checks it and starts the writer. Blocks for the time of a read of the file.
    pub fn open(options: DiskOptions) -> Result<Self, JournalError> {
        let path = options.path.clone();
        let store = match Store::open(&path) {
            Err(JournalError::Damaged { reason, .. }) if options.move_damaged_aside => {
                let aside = aside_path(&path);
                tracing::error!(path = %path.display(), aside = %aside.display(), reason, "journal damaged: moved aside, beginning an empty one");
                std::fs::rename(&path, &aside).map_err(|e| unavailable(&path, &e))?;
                Store::open(&path)?
            }
            opened => opened?,
        };
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        let writer = std::thread::Builder::new()
            .name("fanfold-journal".into())
            .spawn(move || write_all(store, queue))
            .map_err(|e| unavailable(&path, &e))?;
        Ok(Self { requests: Some(requests), writer: Some(writer), path })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn ask<T>(&self, request: Request, answer: oneshot::Receiver<Result<T, JournalError>>) -> Result<T, JournalError> {
        let gone = || JournalError::Unavailable { reason: "its writer has ended".into() };
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(request).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for DiskJournal {
    /// Waits for the writer, so that the file is free when this returns.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the journal's writer panicked");
        }
    }
}

#[async_trait]
impl Journal for DiskJournal {
    async fn load(&self, terminal: &TerminalId) -> Result<Loaded, JournalError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Load(terminal.clone(), answer), answered).await
    }

    async fn write(&self, terminal: &TerminalId, ops: Vec<Op>) -> Result<(), JournalError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Write(terminal.clone(), ops, answer), answered).await
    }

    fn write_lazily(&self, terminal: &TerminalId, ops: Vec<Op>) {
        let Some(requests) = &self.requests else { return };
        if requests.try_send(Request::Lazy(terminal.clone(), ops)).is_err() {
            // What is lost here is found out again: the report is sent once more and answered as a duplicate.
            tracing::warn!(%terminal, "journal queue full: a settled mark was dropped");
        }
    }
}

fn aside_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{}", Chance::system().id().get(..8).unwrap_or("x")));
    PathBuf::from(name)
}

fn unavailable(path: &Path, error: &dyn std::fmt::Display) -> JournalError {
    JournalError::Unavailable { reason: format!("{}: {error}", path.display()) }
}

fn answer_loads(store: &mut Store, loads: Vec<(TerminalId, oneshot::Sender<Result<Loaded, JournalError>>)>) {
    if loads.is_empty() {
        return;
    }
    let terminals: Vec<&TerminalId> = loads.iter().map(|(terminal, _)| terminal).collect();
    let made = store.make_ids(&terminals);
    for (terminal, answer) in loads {
        let loaded = made.clone().and_then(|()| store.load(&terminal));
        // A caller that stopped waiting loses nothing: it asks again at its next start.
        let _ = answer.send(loaded);
    }
}

/// The writer thread: ends when every sender is gone and the queue is empty.
fn write_all(mut store: Store, mut queue: mpsc::Receiver<Request>) {
    let mut lazy: Vec<(TerminalId, Vec<Op>)> = Vec::new();
    while let Some(first) = queue.blocking_recv() {
        let mut loads = Vec::new();
        let mut writes = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(request) = next {
            match request {
                Request::Lazy(terminal, ops) => lazy.push((terminal, ops)),
                Request::Load(terminal, answer) => loads.push((terminal, answer)),
                // Lazy operations queued before this one are in `lazy` already: order is kept.
                Request::Write(terminal, ops, answer) => {
                    lazy.push((terminal, ops));
                    writes.push(answer);
                }
            }
            taken += 1;
            next = if taken < GROUP_MAX { queue.try_recv().ok() } else { None };
        }
        if !writes.is_empty() || !loads.is_empty() || lazy.len() >= LAZY_MAX {
            let done = store.commit(std::mem::take(&mut lazy));
            for answer in writes {
                // The caller may have gone away; its row is written all the same.
                let _ = answer.send(done.clone());
            }
        }
        answer_loads(&mut store, loads);
    }
    if let Err(error) = store.commit(lazy) {
        tracing::warn!(%error, "the last settled marks were not written");
    }
}

//! One server a data folder.
//!
//! nats-server takes no lock: two servers on one folder destroy it. The lock here is the kernel's,
//! so a crash releases it. The server inherits it as its standard input: while the server lives the
//! folder stays locked, even where nobody could kill it with its parent.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use super::error::EmbeddedError;

/// How long a server may take to die after its parent did, before it counts as somebody else's.
const ORPHAN_WAIT: Duration = Duration::from_secs(5);
const ORPHAN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const OWNER_BYTES_MAX: u64 = 256;

/// What the lock file says about who has it. Information only: the lock itself is the kernel's.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    pid: u32,
    server_pid: Option<u32>,
}

/// The lock on a data folder, held until dropped. Drop it after the server it was shared with.
#[derive(Debug)]
pub(super) struct DataLock {
    file: File,
    path: PathBuf,
}

impl DataLock {
    /// Takes the lock, or says who has it. When the recorded owner is dead its server is about to
    /// die, so that is waited for a moment.
    pub(super) async fn acquire(data_dir: &Path, path: &Path) -> Result<Self, EmbeddedError> {
        let failed = |error: io::Error| EmbeddedError::data_dir(path, error);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let deadline = Instant::now() + ORPHAN_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => {
                    let owner = read_owner(&mut file);
                    let orphaned = owner.as_ref().is_some_and(|owner| !is_alive(owner.pid));
                    if !orphaned || Instant::now() >= deadline {
                        return Err(EmbeddedError::Locked { data_dir: data_dir.to_owned(), owner: describe(owner) });
                    }
                    tokio::time::sleep(ORPHAN_POLL_INTERVAL).await;
                }
            }
        }
        let mut lock = Self { file, path: path.to_owned() };
        lock.record_server(None)?;
        Ok(lock)
    }

    /// Notes which server runs under this lock.
    pub(super) fn record_server(&mut self, server_pid: Option<u32>) -> Result<(), EmbeddedError> {
        let owner = Owner { pid: std::process::id(), server_pid };
        write_owner(&mut self.file, &owner).map_err(|error| EmbeddedError::data_dir(&self.path, error))
    }

    /// The same lock for the server to hold: it is free only when both have let go.
    pub(super) fn share(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(self.file.try_clone()?))
    }
}

impl Drop for DataLock {
    /// Unlocks for all holders at once. Closing would not do: a process being forked elsewhere has
    /// a copy of the file for a moment and would keep the lock. The server is gone by now.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "could not unlock the data folder");
        }
    }
}

fn write_owner(file: &mut File, owner: &Owner) -> io::Result<()> {
    let line = serde_json::to_vec(owner)?;
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(&line)
}

fn read_owner(file: &mut File) -> Option<Owner> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut bytes = Vec::new();
    file.take(OWNER_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // "Not permitted" is an answer about somebody who is there.
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn describe(owner: Option<Owner>) -> String {
    match owner {
        None => "(unknown)".to_owned(),
        Some(Owner { pid, server_pid: None }) => pid.to_string(),
        Some(Owner { pid, server_pid: Some(server) }) => format!("{pid} (its nats-server: {server})"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_lock_is_refused_and_names_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fanfold.lock");
        let mut first = DataLock::acquire(dir.path(), &path).await.unwrap();
        first.record_server(Some(77)).unwrap();
        let error = DataLock::acquire(dir.path(), &path).await.unwrap_err();
        assert_eq!(error.code(), "DATA_DIR_LOCKED");
        let expected = format!("process {} (its nats-server: 77)", std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
        drop(first);
        DataLock::acquire(dir.path(), &path).await.unwrap();
    }

    #[tokio::test]
    async fn a_copy_of_the_file_does_not_keep_it_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fanfold.lock");
        let first = DataLock::acquire(dir.path(), &path).await.unwrap();
        let _copy = first.file.try_clone().unwrap();
        drop(first);
        DataLock::acquire(dir.path(), &path).await.unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        assert!(is_alive(std::process::id()));
        child.wait().unwrap();
        assert!(!is_alive(pid));
        assert!(!is_alive(0));
    }
}

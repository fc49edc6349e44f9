//! The child process: one thread that starts it, waits for it and reaps it.

use std::future::Future;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::{oneshot, watch};

use super::parent_death::die_with_parent;

/// How long a killed process may take to be gone; the kernel needs a few milliseconds.
const REAP_WAIT: Duration = Duration::from_secs(5);

/// How a server's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerExit {
    /// Its process id.
    pub pid: u32,
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether it was asked to end by `stop`, `restart` or a drop. False calls for action.
    pub expected: bool,
    /// The last lines of its log; empty if it was expected.
    pub log_tail: String,
}

impl fmt::Display for ServerExit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(out, "pid {}, exit code {code}", self.pid),
            (None, Some(signal)) => write!(out, "pid {}, signal {signal}", self.pid),
            (None, None) => write!(out, "pid {}, unknown end", self.pid),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// True once the pid may belong to somebody else; signals are sent under this lock only.
    reaped: Mutex<bool>,
    reaped_changed: Condvar,
    end_asked: AtomicBool,
}

impl Shared {
    fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running child. Dropping it kills it and waits until it is gone.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pid: u32,
    shared: Arc<Shared>,
    exit: watch::Receiver<Option<ServerExit>>,
}

impl ServerProcess {
    /// Starts the command in a process group of its own, so that a terminal's Ctrl-C reaches only
    /// us and the server ends after the services that use it. `log_tail` is asked when it ends.
    pub(super) async fn spawn(mut command: Command, log_tail: impl FnOnce() -> String + Send + 'static) -> io::Result<Self> {
        command.process_group(0);
        die_with_parent(&mut command);
        let shared = Arc::new(Shared::default());
        let (exit_set, exit) = watch::channel(None);
        let (started_set, started) = oneshot::channel();
        let waiter = Arc::clone(&shared);
        thread::Builder::new()
            .name("nats-server-wait".to_owned())
            .spawn(move || watch_child(command, &waiter, started_set, &exit_set, log_tail))?;
        let pid = started.await.map_err(|_| io::Error::other("the waiting thread ended early"))??;
        Ok(Self { pid, shared, exit })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, or `None` while it runs.
    pub(super) fn exit(&self) -> Option<ServerExit> {
        self.exit.borrow().clone()
    }

    /// Resolves when the process has ended.
    pub(super) fn exited(&self) -> impl Future<Output = ServerExit> + Send + 'static + use<> {
        let mut exit = self.exit.clone();
        let pid = self.pid;
        async move {
            let ended = exit.wait_for(Option::is_some).await;
            let known = ended.ok().and_then(|exit| exit.clone());
            known.unwrap_or_else(|| report(pid, None, false))
        }
    }

    /// Marks the coming end as wanted.
    pub(super) fn expect_end(&self) {
        self.shared.end_asked.store(true, Ordering::SeqCst);
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        let reaped = self.shared.reaped();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (false, Some(pid)) = (*reaped, pid)
            && let Err(error) = kill_process(pid, signal)
        {
            tracing::warn!(pid = self.pid, %error, "could not signal nats-server");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.expect_end();
        self.kill();
        let reaped = self.shared.reaped();
        let waited = self.shared.reaped_changed.wait_timeout_while(reaped, REAP_WAIT, |reaped| !*reaped);
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::error!(pid = self.pid, "nats-server is still there after SIGKILL");
        }
    }
}

/// Lives as long as the child: the kernel's parent-death signal is tied to this very thread.
fn watch_child(
    mut command: Command,
    shared: &Shared,
    started: oneshot::Sender<io::Result<u32>>,
    exit: &watch::Sender<Option<ServerExit>>,
    log_tail: impl FnOnce() -> String,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            *shared.reaped() = true;
            // Nobody waiting for the start is nobody to tell.
            let _ = started.send(Err(error));
            return;
        }
    };
    // The command holds the lock file it gave the child; only the child shall.
    drop(command);
    let pid = child.id();
    if started.send(Ok(pid)).is_err() {
        // The start was cancelled: nobody else knows of this child.
        let _ = child.kill();
    }
    wait_without_reaping(&child);
    let status = {
        let mut reaped = shared.reaped();
        let status = child.wait();
        *reaped = true;
        shared.reaped_changed.notify_all();
        status
    };
    let mut end = report(pid, status.ok(), shared.end_asked.load(Ordering::SeqCst));
    if !end.expected {
        end.log_tail = log_tail();
    }
    exit.send_replace(Some(end));
}

/// Blocks until the child has ended but leaves it a zombie, so its pid cannot be given away before
/// the lock on sending signals is held.
fn wait_without_reaping(child: &Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
}

fn report(pid: u32, status: Option<ExitStatus>, expected: bool) -> ServerExit {
    ServerExit {
        pid,
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        expected,
        log_tail: String::new(),
    }
}

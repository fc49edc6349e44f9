//! A process of the product: started, heard, signalled, and gone when dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait::{SOON, until};

/// Lines of stderr shown when a test fails.
const LINES_SHOWN: usize = 25;

/// Set for a process of a test: it is killed when the thread that started it is gone, so that nothing outlives a test that was itself
/// killed. See `bin/fanfold-under-test.rs`.
pub const DIE_WITH_PARENT: &str = "FANFOLD_DIE_WITH_PARENT";

/// A started process.
pub struct Proc {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
    stderr: PathBuf,
    ended: Option<ExitStatus>,
    quiet: bool,
}

impl Proc {
    /// Starts a program; its stderr goes to a file in `folder`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(name: &str, program: &str, args: &[&str], folder: &Path, environment: &[(&str, &str)]) -> Self {
        let stderr = folder.join(format!("{name}.stderr"));
        let log = File::options().create(true).append(true).open(&stderr).expect("a file for stderr");
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        command
            .env_remove("FANFOLD_NATS")
            .env_remove("FANFOLD_NATS_CREDS")
            .env("FANFOLD_LOG", "info,async_nats=warn")
            .env("TZ", "UTC")
            .env(DIE_WITH_PARENT, "1");
        command.envs(environment.iter().copied());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{name} can't be started: {e}"));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        // Ends with the process.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { name: name.to_owned(), child, stdin, lines, stderr, ended: None, quiet: false }
    }

    /// Says nothing when a test fails; its stderr is in its file all the same.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("its status");
        }
        self.ended
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory it holds now, in MiB.
    ///
    /// # Panics
    /// When it has ended, or this system does not tell.
    pub fn memory_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("its size");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
    }

    /// What it has said on stdout so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for a line on stdout that begins with `word`.
    ///
    /// # Panics
    /// When it does not come, or the process ends before.
    pub async fn hear(&mut self, word: &str) -> String {
        until(&format!("{} says `{word}`", self.name), SOON * 2, async || {
            if let Some(line) = self.lines().into_iter().find(|l| l.starts_with(word)) {
                return Some(line);
            }
            let ended = self.child.try_wait().expect("its status");
            assert!(ended.is_none(), "{} ended with {ended:?} before it said `{word}`:\n{}", self.name, self.stderr());
            None
        })
        .await
    }

    /// Writes a line to its stdin.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()).expect("it listens");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).unwrap_or_else(|e| panic!("{} can't be sent {signal:?}: {e}", self.name));
    }

    /// Stops it with SIGSTOP, and returns when it has stopped.
    pub fn freeze(&self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        self.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
    }

    /// Closes its stdin: a process of terminals ends in order then.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Ends it with SIGKILL, as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it does not within the time.
    pub async fn exited(&mut self, within: Duration) -> ExitStatus {
        let status = until(&format!("{} ends", self.name), within, async || self.child.try_wait().expect("its status")).await;
        self.ended = Some(status);
        status
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() && !self.quiet {
            let text = self.stderr();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(LINES_SHOWN);
            eprintln!("--- {} said at last:\n{}", self.name, lines.get(from..).unwrap_or_default().join("\n"));
        }
    }
}

//! What a whole process does: its server dies with it, a second signal ends it at once.
//!
//! The process under test is this test binary itself, started again with [`ROLE_ENV`] set: then
//! `the_process_under_test` plays that role instead of passing at once.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fanfold_process::Shutdown;
use fanfold_process::embedded::{EmbeddedConfig, EmbeddedServer, LocateOptions, locate};
use rustix::process::{Pid, Signal, kill_process};

const ROLE_ENV: &str = "FANFOLD_TEST_ROLE";
const DIR_ENV: &str = "FANFOLD_TEST_DIR";
const SAYS: &str = "process-under-test: ";
const GONE_WAIT: Duration = Duration::from_secs(10);

fn binary() -> PathBuf {
    let found = locate(&LocateOptions::from_env(), &|_| ());
    found.unwrap_or_else(|error| panic!("{error}")).path
}

#[test]
fn the_process_under_test() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    match std::env::var(ROLE_ENV).as_deref() {
        Ok("server") => runtime.block_on(run_server()),
        Ok("deaf") => runtime.block_on(ignore_the_shutdown()),
        _ => {}
    }
}

async fn run_server() {
    let dir = std::env::var_os(DIR_ENV).unwrap();
    let config = EmbeddedConfig::new(binary(), dir);
    let server = EmbeddedServer::start(config).await.unwrap();
    println!("{SAYS}{}", server.pid());
    std::future::pending::<()>().await;
}

async fn ignore_the_shutdown() {
    let shutdown = Shutdown::on_signals().unwrap();
    println!("{SAYS}ready");
    shutdown.wait().await;
    println!("{SAYS}triggered");
    std::future::pending::<()>().await;
}

struct UnderTest {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl UnderTest {
    fn start(role: &str, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_under_test", "--nocapture"])
            .env(ROLE_ENV, role)
            .env(DIR_ENV, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What it says next; its test harness prints other things around it.
    fn says(&mut self) -> String {
        for line in self.lines.by_ref() {
            if let Some((_, said)) = line.unwrap().split_once(SAYS) {
                return said.to_owned();
            }
        }
        panic!("it ended: {:?}", self.child.wait());
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for UnderTest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the process runs; an orphan that ended may stay a zombie where nobody reaps.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

#[tokio::test]
async fn the_server_dies_with_a_killed_parent_and_the_folder_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let mut under_test = UnderTest::start("server", dir.path());
    let server_pid: u32 = under_test.says().parse().unwrap();
    assert!(runs(server_pid));

    let config = EmbeddedConfig::new(binary(), dir.path());
    let error = EmbeddedServer::start(config.clone()).await.unwrap_err();
    assert_eq!(error.code(), "DATA_DIR_LOCKED");
    let parent = format!("process {}", under_test.child.id());
    assert!(error.to_string().contains(&parent), "{error}");

    under_test.signal(Signal::KILL);
    under_test.child.wait().unwrap();
    // At once, while the orphan may still be dying: the lock waits for that.
    let server = EmbeddedServer::start(config).await.unwrap();
    let deadline = Instant::now() + GONE_WAIT;
    while runs(server_pid) {
        assert!(Instant::now() < deadline, "nats-server {server_pid} outlived its parent");
        std::thread::yield_now();
    }
    assert!(server.is_running());
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for (first, second) in [(Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        let mut under_test = UnderTest::start("deaf", dir.path());
        assert_eq!(under_test.says(), "ready");
        under_test.signal(first);
        assert_eq!(under_test.says(), "triggered");
        under_test.signal(second);
        let status = under_test.child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(130), None));
    }
}

//! A server and the services on it, each a process of its own.

use std::collections::BTreeMap;
use std::path::Path;

use fanfold_process::embedded::{EmbeddedServer, LocateOptions, locate};
use tempfile::TempDir;

use crate::cli::Cli;
use crate::fleet::Fleet;
use crate::hand::Hand;
use crate::hq::Hq;
use crate::process::Proc;

/// Heartbeat interval of terminals, in milliseconds.
pub const BEAT_MS: u64 = 300;
/// After so long a standby takes over, in milliseconds.
pub const LEASE_MS: u64 = 1_000;

/// The five roles.
pub const ROLES: [&str; 5] = ["api", "recorder", "dispatcher", "projector", "convergence"];

/// Everything of one test. Fields drop in this order: services, server, folder.
pub struct Stack {
    services: BTreeMap<String, Proc>,
    /// What HQ says.
    pub hq: Hq,
    /// The server.
    pub nats: EmbeddedServer,
    folder: TempDir,
    program: String,
}

impl Stack {
    /// A server and nothing else.
    ///
    /// # Panics
    /// When there is no nats-server.
    pub async fn bare(program: &str) -> Self {
        Self::bare_beating(program, BEAT_MS).await
    }

    /// As [`Stack::bare`], with another heartbeat interval, in milliseconds.
    ///
    /// # Panics
    /// When there is no nats-server.
    pub async fn bare_beating(program: &str, beat_ms: u64) -> Self {
        let located = tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_: &str| ())).await.expect("no panic");
        let nats = EmbeddedServer::ephemeral(located.expect("a nats-server").path).await.expect("it starts");
        let folder = tempfile::Builder::new().prefix("fanfold-e2e-").tempdir().expect("a folder");
        let config = format!(
            "[dispatcher]\nbeatMs = {beat_ms}\ncancelGraceMs = 1000\nleaseMs = {LEASE_MS}\n[convergence]\nleaseMs = {LEASE_MS}\n[projector]\nleaseMs = {LEASE_MS}\n"
        );
        std::fs::write(folder.path().join("services.toml"), config).expect("room on disk");
        let hq = Hq::connect(&nats.url()).await;
        Self { services: BTreeMap::new(), hq, nats, folder, program: program.to_owned() }
    }

    /// All services in one process.
    pub async fn together(program: &str) -> Self {
        let mut stack = Self::bare(program).await;
        stack.serve("all", &ROLES).await;
        stack
    }

    /// Each service in a process of its own, named by its role.
    pub async fn apart(program: &str) -> Self {
        let mut stack = Self::bare(program).await;
        for role in ROLES {
            stack.serve(role, &[role]).await;
        }
        stack
    }

    /// Starts a process with these roles; returns when it serves.
    pub async fn serve(&mut self, name: &str, roles: &[&str]) {
        let (url, config) = (self.nats.url(), self.folder.path().join("services.toml").to_string_lossy().into_owned());
        let mut args = vec!["serve", "--nats", &url, "--config", &config];
        for role in roles {
            args.extend(["--role", role]);
        }
        let mut process = Proc::start(name, &self.program, &args, self.folder.path(), &[]);
        process.hear("serving").await;
        self.services.insert(name.to_owned(), process);
        if roles.contains(&"api") {
            // It says so a moment before it listens.
            self.hq.terminals().await;
        }
    }

    /// A process of services.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn service(&self, name: &str) -> &Proc {
        self.services.get(name).expect("a process of that name")
    }

    /// Ends a process of services with SIGKILL.
    pub fn kill(&mut self, name: &str) {
        self.services.remove(name).expect("a process of that name").kill();
    }

    /// The command line against this server.
    pub fn cli(&self) -> Cli {
        Cli::new(&self.program, &self.nats.url())
    }

    /// A process of terminals, not started yet.
    pub fn fleet(&self, name: &str, ids: &[String]) -> Fleet {
        Fleet::new(&self.program, self.folder.path(), &self.nats.url(), name, ids)
    }

    /// A terminal played by hand.
    pub async fn hand(&self, id: &str) -> Hand {
        Hand::connect(&self.nats.url(), id).await
    }

    /// A folder for a test's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program under test.
    pub fn program(&self) -> &str {
        &self.program
    }
}

//! Three nats-servers started from the files under `nats/cluster/`, each a process that can be killed, ended and brought back; the
//! services on them; and who leads what, as the servers say of themselves.

mod monitor;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::ConnectOptions;
use fanfold_process::clock::Clock;
use fanfold_process::embedded::{LocateOptions, locate};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cli::Cli;
use crate::fleet::Fleet;
use crate::hq::Hq;
use crate::process::Proc;
use crate::stack::{BEAT_MS, LEASE_MS};
use crate::wait::until;
use monitor::{leader_of_log, monitor, streams};

/// The files an operator starts by hand.
const FILES: [&str; 3] = [
    include_str!("../../nats/cluster/n1.conf"),
    include_str!("../../nats/cluster/n2.conf"),
    include_str!("../../nats/cluster/n3.conf"),
];
/// The members' names, as in the files.
pub(crate) const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Ports in the files that are replaced by free ones.
const PORTS: [&str; 9] = ["4222", "4223", "4224", "8222", "8223", "8224", "6222", "6223", "6224"];
/// Put behind the files where a test needs the system account: only from there the meta leader can be told to step down.
const SYSTEM_ACCOUNT: &str = r#"
accounts {
  SYS { users: [ { user: sys, password: sys } ] }
  APP { jetstream: enabled, users: [ { user: app, password: app } ] }
}
system_account: SYS
no_auth_user: app
"#;
/// How long a cluster may take to elect and catch up; generous, since machines that test are busy.
pub const ELECTED: Duration = Duration::from_secs(60);
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(20);

struct Member {
    conf: PathBuf,
    client_port: u16,
    monitor_port: u16,
    process: Option<Proc>,
}

/// Three servers and whatever else a test starts. Fields drop in this order: services, servers, folder.
pub struct Cluster {
    services: Vec<Proc>,
    members: Vec<Member>,
    folder: TempDir,
    binary: String,
    program: String,
}

/// `(epoch ms, member)` at each change of who leads.
type Changes = Vec<(i64, Option<usize>)>;

/// Who led the log, looked at all the time.
pub struct Watch {
    changes: Arc<Mutex<Changes>>,
    task: JoinHandle<()>,
}

fn now_ms() -> i64 {
    Clock::system().now_ms()
}

/// The text with its numbers replaced where they are ports of the files.
fn with_ports(text: &str, ports: &[u16]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        match PORTS.iter().position(|p| *p == digits) {
            Some(at) => out.push_str(&ports[at].to_string()),
            None => out.push_str(&digits),
        }
        digits.clear();
        out.push(c);
    }
    out
}

fn free_ports(count: usize) -> Vec<u16> {
    // All are held at once, so they differ.
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|l| l.local_addr().expect("an address").port()).collect()
}

impl Cluster {
    /// Starts the three as their files say, with other ports and another folder; `system_account`: see [`Cluster::step_meta_down`].
    ///
    /// # Panics
    /// When there is no nats-server or they don't elect a leader.
    pub async fn start(program: &str, system_account: bool) -> Self {
        let located = tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_: &str| ())).await.expect("no panic");
        let binary = located.expect("a nats-server").path.to_string_lossy().into_owned();
        let folder = tempfile::Builder::new().prefix("fanfold-cluster-").tempdir().expect("a folder");
        let config = format!(
            "[dispatcher]\nbeatMs = {BEAT_MS}\nleaseMs = {LEASE_MS}\n[convergence]\nleaseMs = {LEASE_MS}\n[projector]\nleaseMs = {LEASE_MS}\n"
        );
        std::fs::write(folder.path().join("services.toml"), config).expect("room on disk");
        let ports = free_ports(PORTS.len());
        let data = format!("\"{}/", folder.path().join("data").display());
        let member = |index: usize| {
            let mut text = with_ports(&FILES[index].replace("\"./data/", &data), &ports);
            if system_account {
                text.push_str(SYSTEM_ACCOUNT);
            }
            let conf = folder.path().join(format!("{}.conf", NAMES[index]));
            std::fs::write(&conf, text).expect("room on disk");
            Member { conf, client_port: ports[index], monitor_port: ports[3 + index], process: None }
        };
        let members = (0..3).map(member).collect();
        let mut cluster = Self { services: Vec::new(), members, folder, binary, program: program.to_owned() };
        for index in 0..3 {
            cluster.launch(index);
        }
        until("a meta leader", ELECTED, async || cluster.meta_leader().await).await;
        cluster
    }

    fn launch(&mut self, index: usize) {
        let conf = self.members[index].conf.to_string_lossy().into_owned();
        let process = Proc::start(NAMES[index], &self.binary, &["-c", &conf], self.folder.path(), &[]);
        self.members[index].process = Some(process);
    }

    /// All URLs, as clients take them.
    pub fn url(&self) -> String {
        self.members.iter().map(|m| format!("nats://127.0.0.1:{}", m.client_port)).collect::<Vec<_>>().join(",")
    }

    /// Starts a member again; returns when it takes connections.
    pub async fn launch_again(&mut self, index: usize) {
        self.launch(index);
        let port = self.members[index].client_port;
        until("it takes connections", ELECTED, async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    }

    /// Ends a member with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill();
        }
    }

    /// Ends a member in order, with SIGTERM.
    pub async fn end(&mut self, index: usize) {
        let mut process = self.members[index].process.take().expect("it runs");
        process.signal(Signal::TERM);
        process.exited(ELECTED).await;
    }

    /// Waits until somebody leads the cluster and every replica of every stream is there and has everything. Whoever says of itself
    /// that it is not well for long is started anew, and if that doesn't help with an empty folder, as `docs/operations.md` says. Says
    /// how often.
    pub async fn whole(&mut self) -> usize {
        let mut cured = 0;
        for round in 0..4 {
            let deadline = Instant::now() + ELECTED / 2;
            while Instant::now() < deadline {
                if self.is_whole().await == Some(true) {
                    return cured;
                }
                tokio::time::sleep(LOOK).await;
            }
            for (index, name) in NAMES.iter().enumerate() {
                if !self.is_well(index).await {
                    eprintln!("{name} is not well and started anew: {}", self.complaints(index).await);
                    self.end(index).await;
                    if round == 1 {
                        // What it has on its disk can't be read any more: it is filled from the others.
                        let data = self.folder.path().join("data").join(name);
                        std::fs::remove_dir_all(data).expect("its folder");
                    }
                    self.launch_again(index).await;
                    cured += 1;
                }
            }
        }
        panic!("not every replica is current: {:?}", self.is_whole().await);
    }

    /// What a member says is wrong with it, and the last errors of its log.
    async fn complaints(&self, index: usize) -> String {
        let health = monitor(self.members[index].monitor_port, "/healthz?details=true").await.unwrap_or_default();
        let log = self.members[index].process.as_ref().map(Proc::stderr).unwrap_or_default();
        let errors: Vec<&str> =
            log.lines().filter(|l| (l.contains("[ERR]") || l.contains("[WRN]")) && !l.contains("route")).collect();
        format!("{health}\n{}", errors[errors.len().saturating_sub(12)..].join("\n"))
    }

    async fn is_well(&self, index: usize) -> bool {
        let health = monitor(self.members[index].monitor_port, "/healthz").await.unwrap_or_default();
        health["status"] == "ok"
    }

    async fn is_whole(&self) -> Option<bool> {
        self.meta_leader().await?;
        let mut seen = 0;
        for (index, name) in NAMES.iter().enumerate() {
            for stream in streams(&self.jsz(index).await?) {
                if stream.pointer("/cluster/leader").and_then(Value::as_str) == Some(name) {
                    let replicas = stream.pointer("/cluster/replicas").and_then(Value::as_array)?;
                    let fine = |r: &Value| r["current"] == true && r["offline"] != true && r["lag"].as_u64().unwrap_or(0) == 0;
                    if replicas.len() != 2 || !replicas.iter().all(fine) {
                        return Some(false);
                    }
                    seen += 1;
                }
            }
        }
        Some(seen == 5)
    }

    async fn jsz(&self, index: usize) -> Option<Value> {
        self.members[index].process.as_ref()?;
        monitor(self.members[index].monitor_port, "/jsz?accounts=true&streams=true").await
    }

    /// Who says of itself that it leads the cluster.
    pub async fn meta_leader(&self) -> Option<usize> {
        for (index, name) in NAMES.iter().enumerate() {
            if let Some(jsz) = self.jsz(index).await
                && jsz.pointer("/meta_cluster/leader").and_then(Value::as_str) == Some(name)
                && jsz.pointer("/meta_cluster/cluster_size").and_then(Value::as_u64) == Some(3)
            {
                return Some(index);
            }
        }
        None
    }

    /// Waits until a member says of itself that it leads the log.
    pub async fn leader(&self) -> usize {
        until("a leader of the log", ELECTED, async || leader_of_log(&self.monitors()).await).await
    }

    /// How many clients a member has.
    pub async fn clients(&self, index: usize) -> u64 {
        let connz = monitor(self.members[index].monitor_port, "/connz").await.unwrap_or_default();
        connz.get("num_connections").and_then(Value::as_u64).unwrap_or(0)
    }

    fn monitors(&self) -> Vec<u16> {
        self.members.iter().map(|m| m.monitor_port).collect()
    }

    /// Looks at who leads the log from now on.
    pub fn watch(&self) -> Watch {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let (monitors, told) = (self.monitors(), Arc::clone(&changes));
        let task = tokio::spawn(async move {
            loop {
                let leader = leader_of_log(&monitors).await;
                {
                    let mut changes: std::sync::MutexGuard<'_, Changes> = told.lock().unwrap_or_else(PoisonError::into_inner);
                    if changes.last().map(|(_, l)| *l) != Some(leader) {
                        changes.push((now_ms(), leader));
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Watch { changes, task }
    }

    /// Tells the leader of a stream to step down.
    pub async fn step_down(&self, stream: &str) {
        let client = async_nats::connect(self.servers()).await.expect("a server");
        let answer = client.request(format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"), "".into()).await.expect("an answer");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        assert_eq!(answer["success"], true, "{answer}");
    }

    /// Tells the leader of the cluster to step down. Needs the system account.
    pub async fn step_meta_down(&self) {
        let options = ConnectOptions::with_user_and_password("sys".into(), "sys".into());
        let client = options.connect(self.servers()).await.expect("a server");
        let answer = client.request("$JS.API.META.LEADER.STEPDOWN", "".into()).await.expect("an answer");
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        assert_eq!(answer["success"], true, "{answer}");
    }

    fn servers(&self) -> Vec<String> {
        self.url().split(',').map(str::to_owned).collect()
    }

    /// Starts a process of services with these roles; returns when it serves.
    pub async fn serve(&mut self, name: &str, roles: &[&str]) {
        let (url, config) = (self.url(), self.folder.path().join("services.toml").to_string_lossy().into_owned());
        let mut args = vec!["serve", "--nats", &url, "--config", &config, "--replicas", "3"];
        for role in roles {
            args.extend(["--role", role]);
        }
        let mut process = Proc::start(name, &self.program, &args, self.folder.path(), &[]);
        process.hear("serving").await;
        self.services.push(process);
    }

    /// Processor time the services have used so far, in milliseconds; `None` where the system doesn't tell.
    pub fn services_cpu_ms(&self) -> Option<u64> {
        let of = |process: &Proc| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).ok()?;
            // Behind the name, which may hold anything, user and system time are the 12th and 13th field, in hundredths.
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
            Some((ticks(11)? + ticks(12)?) * 10)
        };
        self.services.iter().map(of).sum()
    }

    /// What the processes of services have said on stderr.
    pub fn said(&self) -> String {
        self.services.iter().map(Proc::stderr).collect()
    }

    /// A connection to HQ.
    pub async fn hq(&self) -> Hq {
        Hq::connect(&self.url()).await
    }

    /// The command line against these servers.
    pub fn cli(&self) -> Cli {
        Cli::new(&self.program, &self.url())
    }

    /// A process of terminals, not started yet.
    pub fn fleet(&self, name: &str, ids: &[String]) -> Fleet {
        Fleet::new(&self.program, self.folder.path(), &self.url(), name, ids)
    }

    /// A folder for a test's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Watch {
    /// The moment from which on there was a leader without a break until `at_ms`; `None`: there was none then.
    pub fn led_since(&self, at_ms: i64) -> Option<i64> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut since = None;
        for (changed_ms, leader) in changes.iter().take_while(|(changed_ms, _)| *changed_ms <= at_ms) {
            since = leader.and(since.or(Some(*changed_ms)));
        }
        since
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

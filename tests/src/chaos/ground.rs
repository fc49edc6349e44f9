//! The processes: a server, services, terminals, and what each of them is at. Whoever should run and has ended is started again, as a
//! supervisor would; whoever ended by itself after it had begun to serve is remembered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fanfold_process::embedded::{EmbeddedConfig, EmbeddedServer, LocateOptions, locate};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::chaos::Settings;
use crate::cli::Cli;
use crate::fleet::Fleet;
use crate::hq::Hq;
use crate::process::Proc;
use crate::stack::ROLES;

/// Starts of a service that did not come to serve (its server was away), before the test gives up.
const STARTS_MAX: u32 = 100;

/// Tasks a terminal runs at once: with one alone, two attempts of a task could never meet.
pub const SLOTS: u32 = 2;

/// A process of a service.
pub struct Service {
    /// Which role it has.
    pub role: &'static str,
    process: Option<Proc>,
    /// It has said that it serves.
    pub serving: bool,
    /// It is stopped by a signal.
    pub frozen: bool,
    starts: u32,
}

/// A store's terminal.
pub struct Store {
    /// Its process.
    pub fleet: Fleet,
    /// It is stopped by a signal.
    pub frozen: bool,
    /// A twin is about: left alone until that is over.
    pub twinned: bool,
    /// Its twin has taken its place for ever: nobody will hear of what this one did and had not said.
    pub retired: bool,
}

impl Store {
    /// Whether it runs and nothing is being done to it.
    pub fn is_free(&self) -> bool {
        self.fleet.runs() && !self.frozen && !self.twinned && !self.retired
    }
}

/// Everything that runs. Fields drop in this order: processes, server, folder.
pub struct Ground {
    /// Services by name.
    pub services: BTreeMap<String, Service>,
    /// Stores by id.
    pub stores: BTreeMap<String, Store>,
    /// Twins that are about or were, with the id they use.
    pub twins: Vec<(String, Fleet)>,
    /// The server.
    pub nats: EmbeddedServer,
    /// What HQ says.
    pub hq: Hq,
    /// Services and terminals that ended by themselves, a line each.
    pub deaths: Vec<String>,
    folder: TempDir,
    program: String,
    beat_ms: u64,
    work_ms: (u64, u64),
}

impl Ground {
    /// Starts the server.
    ///
    /// # Panics
    /// When there is no nats-server, no room, no port.
    pub async fn new(program: &str, settings: &Settings) -> Self {
        let located = tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_: &str| ())).await.expect("no panic");
        let folder = tempfile::Builder::new().prefix("fanfold-chaos-").tempdir().expect("a folder");
        let config = EmbeddedConfig::new(located.expect("a nats-server").path, folder.path().join("nats"));
        let nats = EmbeddedServer::start(config).await.expect("it starts");
        let (lease, beat, caps) = (settings.lease_ms, settings.beat_ms, settings.in_flight);
        let toml = format!(
            "[dispatcher]\nbeatMs = {beat}\ncancelGraceMs = 2000\nleaseMs = {lease}\ninFlight = {caps}\n[convergence]\nleaseMs = {lease}\n[projector]\nleaseMs = {lease}\n"
        );
        std::fs::write(folder.path().join("services.toml"), toml).expect("room on disk");
        let hq = Hq::connect(&nats.url()).await;
        Self {
            services: BTreeMap::new(),
            stores: BTreeMap::new(),
            twins: Vec::new(),
            nats,
            hq,
            deaths: Vec::new(),
            folder,
            program: program.to_owned(),
            beat_ms: settings.beat_ms,
            work_ms: settings.work_ms,
        }
    }

    /// Where everything of this run lies.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the files where they are.
    pub fn keep_files(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// The command line against this server.
    pub fn cli(&self) -> Cli {
        Cli::new(&self.program, &self.nats.url())
    }

    /// Starts every service; returns when all serve.
    pub async fn start_services(&mut self, settings: &Settings) {
        for role in ROLES {
            let copies = if settings.twice.contains(&role) { 2 } else { 1 };
            for copy in ["a", "b"].iter().take(copies) {
                let name = format!("{role}-{copy}");
                self.services.insert(name.clone(), Service { role, process: None, serving: false, frozen: false, starts: 0 });
                self.start_service(&name);
                self.services.get_mut(&name).and_then(|s| s.process.as_mut()).expect("started").hear("serving").await;
            }
        }
    }

    /// Starts a service's process and does not wait for it.
    pub fn start_service(&mut self, name: &str) {
        let (url, config) = (self.nats.url(), self.folder.path().join("services.toml").to_string_lossy().into_owned());
        let service = self.services.get_mut(name).expect("a service of that name");
        let args = ["serve", "--nats", &url, "--config", &config, "--role", service.role];
        service.process = Some(Proc::start(name, &self.program, &args, self.folder.path(), &[]));
        service.serving = false;
        service.frozen = false;
        service.starts += 1;
        assert!(service.starts < STARTS_MAX, "{name} was started {STARTS_MAX} times");
    }

    /// Ends a service with SIGKILL.
    pub fn kill_service(&mut self, name: &str) {
        let service = self.services.get_mut(name).expect("a service of that name");
        if let Some(mut process) = service.process.take() {
            process.kill();
        }
        service.serving = false;
        service.frozen = false;
    }

    /// Stops a service's process, if it has one.
    pub fn freeze_service(&mut self, name: &str) {
        let service = self.services.get_mut(name).expect("a service of that name");
        if let Some(process) = service.process.as_mut().filter(|_| !service.frozen)
            && process.has_ended().is_none()
        {
            process.signal(Signal::STOP);
            service.frozen = true;
        }
    }

    /// Lets a service's process go on; one that was down is started.
    pub fn thaw_service(&mut self, name: &str) {
        let service = self.services.get_mut(name).expect("a service of that name");
        match &service.process {
            Some(process) if service.frozen => process.signal(Signal::CONT),
            Some(_) => {}
            None => self.start_service(name),
        }
        if let Some(service) = self.services.get_mut(name) {
            service.frozen = false;
        }
    }

    /// Stops or continues the server.
    pub fn freeze_nats(&self, frozen: bool) {
        let pid = i32::try_from(self.nats.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, if frozen { Signal::STOP } else { Signal::CONT }).expect("it is there");
    }

    /// A terminal's process, not started yet.
    pub fn fleet(&self, name: &str, id: &str) -> Fleet {
        let fleet = Fleet::new(&self.program, self.folder.path(), &self.nats.url(), name, &[id.to_owned()]);
        fleet.work_ms(self.work_ms.0, self.work_ms.1).with_nonces().slots(SLOTS).beat_ms(self.beat_ms).quiet()
    }

    /// Starts a terminal for each id, each a process of its own; returns when all run.
    pub async fn start_stores(&mut self, ids: &[String]) {
        for id in ids {
            let mut fleet = self.fleet(id, id);
            fleet.launch();
            self.stores.insert(id.clone(), Store { fleet, frozen: false, twinned: false, retired: false });
        }
        for store in self.stores.values_mut() {
            store.fleet.ready().await;
        }
    }

    /// The processes that are terminals, each under its store's id: stores, and twins that took a store's place.
    pub fn terminals(&mut self) -> impl Iterator<Item = &mut Fleet> {
        self.stores.values_mut().map(|s| &mut s.fleet).chain(self.twins.iter_mut().map(|(_, f)| f))
    }

    /// A store.
    pub fn store(&mut self, id: &str) -> &mut Store {
        self.stores.get_mut(id).expect("a store of that id")
    }

    /// Sees who serves and who has ended, and starts the latter again.
    pub fn supervise(&mut self) {
        let mut again = Vec::new();
        for (name, service) in &mut self.services {
            let Some(process) = service.process.as_mut().filter(|_| !service.frozen) else { continue };
            service.serving = service.serving || process.lines().iter().any(|l| l.starts_with("serving"));
            if let Some(status) = process.has_ended() {
                if service.serving {
                    let said = process.stderr();
                    self.deaths
                        .push(format!("{name} ended by itself with {status}: {}", said.lines().last().unwrap_or_default()));
                }
                again.push(name.clone());
            }
        }
        for name in again {
            self.start_service(&name);
        }
        for (id, store) in &mut self.stores {
            if let Some(status) = store.fleet.has_ended().filter(|_| !store.frozen) {
                self.deaths.push(format!("terminal {id} ended by itself with {status}"));
                store.fleet.launch();
            }
        }
    }

    /// Whether every service serves.
    pub fn all_serve(&self) -> bool {
        self.services.values().all(|s| s.serving && !s.frozen)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("FANFOLD_CHAOS_KEEP").is_some() {
            let kept = self.keep_files();
            eprintln!("the files of this run are kept in {}", kept.display());
        }
    }
}

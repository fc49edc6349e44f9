//! The bench: the whole product against the bare publishes it can't do without, on the same server, in turns.

mod job;
mod report;
mod usage;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::ids::TerminalId;
use fanfold_ledger::jetstream::{ConnectOpts, FloorMode, FloorSizes, JetStreamLedger, Measured};
use fanfold_process::embedded::EmbeddedServer;
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::crowd::{CrowdSpec, crowd_id};
use fanfold_wire::api::{TerminalList, TerminalListRequest};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use self::report::{ByProcess, Run};
use self::usage::Usage;
use crate::child::ChildProcess;
use crate::client;
use crate::cmd::bench::BenchArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::server;
use crate::out::Out;

pub use report::{BenchReport, Percentiles};

/// How long a process may take to start; a hundred thousand terminals take a while.
const START_WITHIN: Duration = Duration::from_secs(180);
/// How long terminals may take to be heard of.
const HEARD_WITHIN: Duration = Duration::from_secs(180);

/// Terminals that are asked for again and again while the crowd starts.
const LAST_HEARD: u32 = 100;

/// Server, services and terminals of a bench.
struct Bench {
    ledger: Arc<JetStreamLedger>,
    server_pid: Option<u32>,
    hq: ChildProcess,
    crowd: ChildProcess,
    durable: Option<bool>,
}

/// Runs it; cleans up whatever comes.
///
/// # Errors
/// What keeps it from running to its end.
pub async fn run(args: &BenchArgs, nats: Option<&str>, as_json: bool, out: &Out, shutdown: Shutdown) -> Result<Exit, CliError> {
    let folder = tempfile::Builder::new().prefix("fanfold-bench-").tempdir().map_err(|e| CliError::Internal(e.to_string()))?;
    let embedded = match nats {
        Some(_) => None,
        None => {
            let told = out.clone();
            let binary = server::find(move |line| told.note(line)).await?;
            let durable = args.durable;
            Some(EmbeddedServer::ephemeral_with(binary.path, move |config| config.sync_always = durable).await?)
        }
    };
    let url = nats.map_or_else(|| embedded.as_ref().map(EmbeddedServer::url).unwrap_or_default(), ToOwned::to_owned);
    let server_pid = embedded.as_ref().map(EmbeddedServer::pid);
    let result = measure(args, &url, server_pid, folder.path(), out, &shutdown).await;
    if let Some(server) = &embedded {
        server.stop().await;
    }
    let report = result?;
    if as_json {
        out.json(&report)?
    } else {
        out.text(&report.text())?
    }
    Ok(Exit::Ok)
}

async fn measure(
    args: &BenchArgs,
    url: &str,
    server_pid: Option<u32>,
    folder: &Path,
    out: &Out,
    shutdown: &Shutdown,
) -> Result<BenchReport, CliError> {
    let durable = server_pid.map(|_| args.durable);
    let mut bench = unless(shutdown, Bench::start(args, url, server_pid, durable, folder, out)).await?;
    let bar = progress(args, out);
    let mut runs = Vec::new();
    for n in 0..args.runs {
        runs.push(bench.run(args, n, &bar, shutdown).await?);
    }
    bar.finish_and_clear();
    let report = BenchReport::of(args, args.terminals(), durable, &runs, bench.usage());
    bench.crowd.close();
    Ok(report)
}

/// Goes on with it until a signal comes.
async fn unless<T>(shutdown: &Shutdown, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        biased;
        () = shutdown.wait() => Err(CliError::Interrupted),
        done = work => done,
    }
}

fn progress(args: &BenchArgs, out: &Out) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(args.tasks) * u64::from(args.runs));
    if !out.interactive {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} tasks {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn written(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|e| CliError::file(path, e))
}

impl Bench {
    async fn start(
        args: &BenchArgs,
        url: &str,
        server_pid: Option<u32>,
        durable: Option<bool>,
        folder: &Path,
        out: &Out,
    ) -> Result<Self, CliError> {
        let (services, crowd) = (folder.join("services.toml"), folder.join("crowd.json"));
        written(&services, &format!("[dispatcher]\ninFlight = {}\nbeatMs = {}\n", args.window(), args.beat_ms))?;
        let serve: [&OsStr; 6] = [
            "serve".as_ref(),
            "--until-stdin-ends".as_ref(),
            "--nats".as_ref(),
            url.as_ref(),
            "--config".as_ref(),
            services.as_os_str(),
        ];
        let mut hq = ChildProcess::start("the services", serve)?;
        hq.hear("serving", START_WITHIN).await?;
        let ledger = Arc::new(JetStreamLedger::connect(ConnectOpts::new(url, "fanfold-bench")).await?);
        let spec = CrowdSpec {
            url: url.to_owned(),
            terminals: args.terminals(),
            connections: args.connections,
            beat_interval_ms: args.beat_ms,
            slots: args.plans.min(64),
        };
        written(&crowd, &serde_json::to_string(&spec).map_err(|e| CliError::Internal(e.to_string()))?)?;
        let host: [&OsStr; 3] = ["bench-crowd".as_ref(), "--spec".as_ref(), crowd.as_os_str()];
        let mut crowd = ChildProcess::start("the terminals", host)?;
        crowd.hear("ready", START_WITHIN).await?;
        let bench = Self { ledger, server_pid, hq, crowd, durable };
        bench.heard(args.terminals()).await?;
        out.note(&format!("{} terminals are there", args.terminals()));
        Ok(bench)
    }

    /// Waits until HQ has heard of every terminal. They start in order: the last ones are asked for until they are there, then all.
    async fn heard(&self, terminals: u32) -> Result<(), CliError> {
        let begun = Instant::now();
        let last = TerminalId::new(&crowd_id(terminals.saturating_sub(LAST_HEARD + 1))).ok().filter(|_| terminals > LAST_HEARD);
        while self.known(last.clone()).await? < terminals.min(LAST_HEARD) as usize || self.known(None).await? < terminals as usize
        {
            if begun.elapsed() > HEARD_WITHIN {
                return Err(CliError::Internal(format!("not all of {terminals} terminals were heard of in {HEARD_WITHIN:?}")));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Terminals HQ knows after that one, or all.
    async fn known(&self, mut after: Option<TerminalId>) -> Result<usize, CliError> {
        let mut known = 0;
        loop {
            let request = TerminalListRequest { after, limit: Some(10_000) };
            let page: TerminalList =
                client::call(self.ledger.as_ref(), "terminal", "list", &request, client::ANSWER_WAIT).await?;
            known += page.terminals.len();
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(known),
            }
        }
    }

    fn usage(&self) -> [Usage; 3] {
        [Usage::of(self.server_pid), Usage::of(self.hq.pid()), Usage::of(self.crowd.pid())]
    }

    async fn run(&mut self, args: &BenchArgs, n: u32, bar: &ProgressBar, shutdown: &Shutdown) -> Result<Run, CliError> {
        let before = self.usage();
        let (log, state) = (self.ledger.stream_size(Measured::Log).await?, self.ledger.stream_size(Measured::State).await?);
        bar.set_message(format!("run {}: job", n + 1));
        let job = unless(shutdown, job::run(&self.ledger, args, n, |tasks| bar.inc(tasks))).await?;
        unless(shutdown, job::settled(&self.ledger)).await?;
        let after = self.usage();
        let (log_now, state_now) =
            (self.ledger.stream_size(Measured::Log).await?, self.ledger.stream_size(Measured::State).await?);
        bar.set_message(format!("run {}: floor", n + 1));
        // Never broken off: it makes streams on the server, and takes them away again.
        let floor_per_s = self.floor(args.tasks as usize, job.sizes).await?;
        unless(shutdown, async { Ok(()) }).await?;
        let cpu = |i: usize| after.get(i).zip(before.get(i)).map_or(0.0, |(a, b)| a.cpu_s - b.cpu_s);
        Ok(Run {
            floor_per_s,
            job,
            state_writes: state_now.last_seq - state.last_seq,
            log_bytes: log_now.bytes - log.bytes,
            state_bytes: state_now.bytes.saturating_sub(state.bytes),
            cpu_s: ByProcess { server: cpu(0), hq: cpu(1), terminals: cpu(2) },
        })
    }

    /// The fastest way the server offers at its durability. Where every write is synced, one by one is out of the question.
    async fn floor(&self, tasks: usize, sizes: FloorSizes) -> Result<f64, CliError> {
        let mut best = self.ledger.measure_floor(tasks, sizes, FloorMode::Batches).await?;
        if self.durable == Some(false) {
            best = best.min(self.ledger.measure_floor(tasks, sizes, FloorMode::Singles).await?);
        }
        Ok(tasks as f64 / best.as_secs_f64().max(1e-6))
    }
}

//! The bench: the whole product against the bare publishes it can't do without, on the same server, in turns.

mod cost;
mod fair;
mod ground;
mod history;
mod idle;
mod job;
mod pages;
mod partial;
mod reconnect;
mod report;
mod restart;
mod scenario;
mod stage;
mod usage;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::jetstream::{FloorMode, FloorSizes, Measured};
use fanfold_process::embedded::EmbeddedServer;
use fanfold_process::shutdown::Shutdown;
use fanfold_terminal::crowd::CrowdSpec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::ground::{Ground, unless};
use self::report::{ByProcess, Run};
use self::usage::Usage;
use crate::cmd::bench::BenchArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::server;
use crate::out::Out;

pub use report::{BenchReport, Percentiles};
pub use scenario::{Scenario, run as run_scenario};

/// Server, services and terminals of a bench.
struct Bench {
    ground: Ground,
    server_pid: Option<u32>,
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
    Ok(report)
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

impl Bench {
    async fn start(
        args: &BenchArgs,
        url: &str,
        server_pid: Option<u32>,
        durable: Option<bool>,
        folder: &Path,
        out: &Out,
    ) -> Result<Self, CliError> {
        let mut ground = Ground::on(url, folder).await?;
        ground.serve(&format!("[dispatcher]\ninFlight = {}\nbeatMs = {}\n", args.window(), args.beat_ms), &[]).await?;
        let spec = CrowdSpec {
            terminals: args.terminals(),
            connections: args.connections,
            beat_interval_ms: args.beat_ms,
            slots: args.plans.min(64),
            ..CrowdSpec::default()
        };
        ground.crowd(spec).await?;
        out.note(&format!("{} terminals are there", args.terminals()));
        Ok(Self { ground, server_pid, durable })
    }

    fn usage(&self) -> [Usage; 3] {
        let (hq, terminals) = self.ground.usage();
        [Usage::of(self.server_pid), hq, terminals]
    }

    async fn run(&mut self, args: &BenchArgs, n: u32, bar: &ProgressBar, shutdown: &Shutdown) -> Result<Run, CliError> {
        let before = self.usage();
        let ledger = Arc::clone(&self.ground.ledger);
        let (log, state) = (ledger.stream_size(Measured::Log).await?, ledger.stream_size(Measured::State).await?);
        bar.set_message(format!("run {}: job", n + 1));
        let job = unless(shutdown, job::run(&ledger, args, n, |tasks| bar.inc(tasks))).await?;
        unless(shutdown, job::settled(&ledger)).await?;
        let after = self.usage();
        let (log_now, state_now) = (ledger.stream_size(Measured::Log).await?, ledger.stream_size(Measured::State).await?);
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
        let mut best = self.ground.ledger.measure_floor(tasks, sizes, FloorMode::Batches).await?;
        if self.durable == Some(false) {
            best = best.min(self.ground.ledger.measure_floor(tasks, sizes, FloorMode::Singles).await?);
        }
        Ok(tasks as f64 / best.as_secs_f64().max(1e-6))
    }
}

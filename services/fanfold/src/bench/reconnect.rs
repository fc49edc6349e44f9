//! A herd: the server is killed and comes back, and every terminal has a connection of its own to make again.

use clap::Args;
use fanfold_terminal::crowd::CrowdSpec;
use serde::Serialize;
use tokio::time::Instant;

use super::report::{median, percentile};
use super::stage::{Shown, Stage};
use crate::error::CliError;
use crate::render::format::number;

/// Time until all terminals are back after the server was killed
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench reconnect
  fanfold bench reconnect --terminals 1000 --runs 5 --json")]
pub struct ReconnectArgs {
    /// Terminals, each with a connection of its own
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub terminals: u32,
    /// Heartbeat interval, in milliseconds
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    pub beat_ms: u64,
    /// Times the server is killed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
}

/// Of one kill, in milliseconds from it.
struct Run {
    server_ready_ms: f64,
    all_synced_ms: f64,
    asked_most: u64,
    unanswered: u64,
    cpu_s: [f64; 3],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReconnectReport {
    terminals: u32,
    beat_ms: u64,
    runs: u32,
    /// From the kill to the last sync answered: median, fastest, slowest.
    last_sync_ms: f64,
    last_sync_ms_range: (f64, f64),
    /// From the kill until the server is ready again.
    server_ready_ms: f64,
    asked_most: u64,
    unanswered: u64,
    server_cpu_s: f64,
    hq_cpu_s: f64,
    terminals_cpu_s: f64,
}

/// Kills the server again and again.
pub(super) async fn measure(args: &ReconnectArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    stage.say("starting the services");
    stage.ground.serve(&format!("[dispatcher]\nbeatMs = {}\n", args.beat_ms), &[]).await?;
    stage.say(format!("starting {} terminals", number(args.terminals.into())));
    let spec = CrowdSpec {
        terminals: args.terminals,
        connections: args.terminals,
        beat_interval_ms: args.beat_ms,
        slots: 1,
        ..CrowdSpec::default()
    };
    stage.ground.crowd(spec).await?;
    let mut runs = Vec::new();
    for n in 0..args.runs {
        stage.say(format!("kill {} of {}", n + 1, args.runs));
        runs.push(kill(stage).await?);
    }
    report(args, &runs)
}

async fn kill(stage: &mut Stage<'_>) -> Result<Run, CliError> {
    stage.ground.mark().await?;
    let before = stage.used();
    let killed = Instant::now();
    stage.server.kill().await;
    stage.server.restart().await?;
    let server_ready_ms = killed.elapsed().as_secs_f64() * 1_000.0;
    let (asked_most, unanswered) = stage.ground.synced().await?;
    let all_synced_ms = killed.elapsed().as_secs_f64() * 1_000.0;
    let after = stage.used();
    Ok(Run {
        server_ready_ms,
        all_synced_ms,
        asked_most,
        unanswered,
        // The killed one's account is gone with it.
        cpu_s: [after.server.cpu_s, after.hq.cpu_s - before.hq.cpu_s, after.terminals.cpu_s - before.terminals.cpu_s],
    })
}

fn report(args: &ReconnectArgs, runs: &[Run]) -> Result<Shown, CliError> {
    let over = |figure: &dyn Fn(&Run) -> f64| median(runs.iter().map(figure));
    let synced = || runs.iter().map(|r| r.all_synced_ms);
    let report = ReconnectReport {
        terminals: args.terminals,
        beat_ms: args.beat_ms,
        runs: args.runs,
        last_sync_ms: median(synced()).round(),
        last_sync_ms_range: (percentile(synced(), 0.0).round(), percentile(synced(), 1.0).round()),
        server_ready_ms: over(&|r| r.server_ready_ms).round(),
        asked_most: runs.iter().map(|r| r.asked_most).max().unwrap_or(0),
        unanswered: runs.iter().map(|r| r.unanswered).max().unwrap_or(0),
        server_cpu_s: over(&|r| r.cpu_s[0]),
        hq_cpu_s: over(&|r| r.cpu_s[1]),
        terminals_cpu_s: over(&|r| r.cpu_s[2]),
    };
    let ms = |figure: f64| format!("{} ms", number(figure.max(0.0) as u64));
    let s = |figure: f64| format!("{figure:.2} s");
    Shown::of(
        &report,
        &format!("{} terminals, a connection each, server killed {} times", number(args.terminals.into()), args.runs),
        &[
            ("last sync", ms(report.last_sync_ms), "from the kill to the last terminal's answered sync"),
            ("fastest", ms(report.last_sync_ms_range.0), "of the runs"),
            ("slowest", ms(report.last_sync_ms_range.1), "of the runs"),
            ("server", ms(report.server_ready_ms), "from the kill until the server was ready again"),
            ("asked", report.asked_most.to_string(), "syncs of the terminal that asked most"),
            ("unanswered", number(report.unanswered), "syncs of all terminals, worst run"),
            ("server cpu", s(report.server_cpu_s), "a run"),
            ("services cpu", s(report.hq_cpu_s), "a run"),
            ("terminals cpu", s(report.terminals_cpu_s), "a run"),
        ],
    )
}

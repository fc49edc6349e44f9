//! Idle terminals: what their beats and syncs cost server and services.

use std::time::Duration;

use clap::Args;
use fanfold_terminal::crowd::CrowdSpec;
use serde::Serialize;

use super::stage::{Shown, Stage};
use crate::error::CliError;
use crate::render::format::number;

/// A registry that was not written for so long is complete.
const STILL: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(500);

/// CPU of server and services while terminals only beat
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  fanfold bench idle
  fanfold bench idle --terminals 10000 --seconds 30")]
pub struct IdleArgs {
    /// Terminals
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub terminals: u32,
    /// Connections they share
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Heartbeat interval, in milliseconds
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    pub beat_ms: u64,
    /// Seconds they may take to settle; until the registry is written
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    pub settle_s: u64,
    /// Seconds it is measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdleReport {
    terminals: u32,
    connections: u32,
    beat_ms: u64,
    seconds: f64,
    /// Percent of one core.
    cpu_percent: f64,
    server_cpu_percent: f64,
    hq_cpu_percent: f64,
    terminals_cpu_percent: f64,
    registry_writes: u64,
    log_writes: u64,
    state_writes: u64,
    server_peak_mb: f64,
    hq_peak_mb: f64,
}

fn tenth(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

/// Waits until every terminal is in the registry: nothing is written there any more.
async fn settled(args: &IdleArgs, stage: &Stage<'_>) -> Result<(), CliError> {
    let begun = tokio::time::Instant::now();
    let (mut last, mut since) = (0, begun);
    while (last < u64::from(args.terminals) || since.elapsed() < STILL) && begun.elapsed() < Duration::from_secs(args.settle_s) {
        tokio::time::sleep(LOOK).await;
        let now = stage.written().await?.registry;
        if now != last {
            (last, since) = (now, tokio::time::Instant::now());
        }
    }
    Ok(())
}

/// Starts the terminals, lets them settle, and measures.
pub(super) async fn measure(args: &IdleArgs, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
    stage.say("starting the services");
    stage.ground.serve(&format!("[dispatcher]\nbeatMs = {}\n", args.beat_ms), &[]).await?;
    stage.say(format!("starting {} terminals", number(args.terminals.into())));
    let spec = CrowdSpec {
        terminals: args.terminals,
        connections: args.connections,
        beat_interval_ms: args.beat_ms,
        slots: 1,
        ..CrowdSpec::default()
    };
    stage.ground.crowd(spec).await?;
    stage.say("letting them settle");
    settled(args, stage).await?;
    stage.say("measuring");
    let (before, written) = (stage.used(), stage.written().await?);
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let (after, now) = (stage.used(), stage.written().await?);
    let seconds = begun.elapsed().as_secs_f64();
    let percent = |before: f64, after: f64| (after - before) / seconds * 100.0;
    let server = percent(before.server.cpu_s, after.server.cpu_s);
    let hq = percent(before.hq.cpu_s, after.hq.cpu_s);
    let report = IdleReport {
        terminals: args.terminals,
        connections: args.connections,
        beat_ms: args.beat_ms,
        seconds: tenth(seconds),
        cpu_percent: tenth(server + hq),
        server_cpu_percent: tenth(server),
        hq_cpu_percent: tenth(hq),
        terminals_cpu_percent: tenth(percent(before.terminals.cpu_s, after.terminals.cpu_s)),
        registry_writes: now.registry - written.registry,
        log_writes: now.log - written.log,
        state_writes: now.state - written.state,
        server_peak_mb: after.server.peak_mb.round(),
        hq_peak_mb: after.hq.peak_mb.round(),
    };
    let title = format!(
        "{} terminals over {} connections, a beat each {} ms, idle for {} s",
        number(args.terminals.into()),
        args.connections,
        number(args.beat_ms),
        report.seconds
    );
    let percent = |figure: f64| format!("{figure:.1} %");
    Shown::of(
        &report,
        &title,
        &[
            ("cpu", percent(report.cpu_percent), "one core, server and services together"),
            ("server", percent(report.server_cpu_percent), "one core, nats-server"),
            ("services", percent(report.hq_cpu_percent), "one core, services"),
            ("terminals", percent(report.terminals_cpu_percent), "one core, all terminals (not counted above)"),
            ("registry", number(report.registry_writes), "records of terminals written meanwhile"),
            ("log", number(report.log_writes), "events written meanwhile"),
            ("state", number(report.state_writes), "state records written meanwhile"),
            ("server memory", format!("{} MB", report.server_peak_mb), "largest so far"),
            ("services memory", format!("{} MB", report.hq_peak_mb), "largest so far"),
        ],
    )
}

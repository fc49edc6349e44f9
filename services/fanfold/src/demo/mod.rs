//! The demo: real server, real services, real terminal processes; what it says at the end is checked against accounts of its own.

mod fleet;
mod follow;
pub mod judge;
mod plan;
mod report;

use std::sync::Arc;
use std::time::Duration;

use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::Ledger;
use fanfold_process::embedded::EmbeddedServers;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::api::{SubmitRequest, Submitted};
use serde_json::json;
use tokio::time::Instant;

use crate::client;
use crate::cmd;
use crate::cmd::demo::DemoArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{Hosted, Role, ServicesConfig, server};
use crate::out::Out;
use crate::verify;

pub use report::DemoReport;

/// Heartbeat interval of the stores, in milliseconds.
const BEAT_MS: u64 = 500;
/// From the deadline to the expiry, in milliseconds.
const EXPIRES_AFTER_MS: u64 = 6_000;
/// The server's memory of message ids, in milliseconds: short, so that late repeats reach the fold.
const DUPLICATE_WINDOW_MS: u64 = 2_000;
/// How long stores may take to be heard of.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
/// How long after the expiry the final summary may come.
const FINAL_WITHIN: Duration = Duration::from_secs(30);

/// Runs it; cleans up whatever comes.
///
/// # Errors
/// What keeps it from running to its end.
pub async fn run(args: &DemoArgs, as_json: bool, out: &Out, shutdown: Shutdown) -> Result<Exit, CliError> {
    let told = out.clone();
    let binary = server::find(move |line| told.note(line)).await?;
    let servers = if args.replicas == 1 { String::new() } else { format!("{} times ", args.replicas) };
    out.note(&format!("{servers}nats-server {} on loopback, log synced at every write", binary.version));
    let nats = EmbeddedServers::ephemeral(binary.path, args.replicas as usize).await?;
    let services = Shutdown::new();
    let folder = tempfile::Builder::new().prefix("fanfold-demo-").tempdir().map_err(|e| CliError::Internal(e.to_string()))?;
    let result = tokio::select! {
        result = on_server(args, as_json, out, &nats, &services, folder.path()) => result,
        () = shutdown.wait() => Err(CliError::Interrupted),
    };
    services.trigger();
    nats.stop().await;
    clear(folder).await;
    result
}

async fn connected(nats: &EmbeddedServers, name: &str) -> Result<JetStreamLedger, CliError> {
    let mut opts = ConnectOpts::new(nats.url(), name);
    opts.policy.known_ids_ms = DUPLICATE_WINDOW_MS;
    opts.policy.budget_ms = DUPLICATE_WINDOW_MS * 3 / 4;
    let provision = ProvisionOpts { duplicate_window_ms: DUPLICATE_WINDOW_MS, ..server::provision_for(nats) };
    Ok(server::connect(opts, &provision).await?)
}

fn services_config() -> ServicesConfig {
    let mut config = ServicesConfig::default();
    config.dispatcher.beat_ms = BEAT_MS;
    config.dispatcher.cancel_grace_ms = 1_000;
    config
}

async fn on_server(
    args: &DemoArgs,
    as_json: bool,
    out: &Out,
    nats: &EmbeddedServers,
    services: &Shutdown,
    folder: &std::path::Path,
) -> Result<Exit, CliError> {
    let hosted =
        Hosted::start(Arc::new(connected(nats, "fanfold-demo-hq").await?), &Role::ALL, &services_config(), services.clone())
            .await?;
    let mut fleet = fleet::Fleet::muster(args, folder, &nats.url(), BEAT_MS, out).await?;
    let hq: Arc<dyn Ledger> = Arc::new(connected(nats, "fanfold-demo-submit").await?);
    wait_until_heard(&hq, fleet.online_at_start(), out).await?;

    let document = plan::document(args, &fleet, BEAT_MS, EXPIRES_AFTER_MS);
    let plan_id = document.0.clone();
    out.note(&format!(
        "plan {plan_id}: {} for {} stores, at most {} at once, deadline in {} ms",
        plan::type_name(args),
        args.stores,
        args.in_flight,
        args.deadline_ms
    ));
    let follow = follow::Follow::start(Arc::clone(&hq), plan_id.clone(), args, out).await?;
    let started = Instant::now();
    let request = SubmitRequest { plan: Some(document.1), object: None, by: "demo".into(), traceparent: None };
    let submitted: Submitted = client::call(hq.as_ref(), "plan", "submit", &request, client::SUBMIT_WAIT).await?;
    let last_ms = args.deadline_ms + EXPIRES_AFTER_MS;
    let followed =
        follow.until_final(started, submitted.sealed_seq, &mut fleet, Duration::from_millis(last_ms) + FINAL_WITHIN).await?;

    let expected = fleet.stop().await?;
    let fresh = connected(nats, "fanfold-demo-verify").await?;
    let verified = verify::verify_plan(&fresh, &plan_id).await?;
    let executions = judge::judge(&expected.executions)?;
    let record = client::call(hq.as_ref(), "plan", "get", &json!({ "planId": plan_id }), client::ANSWER_WAIT).await?;
    let document = follow::last_document(&fresh, &plan_id).await?;
    let report = report::DemoReport::assemble(
        args,
        &record,
        followed,
        executions,
        &hosted.recorded.total(),
        verified,
        &document,
        &expected.stores,
    );
    if as_json {
        out.json(&report)?;
    } else {
        out.text(&report.text(&document))?;
    }
    services.trigger();
    hosted.join().await?;
    if report.is_sound(args) { Ok(Exit::Ok) } else { Ok(Exit::No) }
}

/// Removes the demo's folder. After an interruption its stores may still be being written: it is removed until it stays away.
async fn clear(folder: tempfile::TempDir) {
    let path = folder.keep();
    for _ in 0..40 {
        // Whatever is left is told of by its being there.
        let _ = std::fs::remove_dir_all(&path);
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !path.exists() {
            return;
        }
    }
}

/// Waits until HQ has heard of every store that is there.
async fn wait_until_heard(hq: &Arc<dyn Ledger>, stores: usize, out: &Out) -> Result<(), CliError> {
    let deadline = Instant::now() + HEARD_WITHIN;
    loop {
        let list = cmd::terminal::all(hq.as_ref()).await?;
        let heard = list.terminals.iter().filter(|t| t.online).count();
        if heard >= stores {
            out.note(&format!("{heard} stores are online"));
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CliError::Internal(format!("only {heard} of {stores} stores were heard of within {HEARD_WITHIN:?}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

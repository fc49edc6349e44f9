//! Bringing a backup back onto a server that has none of its streams.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanfold_domain::ids::PlanId;
use fanfold_ledger::jetstream::{
    CARRIED, JetStreamLedger, LOG_STREAM, ProvisionOpts, STATE_STREAM, StreamState, TYPES_STREAM, compression_of,
};
use fanfold_ledger::open::plans_since;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::shutdown::Shutdown;
use fanfold_projector::audit::Audit;
use fanfold_wire::digest::Sha256Stream;
use fanfold_wire::record::Checkpoint;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Lacks, Manifest, StreamFile, carry_error, size};
use crate::error::CliError;
use crate::host::{Hosted, Role, ServicesConfig};
use crate::render::format::number;
use crate::verify::{self, VerifyError, documents};

/// Bytes read from a file at a time.
const READ_BYTES: usize = 256 * 1024;
/// How long the fold of an empty log may take; each event adds a millisecond.
const FOLD_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// Plans that are not true, named one by one.
const UNTRUE_MAX: usize = 100;

/// What was brought back.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// Last sequence of the log.
    pub last_seq: u64,
    /// Messages by stream.
    pub messages: BTreeMap<String, u64>,
    /// Plans of the log; verified unless that was not wanted.
    pub plans: u64,
    /// Whether every one of them was verified and is true: summaries, objects and records are what the log says.
    pub verified: bool,
    /// Plans whose rules this build does not have: neither folded nor verified.
    pub unsupported: Vec<PlanId>,
    /// Buckets that came back with fewer messages than they had when their copy began.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fewer: BTreeMap<String, Fewer>,
    /// What the server lacked when it was copied.
    #[serde(skip_serializing_if = "Lacks::is_nothing")]
    pub lacks: Lacks,
    /// Summaries' documents that were missing or damaged and are written anew from the log.
    pub mended: u64,
    /// Plans that are not true, at most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untrue: Vec<Untrue>,
}

/// Messages of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fewer {
    /// Came back.
    pub came: u64,
    /// Were there when its copy began.
    pub had: u64,
}

/// A plan that was brought back and is not true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Untrue {
    /// Which.
    pub plan: PlanId,
    /// What differs first.
    pub first: String,
}

impl Restored {
    /// Whether everything there ever was is there again. What was not verified counts as the backup says.
    pub fn is_whole(&self) -> bool {
        let types = self.lacks.types == 0 && !self.fewer.contains_key(TYPES_STREAM);
        self.lacks.events == 0 && types && self.untrue.is_empty() && (self.verified || self.lacks.documents == 0)
    }
}

/// Refuses a server that has any of the streams.
///
/// # Errors
/// `STREAMS_EXIST` with their names; the ledger's.
pub async fn refuse_existing(ledger: &JetStreamLedger) -> Result<(), CliError> {
    let mut there = Vec::new();
    for stream in CARRIED.into_iter().chain([STATE_STREAM]) {
        if ledger.stream_state(stream).await?.is_some() {
            there.push(stream);
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    let message = format!(
        "this server has {} already and fanfold never overwrites a log (restore to an empty folder with --data, to another account or server, or remove these streams yourself first); nothing was changed",
        there.join(", ")
    );
    Err(CliError::input("STREAMS_EXIST", message))
}

/// Restores a checked backup; see [`super::check`]. `replicas` overrides what each stream had. What the backup lacks does not keep the
/// rest from coming back: plans that are not true are named.
///
/// # Errors
/// `STREAMS_EXIST`; `RESTORE_INCOMPLETE` with the streams that were made when it failed half-way.
pub async fn restore(
    ledger: &JetStreamLedger,
    dir: &Path,
    manifest: &Manifest,
    replicas: Option<u32>,
    verify: bool,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Restored, CliError> {
    refuse_existing(ledger).await?;
    let (mut messages, mut fewer) = (BTreeMap::new(), BTreeMap::new());
    // The log last: a half restored server is no HQ.
    for stream in manifest.streams.iter().rev() {
        say(&format!("{} ...", stream.name));
        let state = bring_back(ledger, dir, stream, replicas).await.map_err(|e| incomplete(e, &messages))?;
        if let Some(less) = compared(stream, &state, &manifest.lacks).map_err(|e| incomplete(e, &messages))? {
            fewer.insert(stream.name.clone(), less);
        }
        say(&format!("{}: {} messages, {}", stream.name, number(state.messages), size(stream.bytes)));
        messages.insert(stream.name.clone(), state.messages);
    }
    ledger.provision(&provision_of(manifest, replicas)).await.map_err(|e| incomplete(e.into(), &messages))?;
    let ledger: Arc<dyn Ledger> = Arc::new(ledger.clone());
    let last_seq = ledger.last_seq().await?;
    let plans = plans_since(ledger.as_ref(), None, last_seq).await?;
    let (lacks, plans_count) = (manifest.lacks.clone(), plans.len() as u64);
    let (unsupported, untrue) = (Vec::new(), Vec::new());
    let mut restored =
        Restored { last_seq, messages, plans: plans_count, verified: false, unsupported, fewer, lacks, mended: 0, untrue };
    if verify {
        say(&format!("folding {} plans ...", number(restored.plans)));
        restored.mended = documents::examine(ledger.as_ref(), None, last_seq, true).await?.mended;
        (restored.unsupported, restored.untrue) = prove(&ledger, &plans).await?;
        restored.verified = restored.untrue.is_empty();
    }
    Ok(restored)
}

fn incomplete(error: CliError, made: &BTreeMap<String, u64>) -> CliError {
    if made.is_empty() {
        return error;
    }
    let names: Vec<&str> = made.keys().map(String::as_str).collect();
    let message = format!(
        "{} ({}); {} were restored already and are no HQ by themselves: remove them and restore again",
        error.message(),
        error.code(),
        names.join(", ")
    );
    CliError::Server { code: "RESTORE_INCOMPLETE", message }
}

async fn bring_back(
    ledger: &JetStreamLedger,
    dir: &Path,
    stream: &StreamFile,
    replicas: Option<u32>,
) -> Result<StreamState, CliError> {
    let path = dir.join(&stream.file);
    let mut file = File::open(&path).map_err(|e| CliError::file(&path, e))?;
    let mut sha = Sha256Stream::default();
    let mut source = |chunk: &mut Vec<u8>| {
        let read = file.by_ref().take(READ_BYTES as u64).read_to_end(chunk)?;
        sha.update(chunk);
        // It was checked before; if somebody has changed it since, the last word is not said and the server drops it all.
        let ended = read == 0;
        if ended && std::mem::take(&mut sha).finish() != stream.sha256 {
            return Err(std::io::Error::other("the file has changed since it was checked"));
        }
        Ok(())
    };
    let config = config_of(&stream.config, replicas);
    ledger.restore_stream(&config, &stream.state, &mut source).await.map_err(|e| carry_error(&path, e))
}

/// Holds what came back against what was copied. Of the log everything must be there but what it lacked already. Elsewhere a message
/// goes when another takes its place, also between the count and the copy; what is really lost there, verification tells.
pub(super) fn compared(stream: &StreamFile, state: &StreamState, lacks: &Lacks) -> Result<Option<Fewer>, CliError> {
    let is_log = stream.name == LOG_STREAM;
    let least = match (is_log, stream.messages) {
        (true, _) => lacks.leaves(stream),
        (false, messages) => messages.min(1),
    };
    // An empty stream has no first sequence worth comparing, and one that lost its first events begins later.
    let first_differs = is_log && stream.messages > 0 && lacks.events == 0 && state.first_seq != stream.first_seq;
    if first_differs || state.last_seq < stream.last_seq || state.messages < least {
        let message = format!(
            "{}: {} messages came back, #{} to #{}; the backup has {}, #{} to #{}",
            stream.name,
            number(state.messages),
            state.first_seq,
            state.last_seq,
            number(stream.messages),
            stream.first_seq,
            stream.last_seq
        );
        return Err(CliError::Server { code: "RESTORE_INCOMPLETE", message });
    }
    let less = !is_log && state.messages < stream.messages;
    Ok(less.then_some(Fewer { came: state.messages, had: stream.messages }))
}

/// A stream's configuration with the deployment's choice put in, and what follows from it.
fn config_of(config: &Map<String, Value>, replicas: Option<u32>) -> Map<String, Value> {
    let mut config = config.clone();
    if let Some(replicas) = replicas {
        config.insert("num_replicas".into(), json!(replicas));
        let name = config.get("name").and_then(Value::as_str).unwrap_or_default();
        config.insert("compression".into(), json!(compression_of(name, replicas)));
    }
    config
}

/// What the state bucket is made with: as many replicas as the log has, and the log's own duplicate window.
fn provision_of(manifest: &Manifest, replicas: Option<u32>) -> ProvisionOpts {
    let log = manifest.streams.first().map(|s| &s.config);
    let number = |name: &str| log.and_then(|config| config.get(name)).and_then(Value::as_u64);
    let kept = number("num_replicas").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    ProvisionOpts {
        replicas: replicas.unwrap_or(kept),
        duplicate_window_ms: manifest.duplicate_window_ms(),
        ..ProvisionOpts::default()
    }
}

/// Folds the log into the empty state bucket, as `fanfold rebuild` does, lets a projector write its checkpoint, and verifies every plan.
/// Gives the plans whose rules this build does not have, and those that are not true.
async fn prove(ledger: &Arc<dyn Ledger>, plans: &[PlanId]) -> Result<Found, CliError> {
    let mut audit = Audit::begin(ledger.as_ref(), None).await?;
    while !audit.step(ledger.as_ref(), None).await? {}
    let shutdown = Shutdown::new();
    let hosted = Hosted::start(Arc::clone(ledger), &[Role::Projector], &ServicesConfig::default(), shutdown.clone()).await?;
    let proven = async {
        let last_seq = ledger.last_seq().await?;
        projected(ledger.as_ref(), last_seq).await?;
        verify_all(ledger.as_ref(), plans).await
    }
    .await;
    shutdown.trigger();
    hosted.join().await?;
    proven
}

/// Waits until the state bucket has everything up to a sequence; a fold that is a hundred times too slow is given up.
async fn projected(ledger: &dyn Ledger, last_seq: u64) -> Result<(), CliError> {
    let within = FOLD_WITHIN + Duration::from_millis(last_seq);
    let began = Instant::now();
    loop {
        let entry = ledger.get_checkpoint().await?;
        if entry.and_then(|e| Checkpoint::parse(&e.value)).is_some_and(|c| c.seq >= last_seq) {
            return Ok(());
        }
        if began.elapsed() > within {
            let reason = format!("the state bucket was not filled up to #{last_seq}");
            let waited_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            return Err(LedgerError::Unavailable { waited_ms, reason }.into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

type Found = (Vec<PlanId>, Vec<Untrue>);

async fn verify_all(ledger: &dyn Ledger, plans: &[PlanId]) -> Result<Found, CliError> {
    let (mut unsupported, mut untrue) = (Vec::new(), Vec::new());
    for plan in plans {
        let first = match verify::verify_plan(ledger, plan).await {
            Ok(report) if report.is_true() => continue,
            Ok(report) => report.differences.first().cloned().unwrap_or("it differs".to_owned()),
            Err(error @ (VerifyError::Lost { .. } | VerifyError::UnknownPlan(_))) => error.to_string(),
            Err(VerifyError::Unsupported { .. }) => {
                unsupported.push(plan.clone());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if untrue.len() < UNTRUE_MAX {
            untrue.push(Untrue { plan: plan.clone(), first });
        }
    }
    Ok((unsupported, untrue))
}

//! The streams and buckets: looked at first, created only when absent, never changed, never deleted.
//!
//! `STREAM.CREATE` on an existing stream may succeed without a word, so it is asked for first; and a stream that exists is
//! compared field by field with the definitions under `nats/`, which are the very requests sent to the server.

use std::time::Duration;

use fanfold_wire::record::Checkpoint;
use serde_json::{Map, Value, json};

use super::api::{ApiError, code};
use super::{JetStreamLedger, LOG};
use crate::port::{Buckets, LedgerError};

const DEFINITIONS: [&str; 5] = [
    include_str!("../../../../nats/stream-fanfold.json"),
    include_str!("../../../../nats/stream-fanfold-types.json"),
    include_str!("../../../../nats/kv-fanfold-state.json"),
    include_str!("../../../../nats/kv-fanfold-terminals.json"),
    include_str!("../../../../nats/object-fanfold-artifacts.json"),
];
/// Free text; a difference in it does no harm.
const DESCRIPTION: &str = "description";

/// What a deployment may choose about the streams.
#[derive(Debug, Clone)]
pub struct ProvisionOpts {
    /// Copies of each stream: 1 on one node, 3 in a cluster.
    pub replicas: u32,
    /// Keep everything in memory instead of in files; for tests.
    pub in_memory: bool,
    /// Limit of the log in bytes; `None` leaves an existing limit alone.
    pub max_bytes: Option<i64>,
    /// How long the server remembers the log's message ids, in milliseconds.
    pub duplicate_window_ms: u64,
}

impl Default for ProvisionOpts {
    fn default() -> Self {
        Self { replicas: 1, in_memory: false, max_bytes: None, duplicate_window_ms: 600_000 }
    }
}

impl JetStreamLedger {
    /// Makes sure that every stream and bucket exists as defined.
    ///
    /// # Errors
    /// `AssetMismatch` names the first field in which an existing one differs; it is left as it is.
    pub async fn provision(&self, opts: &ProvisionOpts) -> Result<(), LedgerError> {
        let bound_ms = self.inner.policy.budget_ms.max(self.inner.policy.known_ids_ms);
        if opts.duplicate_window_ms < bound_ms {
            let window_ms = opts.duplicate_window_ms;
            return Err(LedgerError::Other(format!(
                "duplicate_window_ms is {window_ms}, but retries and known ids rely on at least {bound_ms} (raise it, or lower budget_ms and known_ids_ms)"
            )));
        }
        for definition in DEFINITIONS {
            self.provision_one(&definition_for(definition, opts)?).await?;
        }
        Ok(())
    }

    async fn provision_one(&self, wanted: &Map<String, Value>) -> Result<(), LedgerError> {
        let name = wanted.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(found) = self.stream_config(name).await? {
            return compare(name, wanted, &found);
        }
        if name == LOG {
            self.refuse_to_forget().await?;
        }
        let request = Value::Object(wanted.clone());
        match self.api(&format!("STREAM.CREATE.{name}"), &request, self.budget()).await? {
            Ok(_) => tracing::info!(name, "ledger.created"),
            // Somebody else was faster, or an earlier try of ours got through: what is there is compared below.
            Err(error) => tracing::debug!(name, error = error.text(), "ledger.create"),
        }
        match self.stream_config(name).await? {
            Some(found) => compare(name, wanted, &found),
            None => Err(self.create_error(name, &request).await),
        }
    }

    /// A log that is absent although its state bucket was written from one is lost, not new: an empty one in its place would hide that.
    async fn refuse_to_forget(&self) -> Result<(), LedgerError> {
        let checkpoint = match self.get_checkpoint().await {
            Ok(entry) => entry.and_then(|entry| Checkpoint::parse(&entry.value)),
            Err(LedgerError::AssetMissing { .. }) => None,
            Err(error) => return Err(error),
        };
        match checkpoint.filter(|checkpoint| checkpoint.seq > 0) {
            Some(checkpoint) => Err(LedgerError::LogMissing { seq: checkpoint.seq }),
            None => Ok(()),
        }
    }

    /// The server's reason why the stream cannot be created.
    async fn create_error(&self, name: &str, request: &Value) -> LedgerError {
        match self.api(&format!("STREAM.CREATE.{name}"), request, self.budget()).await {
            Ok(Err(error)) => LedgerError::Other(format!("{name} cannot be created: {}", error.text())),
            Ok(Ok(_)) => LedgerError::Other(format!("{name} was created and is not there")),
            Err(error) => error,
        }
    }

    async fn stream_config(&self, name: &str) -> Result<Option<Value>, LedgerError> {
        match self.api(&format!("STREAM.INFO.{name}"), &json!({}), self.budget()).await? {
            Ok(answer) => {
                let mut info: Value = serde_json::from_slice(&answer).map_err(|error| LedgerError::Corrupt(error.to_string()))?;
                Ok(info.get_mut("config").map(Value::take))
            }
            Err(error) if error.err_code == code::STREAM_NOT_FOUND => Ok(None),
            Err(error) => Err(ApiError::into_error(error)),
        }
    }
}

/// How a stream is compressed with so many replicas: as its definition says, `none` where it says nothing.
pub fn compression_of(stream: &str, replicas: u32) -> String {
    let opts = ProvisionOpts { replicas, ..ProvisionOpts::default() };
    let definitions = DEFINITIONS.iter().filter_map(|text| definition_for(text, &opts).ok());
    let mut of_stream = definitions.filter(|d| d.get("name").and_then(Value::as_str) == Some(stream));
    let compression = of_stream.find_map(|d| d.get("compression").and_then(Value::as_str).map(str::to_owned));
    compression.unwrap_or_else(|| "none".to_owned())
}

/// A definition with the deployment's choices put in.
fn definition_for(text: &str, opts: &ProvisionOpts) -> Result<Map<String, Value>, LedgerError> {
    let mut definition: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| LedgerError::Corrupt(format!("a definition under nats/: {error}")))?;
    let is_log = definition.get("name").and_then(Value::as_str) == Some(LOG);
    definition.insert("num_replicas".into(), json!(opts.replicas));
    if opts.in_memory {
        definition.insert("storage".into(), json!("memory"));
    }
    // Refused on replicated streams, and meaningless in memory.
    if opts.replicas > 1 || opts.in_memory {
        definition.remove("persist_mode");
    }
    // nats-server 2.15.1: a replica's compressed block was unreadable after restarts under load (`s2: corrupt input`).
    if opts.replicas > 1 {
        definition.remove("compression");
    }
    if is_log {
        let window = Duration::from_millis(opts.duplicate_window_ms);
        definition.insert("duplicate_window".into(), json!(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)));
        if let Some(max_bytes) = opts.max_bytes {
            definition.insert("max_bytes".into(), json!(max_bytes));
        }
    }
    if !is_log || opts.max_bytes.is_none() {
        definition.remove("max_bytes");
    }
    Ok(definition)
}

/// Finds the first field of the definition in which the existing stream differs.
fn compare(name: &str, wanted: &Map<String, Value>, found: &Value) -> Result<(), LedgerError> {
    // The number of replicas first: other fields follow from it.
    let (replicas, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(field, _)| *field == "num_replicas");
    for (field, value) in replicas.into_iter().chain(others) {
        let there = found.get(field).unwrap_or(&Value::Null);
        let differs = !(there == value || (is_default(there) && is_default(value)));
        if field != DESCRIPTION && differs && !is_same_set(field, there, value) {
            return Err(LedgerError::AssetMismatch {
                asset: name.to_owned(),
                field: field.clone(),
                found: there.to_string(),
                wanted: value.to_string(),
            });
        }
    }
    Ok(())
}

/// What the server leaves out of its answers.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    }
}

/// Lists of subjects mean the same in any order.
fn is_same_set(field: &str, one: &Value, other: &Value) -> bool {
    match (field, one.as_array(), other.as_array()) {
        ("subjects", Some(one), Some(other)) => one.len() == other.len() && one.iter().all(|subject| other.contains(subject)),
        _ => false,
    }
}

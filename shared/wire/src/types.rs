//! Task types: what HQ may ask for, with schemas, defaults and aggregates. Immutable once registered.

use fanfold_domain::aggregate::{AggregateOp, AggregateSpec};
use fanfold_domain::ids::StageId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::Problem;
use crate::document::{ConvergeDocument, LimitsDocument, RetryDocument, TimeoutsDocument};
use crate::schema::Schema;
use crate::strict::{self, duplicate_key};

/// Largest registration, in bytes.
pub const TYPE_BYTES_MAX: usize = 256 * 1024;
/// Most aggregates of a type.
pub const AGGREGATES_MAX: usize = 32;

/// What a type fills in where a plan is silent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypeDefaults {
    /// Deadline after the seal, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// Expiry after the seal, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    /// Caps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsDocument>,
    /// When it counts as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converge: Option<ConvergeDocument>,
    /// Retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDocument>,
    /// Clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<TimeoutsDocument>,
}

/// A registration.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypeDocument {
    /// Name, a token.
    #[serde(rename = "type")]
    pub name: String,
    /// Version, from 1.
    pub version: u32,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of the input.
    pub input_schema: Box<RawValue>,
    /// JSON Schema of a result.
    pub output_schema: Box<RawValue>,
    /// What a plan may leave out.
    #[serde(default)]
    pub defaults: TypeDefaults,
    /// What summaries add up.
    #[serde(default)]
    pub aggregates: Vec<AggregateSpec>,
}

impl TypeDocument {
    /// Reads and checks a registration; every problem at once.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        if bytes.len() > TYPE_BYTES_MAX {
            let found = format!("{} bytes", bytes.len());
            return Err(vec![Problem::new("TOO_LARGE", "", &found, "a task type may have 256 KiB")]);
        }
        let document: Self = strict::from_slice(bytes)
            .map_err(|e| vec![Problem::new("INVALID_TYPE", "", "", &format!("not a task type: {e}"))])?;
        let problems = document.problems();
        if problems.is_empty() { Ok(document) } else { Err(problems) }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Err(e) = StageId::new(&self.name) {
            problems.push(Problem::new("BAD_ID", "/type", &e.shown, e.reason));
        }
        if self.version == 0 {
            problems.push(Problem::new("LIMIT_OUT_OF_RANGE", "/version", "0", "versions begin at 1"));
        }
        for (path, schema) in [("/inputSchema", &self.input_schema), ("/outputSchema", &self.output_schema)] {
            if let Err(e) = Schema::compile(schema.get()) {
                problems.push(Problem::new("INVALID_SCHEMA", path, "", &e.to_string()));
            }
        }
        if self.aggregates.len() > AGGREGATES_MAX {
            problems.push(Problem::new(
                "LIMIT_OUT_OF_RANGE",
                "/aggregates",
                &self.aggregates.len().to_string(),
                "at most 32 aggregates",
            ));
        }
        for (i, aggregate) in self.aggregates.iter().enumerate() {
            let path = format!("/aggregates/{i}");
            if !aggregate.pointer.is_empty() && !aggregate.pointer.starts_with('/') {
                problems.push(Problem::new("INVALID_TYPE", &path, &aggregate.pointer, "a JSON pointer begins with /"));
            }
            match aggregate.op {
                AggregateOp::TopK if !aggregate.k.is_some_and(|k| (1..=1000).contains(&k)) => {
                    problems.push(Problem::new("INVALID_TYPE", &path, "", "top_k needs k from 1 to 1000"));
                }
                AggregateOp::Percentile if !aggregate.p.is_some_and(|p| (0.0..=100.0).contains(&p)) => {
                    problems.push(Problem::new("INVALID_TYPE", &path, "", "percentile needs p from 0 to 100"));
                }
                _ => {}
            }
        }
        problems
    }

    /// Puts a `type.json` and its two schemas together into one registration.
    pub fn assemble(type_json: &str, input_schema: &str, output_schema: &str) -> Result<Vec<u8>, String> {
        for (name, text) in [("type.json", type_json), ("inputSchema", input_schema), ("outputSchema", output_schema)] {
            if let Some(path) = duplicate_key(text.as_bytes()) {
                return Err(format!("{name}: `{path}` is written twice; leave one of them out"));
            }
        }
        let mut value: Value = serde_json::from_str(type_json).map_err(|e| format!("type.json: {e}"))?;
        let object = value.as_object_mut().ok_or("type.json is not an object")?;
        for (name, text) in [("inputSchema", input_schema), ("outputSchema", output_schema)] {
            let schema: Value = serde_json::from_str(text).map_err(|e| format!("{name}: {e}"))?;
            object.insert(name.to_owned(), schema);
        }
        serde_json::to_vec(&value).map_err(|e| e.to_string())
    }
}

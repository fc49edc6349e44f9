//! Reading schemas and golden examples, and the checks every kind of document goes through.

use std::path::{Path, PathBuf};

use fanfold_wire::schema::Schema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One golden example.
pub(crate) struct Golden {
    /// File name without its extension.
    pub(crate) variant: String,
    /// The document.
    pub(crate) value: Value,
}

impl Golden {
    /// The document on one line, members sorted.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.value).unwrap()
    }

    /// Whether writing it again must give the same document.
    pub(crate) fn is_canonical(&self) -> bool {
        !self.variant.starts_with("older-") && !self.variant.starts_with("newer-")
    }

    /// Whether only the schema refuses it.
    pub(crate) fn is_lenient(&self) -> bool {
        self.variant.starts_with("lenient-")
    }
}

pub(crate) fn schemas_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas")
}

pub(crate) fn read(path: &str) -> String {
    let path = schemas_dir().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The compiled schema `<kind>.v1.json`.
pub(crate) fn schema(kind: &str) -> Schema {
    Schema::compile(&read(&format!("{kind}.v1.json"))).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

/// Stems of the JSON files of a folder below `schemas/`, sorted; none where there is no such folder.
pub(crate) fn stems(dir: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(schemas_dir().join(dir)) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut stems: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    stems.sort();
    stems
}

/// Names of the folders below a folder of `schemas/`, sorted.
pub(crate) fn folders(dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(schemas_dir().join(dir)).unwrap().map(Result::unwrap);
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn examples(dir: &str) -> Vec<Golden> {
    let load = |variant: String| {
        let value =
            serde_json::from_str(&read(&format!("{dir}/{variant}.json"))).unwrap_or_else(|e| panic!("{dir}/{variant}: {e}"));
        Golden { variant, value }
    };
    stems(dir).into_iter().map(load).collect()
}

/// The golden examples of a kind; at least one.
pub(crate) fn goldens(kind: &str) -> Vec<Golden> {
    let goldens = examples(&format!("golden/{kind}"));
    assert!(goldens.iter().any(Golden::is_canonical), "golden/{kind} has no canonical example");
    goldens
}

/// The examples of a kind that must be refused; may be none.
pub(crate) fn bad(kind: &str) -> Vec<Golden> {
    examples(&format!("golden/bad/{kind}"))
}

/// Fails unless the document satisfies the schema.
pub(crate) fn assert_valid(schema: &Schema, what: &str, value: &Value) {
    let violations: Vec<String> = schema.check(value).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{what} does not satisfy its schema: {violations:#?}\n{value:#}");
}

/// Holds a kind to its schema, its goldens and its bad examples; `rewrite` reads a document and writes it again.
pub(crate) fn check_kind(kind: &str, rewrite: impl Fn(&[u8]) -> Result<Value, String>) {
    let schema = schema(kind);
    for golden in goldens(kind) {
        let what = format!("golden/{kind}/{}", golden.variant);
        assert_valid(&schema, &what, &golden.value);
        let written = rewrite(&golden.bytes()).unwrap_or_else(|e| panic!("{what} is not read: {e}"));
        if golden.is_canonical() {
            assert_eq!(written, golden.value, "{what} is written differently");
        }
        assert_valid(&schema, &format!("{what}, written again,"), &written);
    }
    for bad in bad(kind) {
        let what = format!("golden/bad/{kind}/{}", bad.variant);
        assert!(!schema.check(&bad.value).is_empty(), "the schema accepts {what}");
        let read = rewrite(&bad.bytes());
        assert_eq!(read.is_ok(), bad.is_lenient(), "{what}: {read:?}");
    }
}

/// Reads and writes a document by its Rust type.
pub(crate) fn through<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<Value, String> {
    let typed: T = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    serde_json::to_value(&typed).map_err(|e| e.to_string())
}

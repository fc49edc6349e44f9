//! Every schema is a usable 2020-12 schema with a title and descriptions, and messages stay open for fields to come.

use std::path::Path;

use fanfold_wire::schema::Schema;
use fanfold_wire::types::TypeDocument;
use serde_json::Value;

use crate::support::{folders, read, schemas_dir};

fn walk(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "golden" && entry.file_name() != "types" {
            walk(&path, found);
        } else if path.to_string_lossy().ends_with(".v1.json") {
            found.push(path.strip_prefix(schemas_dir()).unwrap().to_string_lossy().into_owned());
        }
    }
}

fn all() -> Vec<String> {
    let mut found = Vec::new();
    walk(&schemas_dir(), &mut found);
    found.sort();
    found
}

/// Calls `visit` with every object below `value` and its pointer.
fn objects(value: &Value, pointer: &str, visit: &mut dyn FnMut(&str, &serde_json::Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            visit(pointer, members);
            members.iter().for_each(|(name, value)| objects(value, &format!("{pointer}/{name}"), visit));
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, value)| objects(value, &format!("{pointer}/{i}"), visit)),
        _ => {}
    }
}

#[test]
fn every_schema_is_usable_and_says_what_it_is_about() {
    let schemas = all();
    assert!(schemas.len() > 40, "{schemas:?}");
    for path in schemas {
        let text = read(&path);
        Schema::compile(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["$schema"], "https://json-schema.org/draft/2020-12/schema", "{path}");
        for member in ["title", "description"] {
            assert!(value[member].as_str().is_some_and(|text| !text.trim().is_empty()), "{path} has no {member}");
        }
        assert!(!read("README.md").is_empty());
    }
}

#[test]
fn messages_and_records_stay_open_and_their_fields_are_described() {
    for path in all().into_iter().filter(|path| path != "plan.v1.json") {
        let value: Value = serde_json::from_str(&read(&path)).unwrap();
        objects(&value, "", &mut |pointer, members| {
            assert_ne!(members.get("additionalProperties"), Some(&Value::Bool(false)), "{path}{pointer} is closed");
            let Some(properties) = members.get("properties").and_then(Value::as_object) else { return };
            if ["/if", "/then", "/else"].iter().any(|part| pointer.ends_with(part)) {
                return;
            }
            for (name, property) in properties {
                let known = property.get("description").is_some() || property.get("const").is_some() || name == "offline";
                assert!(known, "{path}{pointer}: {name} has no description");
            }
        });
    }
}

#[test]
fn registrations_in_the_tree_are_accepted() {
    for name in folders("types") {
        for version in folders(&format!("types/{name}")) {
            let text = |file: &str| read(&format!("types/{name}/{version}/{file}.json"));
            let bytes = TypeDocument::assemble(&text("type"), &text("input"), &text("output")).unwrap();
            let document = TypeDocument::parse(&bytes).unwrap_or_else(|problems| panic!("{name}@{version}: {problems:?}"));
            assert_eq!((document.name.as_str(), document.version.to_string()), (name.as_str(), version));
        }
    }
    assert!(folders("types").contains(&"noop".to_owned()) && folders("types").contains(&"collect_log".to_owned()));
}

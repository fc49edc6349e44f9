//! The published schemas and the code say the same.

use jiff::civil::date;
use serde_json::{Value, json};

use super::{CollectLogInput, CollectLogOutput, collect_day};
use crate::fixture::write_store;

const INPUT: &str = include_str!("../../../../../schemas/types/collect_log/1/input.json");
const OUTPUT: &str = include_str!("../../../../../schemas/types/collect_log/1/output.json");
const TYPE: &str = include_str!("../../../../../schemas/types/collect_log/1/type.json");

fn validator(schema: &str) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).expect("a schema of its draft");
    jsonschema::draft202012::new(&schema).unwrap()
}

#[test]
fn input_that_the_schema_takes_is_taken_and_no_other() {
    let schema = validator(INPUT);
    let table = [
        (json!({"date": "2026-09-17"}), true),
        (json!({"date": "yesterday", "maxBytes": 1}), true),
        (json!({"date": "2026-09-17", "maxBytes": 4_294_967_296_u64}), true),
        (json!({"date": "2026-09-17", "maxBytes": 4_294_967_297_u64}), false),
        (json!({"date": "2026-09-17", "maxBytes": 0}), false),
        (json!({"date": "2026-09-17", "maxBytes": -1}), false),
        (json!({"date": "2026-09-17", "maxBytes": null}), false),
        (json!({"date": "2026-09-17", "max_bytes": 5}), false),
        (json!({"date": "2026-09-17", "more": 5}), false),
        (json!({"date": "2026-9-17"}), false),
        (json!({"date": "2026-13-17"}), false),
        (json!({"date": 20_260_917}), false),
        (json!({}), false),
        (json!([]), false),
    ];
    let store = super::store(&[("app.log", b"2026-09-17 10:00:00 INFO x\n")]);
    for (input, expected) in table {
        assert_eq!(schema.is_valid(&input), expected, "schema: {input}");
        // An input that is fine may still find nothing, as one byte of log does.
        let taken = serde_json::from_value::<CollectLogInput>(input.clone())
            .is_ok_and(|parsed| super::collect(store.path(), &parsed).map_or_else(|error| error.code() != "BAD_INPUT", |_| true));
        assert_eq!(taken, expected, "code: {input}");
    }
}

#[test]
fn the_answer_on_a_fixture_is_valid_and_survives_a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    write_store(dir.path(), "SH_0312", 42, date(2026, 9, 17), 3).unwrap();
    std::fs::write(dir.path().join("logs/bad.log.gz"), b"no gzip").unwrap();
    let output = collect_day(dir.path(), "2026-09-17").unwrap();
    assert_eq!(output.unreadable.len(), 1);
    let value = serde_json::to_value(&output).unwrap();
    let schema = validator(OUTPUT);
    let problems: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(serde_json::from_value::<CollectLogOutput>(value.clone()).unwrap(), output);

    // Tolerant of fields to come, strict about those that are there.
    let changed = |pointer: &str, to: Value| {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = to;
        schema.is_valid(&value)
    };
    assert!(changed("/config", json!({"appVersion": null, "sha256": "0".repeat(64), "later": 1})));
    assert!(changed("/firstAt", Value::Null));
    assert!(!changed("/firstAt", json!("2026-09-17T10:00:00Z")));
    assert!(!changed("/files/0/lines", json!(-1)));
    assert!(!changed("/files/0/sha256", json!("ABC")));
    assert!(!changed("/levels", json!({"error": 1, "warn": 1, "info": 1})));
}

#[test]
fn aggregates_point_at_values_of_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    write_store(dir.path(), "SH_0312", 42, date(2026, 9, 17), 1).unwrap();
    let output = serde_json::to_value(collect_day(dir.path(), "2026-09-17").unwrap()).unwrap();
    let document: Value = serde_json::from_str(TYPE).unwrap();
    assert_eq!((&document["type"], &document["version"]), (&json!("collect_log"), &json!(1)));
    for aggregate in document["aggregates"].as_array().unwrap() {
        let pointer = aggregate["pointer"].as_str().unwrap().replace('*', "0");
        let value = output.pointer(&pointer);
        assert!(value.is_some_and(|value| !value.is_null()), "{aggregate}");
    }
    let retry = &document["defaults"]["retry"];
    assert!(retry["transient"].as_array().unwrap().contains(&json!("NO_LOGS")));
    assert_eq!(retry["business"], json!(["NO_SUCH_DATE", "BAD_INPUT"]));
}

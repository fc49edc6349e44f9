//! What each operation counts, and that a result is read only where it must be and means the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::scan::{Found, Paths, find};
use super::*;

fn run(op: AggregateOp, pointer: &str, k: Option<u32>, p: Option<f64>) -> Aggregate {
    let spec = AggregateSpec { name: "a".into(), op, pointer: pointer.into(), k, p };
    let results = [
        ("S1", r#"{"v":"1.2","n":4,"f":[{"l":1},{"l":2}]}"#),
        ("S2", r#"{"v":"1.3","n":10,"f":[{"l":5}]}"#),
        ("S3", r#"{"v":"1.2","n":10,"f":[]}"#),
        ("S4", r#"{"n":"no number"}"#),
        ("S5", r#"{"n":11,"#),
    ];
    let specs = [spec];
    let mut aggregates = Aggregates::new(&specs);
    results.iter().for_each(|(target, result)| aggregates.add(target, result));
    aggregates.finish().remove(0)
}

#[test]
fn every_operation_counts_what_it_says() {
    let value = |op, pointer, k, p| run(op, pointer, k, p).value.to_string();
    assert_eq!(value(AggregateOp::Sum, "/f/*/l", None, None), "8");
    assert_eq!(value(AggregateOp::Sum, "/n", None, None), "24");
    assert_eq!(value(AggregateOp::Min, "/n", None, None), "4");
    assert_eq!(value(AggregateOp::Max, "/n", None, None), "10");
    assert_eq!(value(AggregateOp::Avg, "/n", None, None), "8");
    assert_eq!(value(AggregateOp::Percentile, "/n", None, Some(30.0)), "4");
    assert_eq!(value(AggregateOp::CountBy, "/v", None, None), r#"{"1.2":2,"1.3":1}"#);
    assert_eq!(value(AggregateOp::Distinct, "/v", None, None), r#"["1.2","1.3"]"#);
    assert_eq!(value(AggregateOp::TopK, "/n", Some(2), None), r#"[{"target":"S2","value":10},{"target":"S3","value":10}]"#);
    assert_eq!(run(AggregateOp::Sum, "/n", None, None).results, 3);
    assert_eq!(value(AggregateOp::Avg, "/none", None, None), "null");
}

#[test]
fn the_largest_of_many_are_the_largest_of_all_in_target_order() {
    let spec = AggregateSpec { name: "a".into(), op: AggregateOp::TopK, pointer: "".into(), k: Some(3), p: None };
    let names: Vec<String> = (0..500).map(|i| format!("S{i}")).collect();
    let specs = [spec];
    let mut aggregates = Aggregates::new(&specs);
    for (i, name) in names.iter().enumerate() {
        aggregates.add(name, &(i * 7 % 100).to_string());
    }
    let expected = r#"[{"target":"S57","value":99},{"target":"S157","value":99},{"target":"S257","value":99}]"#;
    assert_eq!(aggregates.finish()[0].value.to_string(), expected);
}

/// What the pointers find by reading the whole result first.
fn whole(pointers: &[&str], text: &str) -> Option<Vec<Vec<Value>>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let of = |pointer: &&str| {
        let mut values = Vec::new();
        find(&value, pointer, |v| values.push(v.clone()));
        values
    };
    Some(pointers.iter().map(of).collect())
}

fn scanned(pointers: &[&str], text: &str) -> Option<Vec<Vec<Value>>> {
    let mut found = Found::default();
    let paths = Paths::new(pointers.iter().copied());
    let read = paths.scan(text, &mut found);
    let of = |pointer: usize| {
        let mut values = Vec::new();
        paths.found(pointer, &found, |v| values.push(v.clone()));
        values
    };
    read.then(|| (0..pointers.len()).map(of).collect())
}

#[test]
fn what_is_no_value_is_refused_wherever_it_stands() {
    let deep = |n: usize| format!(r#"{{"a":1,"x":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    let texts = [
        r#"{"a":1,"x":1e999}"#.to_owned(),
        r#"{"a":1,"x":"\ud800"}"#.to_owned(),
        r#"{"a":1,"x":"\u00e9\n"}"#.to_owned(),
        r#"{"a":1,"x":"#.to_owned(),
        r#"{"a":1} 2"#.to_owned(),
        r#"{"a":1,"x":[1,]}"#.to_owned(),
        r#"{"a":1,"a":{"b":2},"a":3}"#.to_owned(),
        r#"{"a":{"b":1},"a":{"c":2}}"#.to_owned(),
        r#"{"$serde_json::private::RawValue":"{\"a\":7}"}"#.to_owned(),
        r#"{"a":{"$serde_json::private::RawValue":"{\"b\":7}"}}"#.to_owned(),
        r#"{"x":{"$serde_json::private::RawValue":"no"},"a":1}"#.to_owned(),
        r#"{"":{"":5},"a/b":6,"m~n":7}"#.to_owned(),
        r#"{"a":[10,11,[12]],"01":1,"+1":2}"#.to_owned(),
        "null".to_owned(),
        String::new(),
        deep(120),
        deep(127),
        deep(128),
        deep(4_000),
    ];
    let pointers = ["", "/a", "/a/b", "/a/*", "/a/2/0", "/a/01", "/a/+1", "/", "//", "/a~1b", "/m~0n", "/*", "/*/b", "a", "/*b"];
    for text in &texts {
        assert_eq!(scanned(&pointers, text), whole(&pointers, text), "{text}");
        for pointer in pointers {
            assert_eq!(scanned(&[pointer], text), whole(&[pointer], text), "{pointer:?} in {text}");
        }
    }
    assert!(whole(&["/a"], &deep(126)).is_some() && whole(&["/a"], &deep(128)).is_none(), "both sides of the bound are tried");
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "0", "1", "01", "a/b", "m~n", "", "é", "*"])
}

/// JSON as text, so that a name may come twice.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| if n.is_finite() { format!("{n:e}") } else { "-0.0".into() }),
        prop::sample::select(vec![
            "true",
            "\"\"",
            "\"text\"",
            "\"\\u00e9\\n\"",
            "\"\\ud83d\\ude00\"",
            "1E400",
            "\"\\udc00\"",
            "01"
        ])
        .prop_map(ToOwned::to_owned),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name(), inner), 0..6).prop_map(|members| {
                let text = |(k, v): &(&str, String)| format!("{}:{v}", serde_json::to_string(k).unwrap());
                format!("{{{}}}", members.iter().map(text).collect::<Vec<_>>().join(" , "))
            }),
        ]
    })
}

fn pointer() -> impl Strategy<Value = String> {
    let segment = name().prop_map(|n| if n == "*" { n.to_owned() } else { n.replace('~', "~0").replace('/', "~1") });
    prop::collection::vec(segment, 0..4).prop_map(|segments| segments.iter().map(|s| format!("/{s}")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_finds_what_reading_the_whole_finds(text in json(), pointers in prop::collection::vec(pointer(), 0..7)) {
        let pointers: Vec<&str> = pointers.iter().map(String::as_str).collect();
        prop_assert_eq!(scanned(&pointers, &text), whole(&pointers, &text), "{:?} in {}", pointers, text);
    }
}

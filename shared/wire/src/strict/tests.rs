//! Every shape is read as serde reads it, but for arrays in the place of objects.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
struct Point {
    x: i64,
    y: i64,
}

#[derive(Debug, Deserialize, PartialEq)]
enum Shape {
    Dot,
    At(Point),
    Line { from: Point, to: Point },
    Pair(i64, i64),
}

#[derive(Debug, Deserialize)]
struct All<'a> {
    #[serde(borrow)]
    raw: &'a RawValue,
    points: Vec<Point>,
    named: BTreeMap<String, Option<Point>>,
    shapes: Vec<Shape>,
    pair: (u8, String),
    #[serde(flatten)]
    rest: BTreeMap<String, f64>,
}

const GOOD: &str = r#"{"raw": [1, {"a": 2}], "points": [{"x":1,"y":2}], "named": {"a": {"x":3,"y":4}, "b": null},
    "shapes": ["Dot", {"At": {"x":5,"y":6}}, {"Line": {"from": {"x":0,"y":0}, "to": {"x":1,"y":1}}}, {"Pair": [7, 8]}],
    "pair": [9, "z"], "more": 1.5}"#;

#[test]
fn what_serde_reads_is_read_the_same() {
    let all: All<'_> = from_str(GOOD).unwrap();
    assert_eq!(all.raw.get(), r#"[1, {"a": 2}]"#);
    assert_eq!((all.points[0].y, all.named["a"].as_ref().unwrap().x, &all.named["b"]), (2, 3, &None));
    assert_eq!(all.shapes[0], Shape::Dot);
    assert_eq!(all.shapes[1], Shape::At(Point { x: 5, y: 6 }));
    assert_eq!(all.shapes[3], Shape::Pair(7, 8));
    assert_eq!((all.pair.1.as_str(), all.rest["more"]), ("z", 1.5));
    assert!(from_slice::<Point>(br#"{"x":1,"y":2} {"#).is_err(), "nothing may follow");
}

#[test]
fn an_array_is_no_object_however_deep_it_lies() {
    assert_eq!(serde_json::from_str::<Point>("[1,2]").unwrap(), Point { x: 1, y: 2 }, "what serde does by itself");
    assert!(from_str::<Point>("[1,2]").unwrap_err().to_string().contains("an object"));
    for (good, bad) in [
        (r#"[{"x":1,"y":2}]"#, "[[1,2]]"),
        (r#"{"x":3,"y":4}"#, "[3,4]"),
        (r#"{"x":5,"y":6}"#, "[5,6]"),
        (r#"{"from": {"x":0,"y":0}, "to": {"x":1,"y":1}}"#, r#"[{"x":0,"y":0}, {"x":1,"y":1}]"#),
        (r#"{"from": {"x":0,"y":0}"#, r#"{"from": [0,0]"#),
    ] {
        let text = GOOD.replacen(good, bad, 1);
        assert_ne!(text, GOOD);
        assert!(serde_json::from_str::<All<'_>>(&text).is_ok() && from_str::<All<'_>>(&text).is_err(), "{text}");
    }
}

#[test]
fn a_member_written_twice_is_found_with_its_path() {
    let found = |text: &str| duplicate_key(text.as_bytes());
    assert_eq!(found(r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}"#), None);
    assert_eq!(found(r#"{"a":1,"a":2}"#).as_deref(), Some("/a"));
    assert_eq!(found(r#"{"a":[0,{"b/c":{"x":1,"y":2,"x":3}}]}"#).as_deref(), Some("/a/1/b~1c/x"));
    assert_eq!(found(r#"{"a":1,"\u0061":2}"#).as_deref(), Some("/a"), "the same name written otherwise");
    assert_eq!(found("nonsense"), None);
}

#[test]
fn a_fraction_is_found_with_its_path() {
    let value = json!({"input": {"a": 0.5}, "retry": {"jitter": 0.2, "backoffMs": [1, 2.0]}});
    assert_eq!(fraction(&value, &["/input", "/retry/jitter"]), Some(("/retry/backoffMs/1".to_owned(), "2.0".to_owned())));
    assert_eq!(fraction(&json!({"a": [1, -2, u64::MAX]}), &[]), None);
}

//! Aggregates a task type declares over its valid results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most keys of a `count_by` or `distinct` that a summary shows; the rest is counted in `omitted`.
pub const KEYS_MAX: usize = 1_000;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregateOp {
    /// How many results have each value.
    CountBy,
    /// Sum of numbers.
    Sum,
    /// Smallest number.
    Min,
    /// Largest number.
    Max,
    /// Mean of numbers.
    Avg,
    /// Percentile `p` of numbers, nearest rank.
    Percentile,
    /// The different values, sorted.
    Distinct,
    /// The `k` targets with the largest number.
    TopK,
}

/// One declared aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AggregateSpec {
    /// Name in the summary.
    pub name: String,
    /// What is computed.
    pub op: AggregateOp,
    /// RFC 6901 pointer into a result; one segment may be `*`: every element or member.
    pub pointer: String,
    /// For `top_k`: how many, 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// For `percentile`: 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

/// A computed aggregate, as it stands in a summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Aggregate {
    /// Name.
    pub name: String,
    /// What was computed.
    pub op: AggregateOp,
    /// The value: a number, an object (`count_by`), a list (`distinct`, `top_k`), or null where no result had one.
    pub value: Value,
    /// Results that had a value of the right kind.
    pub results: u32,
    /// Keys left out of `value`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Values a pointer finds in a result, in order.
fn find<'v>(value: &'v Value, pointer: &str) -> Vec<&'v Value> {
    let Some((before, after)) = pointer.split_once("/*") else {
        return value.pointer(pointer).into_iter().collect();
    };
    match value.pointer(before) {
        Some(Value::Array(items)) => items.iter().filter_map(|v| v.pointer(after)).collect(),
        Some(Value::Object(members)) => members.values().filter_map(|v| v.pointer(after)).collect(),
        _ => Vec::new(),
    }
}

fn key(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Computes the aggregates over `(target, result)` in target order.
pub fn compute<'v>(specs: &[AggregateSpec], results: impl Iterator<Item = (&'v str, Value)>) -> Vec<Aggregate> {
    let mut states: Vec<State<'_, 'v>> = specs.iter().map(State::new).collect();
    if states.is_empty() {
        return Vec::new();
    }
    for (target, result) in results {
        for state in &mut states {
            state.add(target, &result);
        }
    }
    states.into_iter().map(State::finish).collect()
}

struct State<'s, 'v> {
    spec: &'s AggregateSpec,
    results: u32,
    int_sum: i128,
    float_sum: f64,
    all_ints: bool,
    numbers: Vec<f64>,
    keys: BTreeMap<String, u64>,
    top: Vec<(f64, &'v str)>,
}

impl<'s, 'v> State<'s, 'v> {
    fn new(spec: &'s AggregateSpec) -> Self {
        Self {
            spec,
            results: 0,
            int_sum: 0,
            float_sum: 0.0,
            all_ints: true,
            numbers: Vec::new(),
            keys: BTreeMap::new(),
            top: Vec::new(),
        }
    }

    fn add(&mut self, target: &'v str, result: &Value) {
        let found = find(result, &self.spec.pointer);
        if matches!(self.spec.op, AggregateOp::CountBy | AggregateOp::Distinct) {
            self.results += u32::from(!found.is_empty());
            for value in found {
                *self.keys.entry(key(value)).or_default() += 1;
            }
            return;
        }
        let numbers: Vec<&Value> = found.into_iter().filter(|v| v.is_number()).collect();
        if numbers.is_empty() {
            return;
        }
        self.results += 1;
        let mut of_target = 0.0;
        for value in numbers {
            match value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)) {
                Some(int) => self.int_sum += int,
                None => self.all_ints = false,
            }
            let float = value.as_f64().unwrap_or(0.0);
            self.float_sum += float;
            of_target += float;
            if !matches!(self.spec.op, AggregateOp::Sum | AggregateOp::TopK) {
                self.numbers.push(float);
            }
        }
        if self.spec.op == AggregateOp::TopK {
            self.top.push((of_target, target));
        }
    }

    fn finish(mut self) -> Aggregate {
        let mut omitted = 0;
        let value = match self.spec.op {
            AggregateOp::CountBy => {
                omitted = self.keys.len().saturating_sub(KEYS_MAX) as u32;
                Value::Object(self.keys.into_iter().take(KEYS_MAX).map(|(k, n)| (k, n.into())).collect())
            }
            AggregateOp::Distinct => {
                omitted = self.keys.len().saturating_sub(KEYS_MAX) as u32;
                Value::Array(self.keys.into_keys().take(KEYS_MAX).map(Value::String).collect())
            }
            AggregateOp::Sum if self.results == 0 => 0.into(),
            AggregateOp::Sum if self.all_ints => {
                i64::try_from(self.int_sum).map_or_else(|_| number(self.int_sum as f64), Value::from)
            }
            AggregateOp::Sum => number(self.float_sum),
            AggregateOp::Min => self.numbers.iter().copied().reduce(f64::min).map_or(Value::Null, number),
            AggregateOp::Max => self.numbers.iter().copied().reduce(f64::max).map_or(Value::Null, number),
            AggregateOp::Avg if self.numbers.is_empty() => Value::Null,
            AggregateOp::Avg => number(self.float_sum / self.numbers.len() as f64),
            AggregateOp::Percentile => percentile(&mut self.numbers, self.spec.p.unwrap_or(50.0)),
            AggregateOp::TopK => {
                // A stable sort: equal numbers stay in target order.
                self.top.sort_by(|a, b| b.0.total_cmp(&a.0));
                let k = self.spec.k.unwrap_or(5) as usize;
                let row = |(n, target): &(f64, &str)| serde_json::json!({ "target": target, "value": number(*n) });
                Value::Array(self.top.iter().take(k).map(row).collect())
            }
        };
        Aggregate { name: self.spec.name.clone(), op: self.spec.op, value, results: self.results, omitted }
    }
}

/// A number, as an integer where it is one.
fn number(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < 9.0e15 { Value::from(float as i64) } else { Value::from(float) }
}

fn percentile(numbers: &mut [f64], p: f64) -> Value {
    if numbers.is_empty() {
        return Value::Null;
    }
    numbers.sort_by(f64::total_cmp);
    let rank = (p.clamp(0.0, 100.0) / 100.0 * numbers.len() as f64).ceil().max(1.0) as usize;
    numbers.get(rank.min(numbers.len()) - 1).copied().map_or(Value::Null, number)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(op: AggregateOp, pointer: &str, k: Option<u32>, p: Option<f64>) -> Aggregate {
        let spec = AggregateSpec { name: "a".into(), op, pointer: pointer.into(), k, p };
        let results = [
            ("S1", r#"{"v":"1.2","n":4,"f":[{"l":1},{"l":2}]}"#),
            ("S2", r#"{"v":"1.3","n":10,"f":[{"l":5}]}"#),
            ("S3", r#"{"v":"1.2","n":10,"f":[]}"#),
            ("S4", r#"{"n":"no number"}"#),
        ];
        compute(&[spec], results.iter().map(|(t, r)| (*t, serde_json::from_str(r).unwrap()))).remove(0)
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
}

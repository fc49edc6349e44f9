//! Aggregates a task type declares over its valid results.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod scan;

use scan::{Found, Paths};

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

/// How a value is told in a `count_by` or `distinct`.
fn key(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Computes aggregates over results, one after the other in target order.
#[derive(Debug)]
pub struct Aggregates<'s, 'v> {
    states: Vec<State<'s, 'v>>,
    paths: Paths,
    found: Found,
}

impl<'s, 'v> Aggregates<'s, 'v> {
    /// Begins with no results.
    pub fn new(specs: &'s [AggregateSpec]) -> Self {
        let paths = Paths::new(specs.iter().map(|spec| spec.pointer.as_str()));
        Self { states: specs.iter().map(State::new).collect(), paths, found: Found::default() }
    }

    /// Adds a target's result, as the terminal wrote it. One that can't be read is left out.
    pub fn add(&mut self, target: &'v str, result: &str) {
        if self.states.is_empty() || !self.paths.scan(result, &mut self.found) {
            return;
        }
        for (pointer, state) in self.states.iter_mut().enumerate() {
            state.begin();
            self.paths.found(pointer, &self.found, |value| state.take(value));
            state.end(target);
        }
    }

    /// What they came to, in the order in which they were declared.
    pub fn finish(self) -> Vec<Aggregate> {
        self.states.into_iter().map(State::finish).collect()
    }
}

#[derive(Debug)]
struct State<'s, 'v> {
    spec: &'s AggregateSpec,
    results: u32,
    /// Of the result that is looked at: whether it had a value, and the sum.
    any: bool,
    of_target: f64,
    int_sum: i128,
    float_sum: f64,
    all_ints: bool,
    /// How many numbers there were, the smallest and the largest.
    count: u64,
    least: Option<f64>,
    most: Option<f64>,
    /// Only for percentiles.
    numbers: Vec<f64>,
    keys: BTreeMap<String, u64>,
    top: Vec<(f64, &'v str)>,
}

impl<'s, 'v> State<'s, 'v> {
    fn new(spec: &'s AggregateSpec) -> Self {
        Self {
            spec,
            results: 0,
            any: false,
            of_target: 0.0,
            int_sum: 0,
            float_sum: 0.0,
            all_ints: true,
            count: 0,
            least: None,
            most: None,
            numbers: Vec::new(),
            keys: BTreeMap::new(),
            top: Vec::new(),
        }
    }

    fn count_key(&mut self, value: &Value) {
        let key = key(value);
        match self.keys.get_mut(&*key) {
            Some(count) => *count += 1,
            None => drop(self.keys.insert(key.into_owned(), 1)),
        }
    }

    /// A result begins.
    fn begin(&mut self) {
        (self.any, self.of_target) = (false, 0.0);
    }

    /// A value of the result.
    fn take(&mut self, value: &Value) {
        if matches!(self.spec.op, AggregateOp::CountBy | AggregateOp::Distinct) {
            self.any = true;
            return self.count_key(value);
        }
        if !value.is_number() {
            return;
        }
        self.any = true;
        match value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)) {
            Some(int) => self.int_sum += int,
            None => self.all_ints = false,
        }
        let float = value.as_f64().unwrap_or(0.0);
        self.float_sum += float;
        self.of_target += float;
        self.count += 1;
        self.least = Some(self.least.map_or(float, |least| least.min(float)));
        self.most = Some(self.most.map_or(float, |most| most.max(float)));
        if self.spec.op == AggregateOp::Percentile {
            self.numbers.push(float);
        }
    }

    /// The target's result was that.
    fn end(&mut self, target: &'v str) {
        self.results += u32::from(self.any);
        if self.any && self.spec.op == AggregateOp::TopK {
            self.top.push((self.of_target, target));
            self.trim_top();
        }
    }

    fn k(&self) -> usize {
        self.spec.k.unwrap_or(5) as usize
    }

    /// Keeps the largest only, once twice as many are there.
    fn trim_top(&mut self) {
        let k = self.k();
        if self.top.len() >= 2 * k.max(1) {
            // A stable sort: equal numbers stay in target order.
            self.top.sort_by(|a, b| b.0.total_cmp(&a.0));
            self.top.truncate(k);
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
            AggregateOp::Min => self.least.map_or(Value::Null, number),
            AggregateOp::Max => self.most.map_or(Value::Null, number),
            AggregateOp::Avg if self.count == 0 => Value::Null,
            AggregateOp::Avg => number(self.float_sum / self.count as f64),
            AggregateOp::Percentile => percentile(&mut self.numbers, self.spec.p.unwrap_or(50.0)),
            AggregateOp::TopK => {
                self.top.sort_by(|a, b| b.0.total_cmp(&a.0));
                let row = |(n, target): &(f64, &str)| serde_json::json!({ "target": target, "value": number(*n) });
                Value::Array(self.top.iter().take(self.k()).map(row).collect())
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
mod tests;

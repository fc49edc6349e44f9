//! A summary document, read, and as a table.

use std::collections::BTreeMap;

use fanfold_domain::aggregate::Aggregate;
use fanfold_domain::plan::{SummaryKind, SummaryRef};
use fanfold_domain::sets::{SetCounts, TaskSet};
use fanfold_domain::summary::{NextStep, PlanVerdict};
use fanfold_domain::task::{FailReason, TaskError, TaskState};
use fanfold_wire::record::StoreRecord;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::format::{number, one_line, percent, time};
use super::table::Table;

/// Rows a table shows before it says how many more there are.
pub const ROWS_SHOWN: usize = 200;

/// Stores by id, for names and regions.
pub type Stores = BTreeMap<String, StoreRecord>;

/// A summary as it stands in its document.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryDoc {
    /// The plan.
    pub plan_id: String,
    /// For people.
    #[serde(default)]
    pub title: Option<String>,
    /// The caller's own key.
    #[serde(default)]
    pub business_key: Option<String>,
    /// Task type, `name@version`.
    #[serde(rename = "type")]
    pub kind_of_task: String,
    /// Number, from 1.
    pub revision: u32,
    /// Kind.
    pub kind: SummaryKind,
    /// Sequence of the plan's last event folded.
    pub as_of_seq: u64,
    /// The one before.
    #[serde(default)]
    pub previous: Option<SummaryRef>,
    /// Verdict.
    pub verdict: PlanVerdict,
    /// Sealed count.
    pub total: u32,
    /// The eight sets.
    pub counts: SetCounts,
    /// Aggregates over valid results.
    #[serde(default)]
    pub aggregates: Vec<Aggregate>,
    /// Targets whose row changed since the one before.
    #[serde(default)]
    pub changed: Vec<String>,
    /// A row a target.
    pub rows: Vec<RowDoc>,
}

/// One target's row.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RowDoc {
    /// The target.
    pub target: String,
    /// Its set.
    pub set: TaskSet,
    /// Its state.
    pub state: TaskState,
    /// Current attempt.
    pub attempt: u32,
    /// Why it FAILED.
    #[serde(default)]
    pub failure: Option<FailReason>,
    /// What went wrong last.
    #[serde(default)]
    pub error: Option<TaskError>,
    /// When its terminal was last seen, epoch ms; `Some(None)`: never; `None`: not offline.
    #[serde(default, deserialize_with = "present")]
    pub last_seen_ms: Option<Option<i64>>,
    /// It is still out although the deadline has passed.
    #[serde(default)]
    pub still_out: bool,
    /// It came in after it had been given up.
    #[serde(default)]
    pub late: bool,
    /// It keeps being handed out and nothing begins.
    #[serde(default)]
    pub needs_attention: bool,
    /// What happens next.
    #[serde(default)]
    pub next: Option<NextStep>,
    /// The result.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why its terminal is given nothing at the time of looking. It does not stand in the document.
    #[serde(skip)]
    pub now: Option<String>,
}

/// Tells a null that is there from a field that isn't.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::<i64>::deserialize(deserializer).map(Some)
}

/// How a set is called.
pub fn set_words(set: TaskSet) -> &'static str {
    match set {
        TaskSet::Succeeded => "succeeded",
        TaskSet::Failed => "failed",
        TaskSet::Invalid => "invalid result",
        TaskSet::TimedOut => "timed out",
        TaskSet::Offline => "offline",
        TaskSet::Running => "running",
        TaskSet::Pending => "pending",
        TaskSet::Cancelled => "cancelled",
    }
}

/// What a verdict says.
pub fn verdict_words(verdict: PlanVerdict) -> &'static str {
    match verdict {
        PlanVerdict::Full => "full: every target is in",
        PlanVerdict::Reserved => "with reservations: not every target is in",
        PlanVerdict::Failed => "failed: fewer are in than the plan asks for",
    }
}

/// How a kind is called.
pub fn kind_words(kind: SummaryKind) -> &'static str {
    match kind {
        SummaryKind::Complete => "complete",
        SummaryKind::Partial => "partial",
        SummaryKind::Update => "update",
        SummaryKind::Final => "final",
    }
}

/// What happens next with a target.
pub fn next_words(next: NextStep) -> &'static str {
    match next {
        NextStep::WhenOnline => "handed out when it is online",
        NextStep::WhenItsTurn => "handed out when its turn comes",
        NextStep::Retry => "retried after a pause",
        NextStep::AwaitReport => "its report is awaited",
        NextStep::AwaitStop => "its stop is awaited",
        NextStep::MayRequeue => "may be requeued",
        NextStep::FollowUp => "needs a follow-up plan",
    }
}

/// Why a row is where it is: `CODE message`, when it was last seen, what else there is to know.
pub fn reason(row: &RowDoc, zone: &TimeZone) -> String {
    let mut parts = Vec::new();
    match row.last_seen_ms {
        Some(Some(seen)) => parts.push(format!("last seen {}", time(seen, zone))),
        Some(None) => parts.push("never seen".to_owned()),
        None => {}
    }
    if let Some(error) = &row.error {
        parts.push(one_line(&format!("{} {}", error.code, error.message), 120).trim_end().to_owned());
        parts.extend(error.paths.first().map(|p| one_line(p, 80)));
    }
    if row.still_out {
        parts.push("still out after the deadline".to_owned());
    }
    if row.failure == Some(FailReason::Expired) {
        parts.push("given up when the plan ended".to_owned());
    }
    parts.extend(row.now.as_ref().map(|now| format!("now: {now}")));
    if row.needs_attention {
        parts.push("handed out again and again, nothing begins: look at the terminal".to_owned());
    }
    parts.join("; ")
}

/// The counts that aren't zero: `4,900 succeeded, 100 offline`.
pub fn counts_line(counts: &SetCounts) -> String {
    let some = TaskSet::ALL.iter().filter(|s| counts.get(**s) > 0);
    let parts: Vec<String> = some.map(|s| format!("{} {}", number(u64::from(counts.get(*s))), set_words(*s))).collect();
    if parts.is_empty() { "no targets".to_owned() } else { parts.join(", ") }
}

/// An aggregate's value on one line.
pub fn aggregate_line(aggregate: &Aggregate) -> String {
    let value = match &aggregate.value {
        Value::Object(members) => {
            let pairs: Vec<String> = members.iter().map(|(k, v)| format!("{k}: {}", scalar(v))).collect();
            pairs.join(", ")
        }
        Value::Array(items) => items.iter().map(item).collect::<Vec<_>>().join(", "),
        other => scalar(other),
    };
    let omitted =
        if aggregate.omitted > 0 { format!(" and {} more", number(u64::from(aggregate.omitted))) } else { String::new() };
    format!("{}{omitted} (of {} results)", one_line(&value, 400), number(u64::from(aggregate.results)))
}

fn item(value: &Value) -> String {
    match (value.get("target").and_then(Value::as_str), value.get("value")) {
        (Some(target), Some(v)) => format!("{target}: {}", scalar(v)),
        _ => scalar(value),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(n) => n.as_u64().map_or_else(|| n.to_string(), number),
        other => other.to_string(),
    }
}

/// The head of a table or a page: what it is about, the verdict and the counts, a line each.
pub fn head(doc: &SummaryDoc) -> String {
    let title = doc.title.as_deref().map(|t| format!(" ({})", one_line(t, 100))).unwrap_or_default();
    let total = u64::from(doc.total);
    let share = percent(u64::from(doc.counts.succeeded), total);
    format!(
        "plan      {}{title}\ntype      {}\nsummary   revision {}, {}, as of sequence {}\nverdict   {}\ntargets   {}: {} ({share} succeeded)\n",
        doc.plan_id,
        doc.kind_of_task,
        doc.revision,
        kind_words(doc.kind),
        doc.as_of_seq,
        verdict_words(doc.verdict),
        number(total),
        counts_line(&doc.counts),
    )
}

/// The summary as a table: head, aggregates, and the rows with those that haven't succeeded first.
pub fn table(doc: &SummaryDoc, stores: &Stores, zone: &TimeZone) -> String {
    let mut text = head(doc);
    if !doc.aggregates.is_empty() {
        text.push('\n');
        let widest = doc.aggregates.iter().map(|a| a.name.chars().count()).max().unwrap_or(0);
        for aggregate in &doc.aggregates {
            text.push_str(&format!("{:<widest$}  {}\n", aggregate.name, aggregate_line(aggregate)));
        }
    }
    let (rest, succeeded): (Vec<&RowDoc>, Vec<&RowDoc>) = doc.rows.iter().partition(|r| r.set != TaskSet::Succeeded);
    let mut rows = Table::new(&["target", "name", "region", "set", "state", ">attempt", "why", "next"]);
    let state =
        |row: &RowDoc| serde_json::to_value(row.state).ok().and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    for row in rest.iter().chain(&succeeded).take(ROWS_SHOWN) {
        let store = stores.get(&row.target);
        rows.row([
            row.target.clone(),
            store.map(|s| one_line(&s.name, 30)).unwrap_or_default(),
            store.map(|s| one_line(&s.region, 20)).unwrap_or_default(),
            set_words(row.set).to_owned(),
            state(row),
            row.attempt.to_string(),
            if row.late { "came in late".to_owned() } else { reason(row, zone) },
            row.next.map(next_words).unwrap_or_default().to_owned(),
        ]);
    }
    text.push('\n');
    text.push_str(&rows.text());
    if doc.rows.len() > ROWS_SHOWN {
        let more = number((doc.rows.len() - ROWS_SHOWN) as u64);
        text.push_str(&format!("... and {more} more; `--format csv` or `--format json` has them all\n"));
    }
    text
}

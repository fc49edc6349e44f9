//! What the demo says at the end, and whether it is sound.

use std::collections::BTreeMap;

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::summary::PlanVerdict;
use fanfold_domain::task::Absorbed;
use fanfold_terminal::fixture::ExpectedStore;
use fanfold_wire::record::{PlanRecord, ReportCounts};
use serde::Serialize;
use serde_json::Value;

use super::follow::{Followed, SeenSummary, Timeline};
use super::judge::ExecutionCounts;
use super::plan::DATE;
use crate::cmd::demo::DemoArgs;
use crate::render::format::number;
use crate::render::summary::kind_words;
use crate::render::table::Table;
use crate::verify::VerifyReport;

/// What was absorbed or refused.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AbsorbedCounts {
    /// Repeats, caught by the recorder or by the fold.
    pub duplicate: u64,
    /// About attempts that were over.
    pub stale: u64,
    /// About tasks that were over.
    pub late: u64,
    /// Not this task's attempt.
    pub foreign: u64,
    /// Answered with a final refusal, by code.
    pub refused: BTreeMap<String, u64>,
}

/// What was checked.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The state bucket equals the fold of the log.
    pub state_matches_replay: bool,
    /// Every summary was computed again to the same bytes.
    pub summaries_reproduced: bool,
    /// Every row that succeeded says what the store's files hold.
    pub results_match_stores: bool,
    /// What differed, the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

/// The demo's account.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    /// The plan.
    pub plan_id: String,
    /// Stores.
    pub stores: u32,
    /// Deadline, in milliseconds.
    pub deadline_ms: u64,
    /// See the demo's contract in docs/demo.md.
    pub elapsed_ms: u64,
    /// Verdict.
    pub verdict: PlanVerdict,
    /// Summaries in order.
    pub summaries: Vec<SeenSummary>,
    /// When things came into the log.
    pub timeline: Timeline,
    /// The handlers' own account.
    pub executions: ExecutionCounts,
    /// What was absorbed.
    pub absorbed: AbsorbedCounts,
    /// What was checked.
    pub verify: Verified,
}

impl DemoReport {
    /// Puts the accounts together.
    #[expect(clippy::too_many_arguments, reason = "one call brings all accounts to one table")]
    pub(crate) fn assemble(
        args: &DemoArgs,
        record: &PlanRecord,
        followed: Followed,
        executions: ExecutionCounts,
        recorded: &ReportCounts,
        verified: VerifyReport,
        document: &[u8],
        stores: &[ExpectedStore],
    ) -> Self {
        let Absorbed { duplicate, stale, late, foreign, .. } = record.absorbed;
        let mut differences = verified.differences;
        let wrong = wrong_rows(document, stores);
        let results_match_stores = wrong.is_empty();
        differences.extend(wrong.into_iter().take(10));
        Self {
            plan_id: record.plan_id.to_string(),
            stores: args.stores,
            deadline_ms: args.deadline_ms,
            elapsed_ms: followed.elapsed_ms,
            verdict: record.verdict,
            summaries: followed.summaries,
            timeline: followed.timeline,
            executions,
            absorbed: AbsorbedCounts {
                duplicate: u64::from(duplicate) + recorded.duplicate,
                stale: u64::from(stale),
                late: u64::from(late),
                foreign: u64::from(foreign),
                refused: (*recorded.refused).clone(),
            },
            verify: Verified {
                state_matches_replay: verified.state_matches_replay,
                summaries_reproduced: verified.summaries_reproduced,
                results_match_stores,
                differences,
            },
        }
    }

    /// Whether everything that must hold does.
    pub fn is_sound(&self, args: &DemoArgs) -> bool {
        let e = &self.executions;
        let adds_up = !self.summaries.is_empty() && self.summaries.iter().all(|s| s.total == u64::from(self.stores));
        let ended = self.summaries.last().is_some_and(|s| s.kind == SummaryKind::Final);
        let once = e.double_runs == 0 && e.overlapping_runs == 0 && e.reruns_after_success == 0;
        let capped = e.peak_in_flight <= u64::from(args.in_flight);
        let v = &self.verify;
        adds_up && ended && once && capped && v.state_matches_replay && v.summaries_reproduced && v.results_match_stores
    }

    /// A line a summary: every set that any of them has something in, so that a line adds up to its total.
    fn table(&self) -> String {
        let sets: Vec<TaskSet> =
            TaskSet::ALL.into_iter().filter(|set| self.summaries.iter().any(|s| s.counts.get(*set) > 0)).collect();
        let mut table = Table::new(
            &[">revision", "kind", ">after s"]
                .into_iter()
                .chain(sets.iter().map(|s| right(*s)))
                .chain([">total"])
                .collect::<Vec<_>>(),
        );
        for s in &self.summaries {
            let begin = [s.revision.to_string(), kind_words(s.kind).to_owned(), format!("{:.2}", s.emitted_ms as f64 / 1000.0)];
            let counts = sets.iter().map(|set| number(u64::from(s.counts.get(*set))));
            table.row(begin.into_iter().chain(counts).chain([number(s.total)]));
        }
        table.text().trim_end().to_owned()
    }

    /// The account for people.
    pub fn text(&self, document: &[u8]) -> String {
        let mut text = String::from("\n");
        let mut line = |l: String| {
            text.push_str(&l);
            text.push('\n');
        };
        let verdict = match self.verdict {
            PlanVerdict::Full => "full: every store is in",
            PlanVerdict::Reserved => "with reservations: not every store is in",
            PlanVerdict::Failed => "failed: too few stores are in",
        };
        line(format!("plan {}: {verdict}", self.plan_id));
        line(self.table());
        for missing in missing(document) {
            line(format!("  missing: {missing}"));
        }
        let (e, a, v) = (&self.executions, &self.absorbed, &self.verify);
        line(format!(
            "\nby the stores' own account: {} tasks, {} attempts, {} runs of a handler, at most {} at once",
            e.tasks, e.attempts, e.handler_runs, e.peak_in_flight
        ));
        line(format!(
            "ran twice: {}   overlapped: {}   ran after success: {}",
            e.double_runs, e.overlapping_runs, e.reruns_after_success
        ));
        let refused: Vec<String> = a.refused.iter().map(|(code, n)| format!("{n} {code}")).collect();
        let refused = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
        line(format!(
            "absorbed: {} duplicate, {} stale, {} late, {} foreign   refused: {refused}",
            a.duplicate, a.stale, a.late, a.foreign
        ));
        let yes = |b: bool| if b { "yes" } else { "NO" };
        line(format!(
            "state equals the replayed log: {}   summaries replay to the same bytes: {}   rows equal the stores' files: {}",
            yes(v.state_matches_replay),
            yes(v.summaries_reproduced),
            yes(v.results_match_stores)
        ));
        for difference in &v.differences {
            line(format!("  {difference}"));
        }
        text
    }
}

/// A set as the heading of a column of numbers.
fn right(set: TaskSet) -> &'static str {
    match set {
        TaskSet::Succeeded => ">succeeded",
        TaskSet::Failed => ">failed",
        TaskSet::Invalid => ">invalid",
        TaskSet::TimedOut => ">timed out",
        TaskSet::Offline => ">offline",
        TaskSet::Running => ">running",
        TaskSet::Pending => ">pending",
        TaskSet::Cancelled => ">cancelled",
    }
}

fn rows(document: &[u8]) -> Vec<Value> {
    let parsed: Option<Value> = serde_json::from_slice(document).ok();
    parsed.and_then(|d| d.get("rows").and_then(Value::as_array).cloned()).unwrap_or_default()
}

/// Stores that are not in, and why; the first twenty.
fn missing(document: &[u8]) -> Vec<String> {
    let text = |row: &Value, pointer: &str| row.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
    let out: Vec<Value> =
        rows(document).into_iter().filter(|r| r.get("set").and_then(Value::as_str) != Some("succeeded")).collect();
    let mut lines: Vec<String> = out
        .iter()
        .take(20)
        .map(|r| {
            format!("{} {} ({}: {})", text(r, "/target"), text(r, "/set"), text(r, "/error/code"), text(r, "/error/message"))
        })
        .collect();
    if out.len() > lines.len() {
        lines.push(format!("and {} more", out.len() - lines.len()));
    }
    lines
}

/// Rows that succeeded and do not say what the store's files hold.
fn wrong_rows(document: &[u8], stores: &[ExpectedStore]) -> Vec<String> {
    let by_id: BTreeMap<&str, &ExpectedStore> = stores.iter().map(|s| (s.store.as_str(), s)).collect();
    if by_id.is_empty() {
        return Vec::new();
    }
    let Ok(date) = DATE.parse() else { return vec!["the demo's date can't be read".into()] };
    let wrong = |row: &Value| {
        let target = row.get("target")?.as_str()?;
        if row.get("set")?.as_str()? != "succeeded" {
            return None;
        }
        let Some(store) = by_id.get(target) else { return Some(format!("{target} is in the summary and no store")) };
        let number = |pointer: &str| row.pointer(pointer).and_then(Value::as_u64);
        let files = row.pointer("/result/files").and_then(Value::as_array);
        let lines = files.map(|f| f.iter().filter_map(|f| f.get("lines")?.as_u64()).sum::<u64>());
        let version = row.pointer("/result/config/appVersion").and_then(Value::as_str);
        let same = number("/result/levels/error") == Some(store.errors(date))
            && lines == Some(store.lines(date))
            && version == Some(store.app_version.as_str());
        (!same).then(|| format!("{target}: the summary does not say what the store's files hold"))
    };
    rows(document).iter().filter_map(wrong).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_every_set_that_is_not_empty_and_its_lines_add_up() {
        let counts = |running: u32, cancelled: u32| json!({"succeeded": 280, "failed": 0, "invalid": 0, "timedOut": 3, "offline": 0, "running": running, "pending": 0, "cancelled": cancelled});
        let summary = |revision: u32, kind, counts: &Value| SeenSummary {
            revision,
            kind,
            as_of_seq: 9,
            sha256: String::new(),
            emitted_ms: 8_004,
            total: 300,
            counts: serde_json::from_value(counts.clone()).unwrap(),
        };
        let report = DemoReport {
            plan_id: "p".into(),
            stores: 300,
            deadline_ms: 8_000,
            elapsed_ms: 9_000,
            verdict: PlanVerdict::Reserved,
            summaries: vec![summary(1, SummaryKind::Partial, &counts(17, 0)), summary(2, SummaryKind::Final, &counts(0, 17))],
            timeline: Timeline::default(),
            executions: ExecutionCounts::default(),
            absorbed: AbsorbedCounts::default(),
            verify: Verified::default(),
        };
        let table = report.table();
        let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        let heading = ["REVISION", "KIND", "AFTER", "S", "SUCCEEDED", "TIMED", "OUT", "RUNNING", "CANCELLED", "TOTAL"];
        assert_eq!(lines[0], heading, "{table}");
        for line in &lines[1..] {
            let numbers: Vec<u64> = line[3..].iter().map(|n| n.parse().unwrap()).collect();
            let (total, sets) = numbers.split_last().unwrap();
            assert_eq!((sets.len(), sets.iter().sum::<u64>()), (4, *total), "{table}");
        }
        assert_eq!(lines.len(), 3, "{table}");
    }
}

//! One plan: its summaries, the rows of its last one, the API's list, the state bucket, a replay.

use std::collections::BTreeMap;

use fanfold::render::summary::{RowDoc, SummaryDoc};
use fanfold_domain::plan::SummaryKind;
use fanfold_domain::sets::{SetCounts, TaskSet};
use fanfold_domain::task::TaskState;
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::Buckets;
use fanfold_wire::api::TaskList;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::chaos::ground::Ground;

/// Most tasks asked for at once.
const PAGE: u32 = 500;

/// What HQ says of a plan.
#[derive(Debug, Default)]
pub(super) struct PlanAccount {
    /// Results by task id.
    pub(super) results: BTreeMap<String, Value>,
    /// What does not agree.
    pub(super) wrong: Vec<String>,
}

impl PlanAccount {
    fn check(&mut self, so: bool, otherwise: impl FnOnce() -> String) {
        if !so {
            self.wrong.push(otherwise());
        }
    }
}

/// Looks at one plan from every side.
pub(super) async fn judge(ground: &Ground, view: &PlanView) -> PlanAccount {
    let mut account = PlanAccount::default();
    let plan = view.plan.id().to_string();
    // First, since it waits until the records have caught up.
    let replayed = ground.cli().run(&["replay", "--plan", &plan, "--verify"]).await;
    account.check(replayed.code == Some(0), || format!("{plan}: replay: {}{}", replayed.stdout, replayed.stderr));
    let document = summaries(ground, view, &mut account).await;
    let listed = listed(ground, &plan).await;
    let stored = stored(ground, &plan, &mut account).await;
    account.check(document.rows.len() == view.plan.targets.len(), || format!("{plan}: {} rows", document.rows.len()));
    let mut counts = SetCounts::default();
    for row in &document.rows {
        counts.count(row.set);
        judge_row(&plan, row, &listed, &stored, &mut account);
    }
    account.check(counts == document.counts, || format!("{plan}: counts {:?}, rows {counts:?}", document.counts));
    account.check(listed.len() == document.rows.len(), || format!("{plan}: the API lists {} tasks", listed.len()));
    let left: u32 = document.counts.total() as u32 - counts.succeeded - counts.cancelled;
    account.check(left == 0, || format!("{plan}: not all succeeded or were cancelled: {counts:?}"));
    account.check(counts.cancelled == 0 || view.plan.cancel.is_some(), || format!("{plan}: nobody cancelled it: {counts:?}"));
    if let Some(cancelled_seq) = view.plan.cancelled_seq {
        let later = view.tasks.iter().flat_map(|t| &t.attempts).filter(|a| a.dispatched_seq > cancelled_seq).count();
        account.check(later == 0, || format!("{plan}: {later} attempts were handed out after it was cancelled"));
    }
    account
}

/// Every revision adds up, each number is there once, the last one is final; gives the last one's document.
async fn summaries(ground: &Ground, view: &PlanView, account: &mut PlanAccount) -> SummaryDoc {
    let plan = view.plan.id().to_string();
    let summaries = ground.hq.summaries(&plan).await;
    for (n, summary) in (1..).zip(&summaries) {
        account.check(summary.this.revision == n, || format!("{plan}: revision {} comes as number {n}", summary.this.revision));
        let (total, sealed) = (summary.counts.total(), view.plan.targets.len() as u64);
        account.check(total == sealed, || format!("{plan}: revision {n} adds up to {total}, not {sealed}"));
    }
    let finals = summaries.iter().filter(|s| s.kind == SummaryKind::Final).count();
    account.check(finals == 1, || format!("{plan}: {finals} final summaries"));
    let last = summaries.last().expect("a summary");
    account.check(last.kind == SummaryKind::Final, || format!("{plan}: the last summary is {:?}", last.kind));
    let document = ground.hq.document(&plan, last.this.revision).await;
    account.check(document.counts == last.counts, || format!("{plan}: the event says {:?}", last.counts));
    document
}

/// Records as the API lists them, by task id.
async fn listed(ground: &Ground, plan: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut offset = 0;
    loop {
        let request = json!({ "planId": plan, "limit": PAGE, "offset": offset });
        let page: TaskList = ground.hq.ask("task.list", &request).await.expect("the tasks");
        for record in page.tasks {
            all.insert(record.task_id.to_string(), serde_json::to_value(&record).expect("JSON"));
        }
        match page.next.filter(|next| *next > offset) {
            Some(next) => offset = next,
            None => return all,
        }
    }
}

/// Records of the state bucket, by task id.
async fn stored(ground: &Ground, plan: &str, account: &mut PlanAccount) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut entries = ground.hq.ledger.list_state(&format!("task.{plan}.>")).await.expect("the bucket");
    while let Some(entry) = entries.next().await {
        let entry = entry.expect("the bucket");
        let task = entry.key.strip_prefix("task.").unwrap_or_default().to_owned();
        match serde_json::from_slice(&entry.value) {
            Ok(value) => drop(all.insert(task, value)),
            Err(error) => account.check(false, || format!("record {}: {error}", entry.key)),
        }
    }
    all
}

fn judge_row(
    plan: &str,
    row: &RowDoc,
    listed: &BTreeMap<String, Value>,
    stored: &BTreeMap<String, Value>,
    account: &mut PlanAccount,
) {
    let task = format!("{plan}.{}.main", row.target);
    let Some(api) = listed.get(&task) else {
        return account.check(false, || format!("{task}: the API does not list it"));
    };
    match stored.get(&task) {
        Some(record) => account.check(record == api, || format!("{task}: the bucket has {record}, the API says {api}")),
        // No event, no record.
        None => account.check(api["seq"] == 0, || format!("{task}: no record in the bucket, the API says {api}")),
    }
    let same = |name: &str, value: Value| api.get(name).cloned().unwrap_or_default() == value;
    let agrees = same("status", json!(row.state)) && same("set", json!(row.set)) && same("attempt", json!(row.attempt));
    account.check(agrees, || format!("{task}: the summary says {row:?}, the API {api}"));
    let result = row.result.clone().unwrap_or_default();
    account.check(same("result", result.clone()), || format!("{task}: the summary shows {result}, the API {}", api["result"]));
    if row.set == TaskSet::Succeeded {
        account.check(row.state == TaskState::Succeeded && row.result.is_some(), || format!("{task}: {row:?}"));
        account.results.insert(task, result);
    }
}

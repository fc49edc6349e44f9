//! The state bucket against the fold.

use std::collections::BTreeMap;
use std::time::Duration;

use fanfold_domain::ids::{PlanId, TaskId};
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::Ledger;
use fanfold_wire::record::{Checkpoint, PlanRecord, TaskRecord, plan_key, task_key};
use futures::StreamExt;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Folder, VerifyError, VerifyReport, filters};
use crate::patience;

/// Pause between two looks at the checkpoint.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the comparison is made anew because the plan went on meanwhile.
const ROUNDS_MAX: u32 = 8;
/// How often the API is asked again where it differs.
const API_ROUNDS_MAX: u32 = 10;
/// How long it is asked again: a round may take long where the API waits for something itself.
const API_WITHIN: Duration = Duration::from_secs(5);

/// Compares the plan's records with the fold at the log's end. A plan that goes on meanwhile is folded on and compared again. For the
/// bucket to catch up there is `catch_up` in all, however often that is. Where it does not, the API is not compared: it tells what the
/// bucket says.
pub(super) async fn check(
    ledger: &dyn Ledger,
    plan: &PlanId,
    folder: &mut Folder,
    folded_to: u64,
    catch_up: Duration,
    report: &mut VerifyReport,
) -> Result<(), VerifyError> {
    let mut folded_to = folded_to;
    let until = Instant::now() + catch_up;
    for round in 1..=ROUNDS_MAX {
        let Some(view) = folder.view.as_ref() else { return Err(VerifyError::UnknownPlan(plan.clone())) };
        report.events = folder.events;
        report.as_of_seq = view.last_seq;
        let behind = wait_for_checkpoint(ledger, view.last_seq, until).await?;
        let is_behind = behind.is_some();
        let mut differences: Vec<String> = behind.into_iter().collect();
        let (records, found) = compare(ledger, plan, view).await?;
        differences.extend(found);
        report.records = records;
        let last = ledger.last_seq().await?;
        if !differences.is_empty()
            && !is_behind
            && round < ROUNDS_MAX
            && last > folded_to
            && fold_on(ledger, plan, folder, folded_to + 1, last).await?
        {
            folded_to = last;
            continue;
        }
        for difference in differences {
            report.state_differs(difference);
        }
        return if is_behind { Ok(()) } else { api_too(ledger, plan, folder, folded_to, report).await };
    }
    Ok(())
}

/// Compares what readers are told. The API answers from a view of its own, which may be a moment behind or ahead.
async fn api_too(
    ledger: &dyn Ledger,
    plan: &PlanId,
    folder: &mut Folder,
    mut folded_to: u64,
    report: &mut VerifyReport,
) -> Result<(), VerifyError> {
    let until = Instant::now() + API_WITHIN;
    for round in 1..=API_ROUNDS_MAX {
        let Some(view) = folder.view.as_ref() else { return Ok(()) };
        let told = super::api::compare(ledger, plan, view).await?;
        if told.differences.is_empty() || round == API_ROUNDS_MAX || Instant::now() >= until {
            report.api_matches = told.asked.then_some(told.differences.is_empty());
            report.told = told.tasks;
            told.differences.into_iter().for_each(|difference| report.differs(difference));
            return Ok(());
        }
        sleep(PAUSE * 2).await;
        let last = ledger.last_seq().await?;
        if last > folded_to {
            fold_on(ledger, plan, folder, folded_to + 1, last).await?;
            folded_to = last;
        }
    }
    Ok(())
}

/// Folds what has come since; whether there was anything.
async fn fold_on(ledger: &dyn Ledger, plan: &PlanId, folder: &mut Folder, from: u64, to: u64) -> Result<bool, VerifyError> {
    let before = folder.events;
    let mut events = ledger.read(filters(plan), from, to).await?;
    while let Some(stored) = events.next().await {
        folder.apply(&stored?);
        patience::alive();
    }
    Ok(folder.events > before)
}

/// Waits until every record is written up to `seq`; what to say when that does not happen in time.
async fn wait_for_checkpoint(ledger: &dyn Ledger, seq: u64, until: Instant) -> Result<Option<String>, VerifyError> {
    loop {
        patience::poll(format!("the projector to write the state bucket up to #{seq}"));
        let entry = ledger.get_checkpoint().await?;
        let reached = entry.as_ref().and_then(|e| Checkpoint::parse(&e.value)).map(|c| c.seq);
        if reached.is_some_and(|r| r >= seq) {
            return Ok(None);
        }
        if Instant::now() >= until {
            let at = match (reached, entry) {
                (Some(reached), _) => format!("is at #{reached}"),
                (None, Some(_)) => "is damaged".to_owned(),
                (None, None) => "is missing".to_owned(),
            };
            return Ok(Some(format!("checkpoint: it {at}, the plan's last event is #{seq}; is the projector running?")));
        }
        sleep(PAUSE).await;
    }
}

pub(super) fn value_of(record: &impl Serialize) -> Result<Value, VerifyError> {
    serde_json::to_value(record).map_err(|e| VerifyError::Unwritable(e.to_string()))
}

/// How many records there are, and what differs, in target order.
async fn compare(ledger: &dyn Ledger, plan: &PlanId, view: &PlanView) -> Result<(u64, Vec<String>), VerifyError> {
    let mut differences = Vec::new();
    let key = plan_key(plan);
    let mut records = 0;
    match ledger.get_state(&key).await? {
        None => differences.push(format!("record {key}: it is missing")),
        Some(entry) => {
            records += 1;
            differences.extend(stored_difference(&key, &entry.value, &value_of(&PlanRecord::of(view))?));
        }
    }
    let mut seen = vec![false; view.tasks.len()];
    let mut by_index: BTreeMap<usize, String> = BTreeMap::new();
    let mut strangers: BTreeMap<String, String> = BTreeMap::new();
    patience::step("the records of the state bucket");
    let mut entries = ledger.list_state(&format!("task.{plan}.>")).await?;
    while let Some(entry) = entries.next().await {
        let entry = entry?;
        patience::alive();
        let task = entry.key.strip_prefix("task.").and_then(|k| TaskId::parse(k).ok()).filter(|t| t.stage == view.stage);
        let Some(index) = task.and_then(|t| view.plan.index_of(t.target.as_str())) else {
            strangers.insert(entry.key.clone(), format!("record {}: the plan has no such task", entry.key));
            continue;
        };
        if let Some(slot) = seen.get_mut(index) {
            records += u64::from(!*slot);
            *slot = true;
        }
        let found = match (view.tasks.get(index), TaskRecord::of(view, index)) {
            (Some(task), Some(record)) if task.seq > 0 => stored_difference(&entry.key, &entry.value, &value_of(&record)?),
            _ => Some(format!("record {}: the log has no event of this task", entry.key)),
        };
        // A record rewritten while it is listed comes twice; the later one counts.
        match found {
            Some(found) => drop(by_index.insert(index, found)),
            None => drop(by_index.remove(&index)),
        }
    }
    for (index, task) in view.tasks.iter().enumerate() {
        if task.seq > 0
            && !seen.get(index).copied().unwrap_or(false)
            && let Some(id) = view.task_id(index)
        {
            by_index.insert(index, format!("record {}: it is missing", task_key(&id)));
        }
    }
    differences.extend(by_index.into_values());
    differences.extend(strangers.into_values());
    Ok((records, differences))
}

/// Where a stored record and the log's differ first.
fn stored_difference(key: &str, stored: &[u8], wanted: &Value) -> Option<String> {
    match serde_json::from_slice::<Value>(stored) {
        Ok(value) => difference(&format!("record {key}"), &value, wanted),
        Err(e) => Some(format!("record {key}: it can't be read: {e}")),
    }
}

/// Where what somebody says and what the log gives differ first.
pub(super) fn difference(who: &str, found: &Value, wanted: &Value) -> Option<String> {
    let (path, found, wanted) = first_difference("", found, wanted)?;
    let path = if path.is_empty() { "the whole of it" } else { &path };
    Some(format!("{who}: {path} is {}, the log gives {}", shown(found), shown(wanted)))
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "absent".to_owned(), Value::to_string);
    crate::render::format::one_line(&text, 120)
}

type Difference<'a> = (String, Option<&'a Value>, Option<&'a Value>);

fn first_difference<'a>(path: &str, a: &'a Value, b: &'a Value) -> Option<Difference<'a>> {
    if a == b {
        return None;
    }
    if let (Value::Object(left), Value::Object(right)) = (a, b) {
        let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
        names.sort();
        for name in names {
            let at = format!("{path}/{name}");
            let found = match (left.get(name), right.get(name)) {
                (Some(x), Some(y)) => first_difference(&at, x, y),
                (x, y) => Some((at, x, y)),
            };
            if found.is_some() {
                return found;
            }
        }
    }
    if let (Value::Array(left), Value::Array(right)) = (a, b)
        && left.len() == right.len()
    {
        let pairs = left.iter().zip(right).enumerate();
        let found = pairs.into_iter().find_map(|(i, (x, y))| first_difference(&format!("{path}/{i}"), x, y));
        if found.is_some() {
            return found;
        }
    }
    Some((path.to_owned(), Some(a), Some(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let a = json!({"a": 1, "b": {"c": [1, 2]}, "d": 5});
        let cases = [
            (json!({"a": 1, "b": {"c": [1, 2]}, "d": 5}), None),
            (json!({"a": 1, "b": {"c": [1, 3]}, "d": 6}), Some("record k: /b/c/1 is 2, the log gives 3")),
            (json!({"a": 1, "b": {"c": [1]}, "d": 5}), Some("record k: /b/c is [1,2], the log gives [1]")),
            (json!({"a": 1, "b": {"c": [1, 2]}}), Some("record k: /d is 5, the log gives absent")),
            (json!([]), Some("record k: the whole of it is {\"a\":1,\"b\":{\"c\":[1,2]},\"d\":5}, the log gives []")),
        ];
        for (b, expected) in cases {
            assert_eq!(stored_difference("k", a.to_string().as_bytes(), &b).as_deref(), expected);
        }
        assert!(stored_difference("k", b"x", &a).is_some_and(|d| d.contains("can't be read")));
    }
}

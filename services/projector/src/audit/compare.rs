//! One plan's records against its fold.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use bytes::Bytes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::{Entry, Ledger, LedgerError};
use fanfold_wire::record::plan_key;
use fanfold_wire::subjects::plan_log_filter;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{AuditReport, Difference};
use crate::flush::{TASKS_PER_LOCK, plan_record, records_of};

/// Writes under way at a time; each waits for its own answer.
const WRITES_IN_FLIGHT: usize = 512;
/// Longest value shown, in characters.
const SHOWN: usize = 200;

/// A sum over records that does not depend on their order: equal sums mean equal records, as far as damage goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    count: u64,
    sum: u128,
}

impl Sum {
    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(key.as_bytes());
            hasher.write_u8(0xff);
            hasher.write(value);
            u128::from(hasher.finish())
        };
        self.count += 1;
        self.sum = self.sum.wrapping_add((half(1) << 64) | half(2));
    }

    /// The sum of the records the fold gives.
    pub(super) fn of_view(view: &PlanView) -> Self {
        let mut sum = Self::default();
        for chunk in chunks(view) {
            records_of(view, &chunk).iter().for_each(|(_, (key, value))| sum.add(key, value));
        }
        plan_record(view).iter().for_each(|(key, value)| sum.add(key, value));
        sum
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

fn chunks(view: &PlanView) -> impl Iterator<Item = Vec<u32>> + use<> {
    let count = u32::try_from(view.tasks.len()).unwrap_or(u32::MAX);
    (0..count).step_by(TASKS_PER_LOCK).map(move |from| (from..count.min(from + TASKS_PER_LOCK as u32)).collect())
}

/// Every record the bucket has of a plan.
pub(super) async fn entries_of(ledger: &dyn Ledger, plan: &PlanId) -> Result<BTreeMap<String, Entry>, LedgerError> {
    let mut entries = BTreeMap::new();
    let mut tasks = ledger.list_state(&format!("task.{plan}.>")).await?;
    while let Some(entry) = tasks.next().await.transpose()? {
        entries.insert(entry.key.clone(), entry);
    }
    entries.extend(ledger.get_state(&plan_key(plan)).await?.map(|entry| (entry.key.clone(), entry)));
    Ok(entries)
}

/// Sequence of the last event about a plan or its tasks.
pub(super) async fn last_event_of(ledger: &dyn Ledger, plan: &PlanId) -> Result<u64, LedgerError> {
    Ok(ledger.last_under(&plan_log_filter(plan)).await?.map_or(0, |message| message.seq))
}

/// Writes what differs and removes what is left over.
pub(super) async fn settle(
    ledger: &dyn Ledger,
    view: &PlanView,
    mut entries: BTreeMap<String, Entry>,
    report: &mut AuditReport,
) -> Result<(), LedgerError> {
    for chunk in chunks(view) {
        let records = records_of(view, &chunk).into_iter().map(|(_, record)| record).collect();
        write_differing(ledger, records, &mut entries, report).await?;
    }
    write_differing(ledger, plan_record(view).into_iter().collect(), &mut entries, report).await?;
    for entry in entries.into_values() {
        // Where the log has lost events of this plan, a record may be the only trace of them.
        remove(ledger, entry, view.plan.holes.is_some(), report).await?;
    }
    Ok(())
}

async fn write_differing(
    ledger: &dyn Ledger,
    records: Vec<(String, Bytes)>,
    entries: &mut BTreeMap<String, Entry>,
    report: &mut AuditReport,
) -> Result<(), LedgerError> {
    let mut due = Vec::new();
    for (key, value) in records {
        let found = entries.remove(&key);
        match difference(&key, found.as_ref(), &value) {
            None => report.right += 1,
            Some(difference) => due.push((key, value, found.map_or(0, |entry| entry.revision), difference)),
        }
    }
    let writes = due.into_iter().map(|(key, value, expect, difference)| async move {
        Ok::<_, LedgerError>((ledger.put_state_if(&key, value, expect).await?, difference))
    });
    let written: Vec<_> = stream::iter(writes.collect::<Vec<_>>()).buffered(WRITES_IN_FLIGHT).try_collect().await?;
    for (answer, difference) in written {
        match answer {
            Some(_) => {
                report.rewritten += 1;
                report.tell(difference);
            }
            // The projector has written it meanwhile, as new as this or newer.
            None => report.right += 1,
        }
    }
    Ok(())
}

/// Removes a record nobody knows of; `keep`: leaves it and counts it.
pub(super) async fn remove(ledger: &dyn Ledger, entry: Entry, keep: bool, report: &mut AuditReport) -> Result<(), LedgerError> {
    let told = Difference {
        key: entry.key.clone(),
        field: String::new(),
        found: shown(&String::from_utf8_lossy(&entry.value)),
        expected: if keep { "nothing (the log has lost events; left alone)" } else { "nothing" }.to_owned(),
    };
    if keep {
        report.kept += 1;
        report.tell(told);
    } else if ledger.put_state_if(&entry.key, Bytes::new(), entry.revision).await?.is_some() {
        report.removed += 1;
        report.tell(told);
    }
    Ok(())
}

fn difference(key: &str, found: Option<&Entry>, expected: &[u8]) -> Option<Difference> {
    let told = |field: &str, found: &str, expected: &str| Difference {
        key: key.to_owned(),
        field: field.to_owned(),
        found: shown(found),
        expected: shown(expected),
    };
    let whole = String::from_utf8_lossy(expected);
    let Some(entry) = found else { return Some(told("", "no record", &whole)) };
    if entry.value == expected {
        return None;
    }
    let (Ok(a), Ok(b)) = (serde_json::from_slice::<Value>(&entry.value), serde_json::from_slice::<Value>(expected)) else {
        return Some(told("", &String::from_utf8_lossy(&entry.value), &whole));
    };
    first_difference(&a, &b, String::new()).map(|(field, found, expected)| told(&field, &found, &expected))
}

/// Where two values differ first: pointer and both sides.
fn first_difference(found: &Value, expected: &Value, at: String) -> Option<(String, String, String)> {
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| {
                let side = |map: &serde_json::Map<String, Value>| map.get(name).cloned();
                match (side(a), side(b)) {
                    (Some(a), Some(b)) => first_difference(&a, &b, format!("{at}/{name}")),
                    (a, b) => {
                        let text = |v: Option<Value>| v.map_or("nothing".to_owned(), |v| v.to_string());
                        Some((format!("{at}/{name}"), text(a), text(b)))
                    }
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| first_difference(a, b, format!("{at}/{i}")))
        }
        (a, b) => (a != b).then(|| (at, a.to_string(), b.to_string())),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

//! What every ledger must do, as one suite that every implementation runs.
//!
//! A check is an ordinary async function over two handles to one ledger (two connections, where there are connections),
//! so that "somebody else wrote meanwhile" is part of it. Checks use subjects and ids of their own and may share a ledger.

mod append;
mod atomic;
mod bus;
mod fenced;
pub mod files;
mod read;
mod store;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use crate::port::{Append, Appended, Expect, Ledger, Stored};

/// Longest wait for anything a check expects to happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a check found: nothing wrong, or what.
pub type Outcome = Result<(), String>;

/// Two handles to one ledger, and names that are a check's own.
#[derive(Clone)]
pub struct Bench {
    /// The handle most is done with.
    pub one: Arc<dyn Ledger>,
    /// Another handle to the same ledger, with a memory of its own.
    pub other: Arc<dyn Ledger>,
    tag: String,
}

/// One named requirement.
pub struct Check {
    /// What must hold, as a name.
    pub name: &'static str,
    run: fn(Bench) -> BoxFuture<'static, Outcome>,
}

macro_rules! checks {
    ($($module:ident: $($name:ident),+;)+) => {
        vec![$($(Check { name: stringify!($name), run: |bench| Box::pin($module::$name(bench)) }),+),+]
    };
}

/// All checks, in a good order.
pub fn checks() -> Vec<Check> {
    checks! {
        append: events_are_stored_in_order, repetitions_are_told_by_content, equal_ids_in_one_call_are_stored_once,
            zero_means_none_yet, an_expectation_covers_its_filter, repeated_decisions_are_no_conflict,
            decisions_of_one_task_in_one_call_are_judged_in_order, one_known_member_spoils_nothing,
            many_events_in_one_call, what_is_too_large_is_refused_first;
        atomic: all_or_nothing, a_repeated_batch_is_a_duplicate, an_atomic_batch_has_limits;
        fenced: decisions_follow_their_fence, an_empty_call_renews_the_lead, the_overtaken_append_nothing,
            one_conflict_of_many_is_found, a_stored_decision_is_a_duplicate, fence_ids_are_never_reused,
            more_decisions_than_a_batch_holds, the_lead_can_be_taken_again;
        read: ranges_and_filters, overlapping_filters_yield_a_message_once, the_last_under_a_filter,
            a_tail_goes_on_live, a_tail_may_begin_at_the_end;
        bus: only_stored_decisions_become_commands, queue_groups_share_and_subscribers_do_not, requests_are_answered_or_say_why,
            a_service_is_served;
        store: records_are_put_read_and_listed, a_record_is_replaced_only_as_it_was_seen, the_checkpoint_knows_its_last_writer,
            terminals_are_records_too, types_never_change, objects_come_back;
    }
}

/// Runs every check; the error names the ones that failed.
///
/// # Errors
/// One line for each failed check.
pub async fn run_all(one: Arc<dyn Ledger>, other: Arc<dyn Ledger>) -> Outcome {
    let mut failures = Vec::new();
    for check in checks() {
        if let Err(failure) = run_one(&check, &one, &other).await {
            failures.push(format!("{}: {failure}", check.name));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs one check.
///
/// # Errors
/// What did not hold.
pub async fn run_one(check: &Check, one: &Arc<dyn Ledger>, other: &Arc<dyn Ledger>) -> Outcome {
    // The log's position makes names new even on a ledger that was used before.
    let seq = one.last_seq().await.map_err(text)?;
    let bench = Bench { one: one.clone(), other: other.clone(), tag: format!("{}-{seq}", check.name.replace('_', "-")) };
    let started = std::time::Instant::now();
    let outcome =
        tokio::time::timeout(PATIENCE * 3, (check.run)(bench)).await.unwrap_or_else(|_| Err("it takes for ever".into()));
    tracing::debug!(check = check.name, elapsed_ms = started.elapsed().as_millis(), ok = outcome.is_ok(), "conformance");
    outcome
}

impl Bench {
    /// An id of this check's own.
    fn id(&self, name: impl ToString) -> String {
        format!("{}/{}", self.tag, name.to_string())
    }

    /// A report about target `n` of this check's plan.
    fn report(&self, n: usize) -> Append {
        let subject = format!("ff.task.{}.t{n}.main.by.T1", self.tag);
        let id = self.id(format!("report-{n}"));
        Append { payload: event(&id, json!({ "n": n })), subject, id, expect: None }
    }

    /// Filter over the decisions about target `n`.
    fn decisions(&self, n: usize) -> String {
        format!("ff.task.{}.t{n}.main.hq.*", self.tag)
    }

    /// A decision about target `n` that expects `last_seq`.
    fn decision(&self, n: usize, last_seq: u64) -> Append {
        let subject = format!("ff.task.{}.t{n}.main.hq.T1", self.tag);
        let id = self.id(format!("decision-{n}-{last_seq}"));
        let expect = Some(Expect { filter: self.decisions(n), last_seq });
        Append { payload: event(&id, json!({ "n": n })), subject, id, expect }
    }

    /// An event of this check's plan.
    fn plan_event(&self, name: &str, last_seq: Option<u64>) -> Append {
        let subject = format!("ff.plan.{}.{name}", self.tag);
        let id = self.id(name);
        let expect = last_seq.map(|last_seq| Expect { filter: format!("ff.plan.{}.*", self.tag), last_seq });
        Append { payload: event(&id, json!({ "name": name })), subject, id, expect }
    }

    fn tasks(&self) -> String {
        format!("ff.task.{}.>", self.tag)
    }

    /// Everything stored about this check's tasks.
    async fn stored_tasks(&self) -> Result<Vec<Stored>, String> {
        self.stored(self.tasks()).await
    }

    async fn stored(&self, filter: String) -> Result<Vec<Stored>, String> {
        let to = self.one.last_seq().await.map_err(text)?;
        let messages = self.one.read(vec![filter], 1, to).await.map_err(text)?;
        let messages = within(messages.collect::<Vec<_>>()).await?;
        messages.into_iter().collect::<Result<_, _>>().map_err(text)
    }

    async fn append_one(&self, event: Append) -> Result<Appended, String> {
        let answers = self.one.append(vec![event]).await.map_err(text)?;
        answers.into_iter().next().ok_or_else(|| "no answer".to_owned())
    }
}

/// A CloudEvent with this id and data.
fn event(id: &str, data: Value) -> Bytes {
    Bytes::from(
        json!({ "specversion": "1.0", "id": id, "source": "test", "type": "attempt.progressed", "subject": "p.t.main",
        "time": "2026-01-01T00:00:00Z", "data": data })
        .to_string(),
    )
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn equal<T: PartialEq + Debug>(what: &str, found: T, wanted: T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, wanted {wanted:?}")) }
}

fn ensure(what: &str, holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The sequence of a stored event; anything else is a failure.
fn stored_seq(answer: &Appended) -> Result<u64, String> {
    match answer {
        Appended::Stored { seq } => Ok(*seq),
        other => Err(format!("found {other:?}, wanted Stored")),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| format!("nothing within {PATIENCE:?}"))
}

async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> Result<T, String> {
    within(stream.next()).await?.ok_or_else(|| "the stream ended".to_owned())
}

//! HQ as a client sees it: the API's answers, the log's events, and whether they agree.

use std::sync::Arc;
use std::time::Duration;

use fanfold::client;
use fanfold::error::CliError;
use fanfold::render::summary::SummaryDoc;
use fanfold::verify::{self, VerifyReport};
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{Summarised, SummaryKind};
use fanfold_ledger::jetstream::{ConnectOpts, JetStreamLedger};
use fanfold_ledger::port::{Buckets, Ledger, Log, Stored};
use fanfold_wire::api::{Submitted, SummaryAnswer, TerminalList};
use fanfold_wire::record::{Checkpoint, PlanRecord, TaskRecord, TerminalRecord};
use fanfold_wire::subjects::plan_log_filter;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::wait::{SOON, found, until};

/// Lines of a plan's events shown when a test fails.
const LINES_SHOWN: usize = 40;

/// An event of the log, read.
#[derive(Debug, Clone)]
pub struct Event {
    /// Sequence.
    pub seq: u64,
    /// Log time, epoch ms.
    pub time_ms: i64,
    /// Subject it is stored under.
    pub subject: String,
    /// Its id.
    pub id: String,
    /// `task.dispatched` and so on.
    pub name: String,
    /// taskId or planId.
    pub about: String,
    /// Its own data.
    pub data: Value,
}

impl Event {
    fn of(stored: &Stored) -> Self {
        let event: Value = serde_json::from_slice(&stored.payload).expect("the log holds JSON");
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("type").trim_start_matches("fanfold.").trim_end_matches(".v1").to_owned();
        let data = event.get("data").cloned().unwrap_or_default();
        let (seq, time_ms, subject, id) = (stored.seq, stored.time_ms, stored.subject.clone(), stored.id.clone());
        Self { seq, time_ms, subject, id, name, about: text("subject"), data }
    }

    /// The attempt it is about; 0: none.
    pub fn attempt(&self) -> u64 {
        self.data.get("attempt").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Whether it is this event about this task's or plan's.
    pub fn is(&self, name: &str, about: &str) -> bool {
        self.name == name && self.about == about
    }

    /// The error code it carries.
    pub fn code(&self) -> &str {
        self.data.get("code").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A connection to HQ.
#[derive(Clone)]
pub struct Hq {
    /// The log and everything beside it.
    pub ledger: Arc<JetStreamLedger>,
}

fn plan_id(id: &str) -> PlanId {
    PlanId::new(id).expect("a token")
}

impl Hq {
    /// Connects; it survives restarts of the server.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn connect(url: &str) -> Self {
        Self { ledger: Arc::new(JetStreamLedger::connect(ConnectOpts::new(url, "e2e")).await.expect("a server")) }
    }

    /// Asks the API.
    ///
    /// # Errors
    /// What it says.
    pub async fn ask<T: DeserializeOwned>(&self, endpoint: &str, request: &Value) -> Result<T, CliError> {
        self.ask_within(endpoint, request, Duration::from_secs(10)).await
    }

    /// As [`Hq::ask`], with a time of one's own to wait.
    ///
    /// # Errors
    /// What it says.
    pub async fn ask_within<T: DeserializeOwned>(
        &self,
        endpoint: &str,
        request: &Value,
        within: Duration,
    ) -> Result<T, CliError> {
        let (noun, verb) = endpoint.split_once('.').expect("noun.verb");
        let ledger: &dyn Ledger = self.ledger.as_ref();
        client::call(ledger, noun, verb, request, within).await
    }

    /// Submits a plan.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn submit(&self, plan: &Value) -> Submitted {
        self.try_submit(plan).await.expect("the plan is taken")
    }

    /// Submits a plan.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn try_submit(&self, plan: &Value) -> Result<Submitted, CliError> {
        self.ask("plan.submit", &json!({ "plan": plan, "by": "e2e" })).await
    }

    /// A plan's record.
    pub async fn plan(&self, id: &str) -> PlanRecord {
        self.ask("plan.get", &json!({ "planId": id })).await.expect("the plan")
    }

    /// A task's record.
    pub async fn task(&self, id: &str) -> TaskRecord {
        self.ask("task.get", &json!({ "taskId": id })).await.expect("the task")
    }

    /// How many tasks of a plan have succeeded; 0 while nobody answers.
    pub async fn succeeded(&self, id: &str) -> u32 {
        self.ask::<PlanRecord>("plan.get", &json!({ "planId": id })).await.map_or(0, |p| p.counts.succeeded)
    }

    /// What HQ knows of terminals.
    pub async fn terminals(&self) -> Vec<TerminalRecord> {
        // A service that has just been started says so a moment before it listens.
        let list =
            until("the API lists terminals", SOON, async || self.ask::<TerminalList>("terminal.list", &json!({})).await.ok());
        list.await.terminals
    }

    /// What HQ knows of one terminal.
    pub async fn terminal(&self, id: &str) -> Option<TerminalRecord> {
        self.terminals().await.into_iter().find(|t| t.id.as_str() == id)
    }

    /// Waits until so many terminals are online.
    pub async fn online(&self, count: usize) {
        until(&format!("{count} terminals are online"), SOON, async || {
            (self.terminals().await.iter().filter(|t| t.online).count() == count).then_some(())
        })
        .await;
    }

    /// Everything under these filters, in order.
    pub async fn read(&self, filters: &[&str]) -> Vec<Event> {
        let last = self.ledger.last_seq().await.expect("the log");
        let filters = filters.iter().map(|f| (*f).to_owned()).collect();
        let mut stored = self.ledger.read(filters, 1, last).await.expect("the log");
        let mut events = Vec::new();
        while let Some(message) = stored.next().await {
            events.push(Event::of(&message.expect("the log")));
        }
        events
    }

    /// Every event of a plan and its tasks, in order.
    pub async fn events(&self, plan: &str) -> Vec<Event> {
        let plan = plan_id(plan);
        self.read(&[&plan_log_filter(&plan)]).await
    }

    /// A plan's events, a line each, for messages.
    pub async fn told(&self, plan: &str) -> String {
        let events = self.events(plan).await;
        let first_ms = events.first().map_or(0, |e| e.time_ms);
        let line = |e: &Event| format!("#{} +{} {} {} {}", e.seq, e.time_ms - first_ms, e.name, e.subject, e.data);
        events.iter().map(|e| line(e).chars().take(300).collect::<String>()).collect::<Vec<_>>().join("\n")
    }

    /// Waits for an event of a plan.
    pub async fn event(&self, plan: &str, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        self.nth_event(plan, what, 1, wanted).await
    }

    /// Waits for the n-th such event of a plan, from 1.
    pub async fn nth_event(&self, plan: &str, what: &str, n: usize, wanted: impl Fn(&Event) -> bool) -> Event {
        until(what, SOON, async || self.events(plan).await.into_iter().filter(|e| wanted(e)).nth(n - 1)).await
    }

    /// Waits until the projector has nothing to do: its bucket is compared with the log and as it left it.
    pub async fn projected(&self, within: Duration) -> Checkpoint {
        until("the bucket is compared with the log and as its checkpoint says", within, async || {
            let entry = self.ledger.get_checkpoint().await.ok()??;
            let checkpoint = Checkpoint::parse(&entry.value)?;
            let extent = self.ledger.state_extent().await.ok()?;
            let trail = checkpoint.trail.clone()?;
            (trail.revision == entry.revision && trail.revision == extent.last_revision && trail.records == extent.records)
                .then_some(checkpoint)
        })
        .await
    }

    /// Every summary of a plan, in order.
    pub async fn summaries(&self, plan: &str) -> Vec<Summarised> {
        let last = self.ledger.last_seq().await.expect("the log");
        let found = verify::summaries(self.ledger.as_ref(), &plan_id(plan), last).await.expect("the log");
        found.into_iter().map(|(_, s)| s).collect()
    }

    /// Waits for a summary of a kind.
    ///
    /// # Panics
    /// When it does not come; with the end of what the log says instead.
    pub async fn summary(&self, plan: &str, kind: SummaryKind, within: Duration) -> Summarised {
        let summary = found(within, async || self.summaries(plan).await.into_iter().find(|s| s.kind == kind)).await;
        if let Some(summary) = summary {
            return summary;
        }
        let told = self.told(plan).await;
        let lines: Vec<&str> = told.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LINES_SHOWN)..).unwrap_or_default().join("\n");
        panic!("not within {within:?}: {plan} has a summary {kind:?}; the log says at last:\n{last}")
    }

    /// A summary's document.
    pub async fn document(&self, plan: &str, revision: u32) -> SummaryDoc {
        let request = json!({ "planId": plan, "revision": revision });
        let answer: SummaryAnswer = self.ask("summary.get", &request).await.expect("the summary");
        serde_json::from_str(answer.document.expect("it fits a message").get()).expect("a summary")
    }

    /// Folds the log again and compares with everything written.
    pub async fn verify(&self, plan: &str) -> VerifyReport {
        verify::verify_plan(self.ledger.as_ref(), &plan_id(plan)).await.expect("it can be verified")
    }

    /// Verifies a plan.
    ///
    /// # Panics
    /// When anything written about it is not what the log says.
    pub async fn assert_true(&self, plan: &str) {
        let report = self.verify(plan).await;
        assert!(report.is_true(), "{report:#?}");
    }
}

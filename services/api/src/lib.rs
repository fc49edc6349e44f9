//! The API: checks and seals plans, records people's requests as plan events, answers queries.
//!
//! It decides nothing about tasks. Queries about open plans are answered from the fold, about closed ones from the state bucket, and
//! where that is behind from the log itself (`folded`): whatever is in the log is never denied. Every write is one atomic batch or one event that expects the plan's last sequence, so any number of these may run at once.

mod closed;
mod events;
mod folded;
mod names;
mod plans;
mod registry;
mod submit;
mod summaries;
mod tasks;
mod terminals;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Bucket, BusMessage, Ledger, LedgerError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use fanfold_wire::api::{ApiAnswer, ApiError};
use fanfold_wire::subjects;
use futures::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use names::Names;
pub use registry::register_builtin;

/// Requests answered at once; more wait in the client's buffer.
const CONCURRENT_MAX: usize = 64;
/// Room left in an answer for what stands around its records, in bytes.
pub(crate) const AROUND_BYTES: usize = 16 * 1024;

/// What the API works with.
#[derive(Clone)]
pub struct Deps {
    /// Where the log is.
    pub ledger: Arc<dyn Ledger>,
    /// Open plans.
    pub open: OpenPlans,
    /// Time of day.
    pub clock: Clock,
}

/// What the answers are made from.
#[derive(Clone)]
pub(crate) struct Sources {
    deps: Deps,
    /// Plans folded from the log.
    pub(crate) folded: Arc<folded::Folded>,
    /// Where the tasks of plans that are over lie.
    pub(crate) closed: Arc<closed::Closed>,
    /// Names of plans and of terminals that have records.
    pub(crate) plans: Arc<Names>,
    pub(crate) terminals: Arc<Names>,
}

impl std::ops::Deref for Sources {
    type Target = Deps;

    fn deref(&self) -> &Deps {
        &self.deps
    }
}

/// The endpoints, `(noun, verb)`.
pub const ENDPOINTS: [(&str, &str); 13] = [
    ("plan", "submit"),
    ("plan", "get"),
    ("plan", "list"),
    ("plan", "cancel"),
    ("plan", "close"),
    ("task", "get"),
    ("task", "list"),
    ("task", "history"),
    ("task", "requeue"),
    ("summary", "get"),
    ("type", "register"),
    ("type", "list"),
    ("terminal", "list"),
];

/// Runs until shutdown; requests taken by then are answered.
///
/// # Errors
/// Those of the ledger at the start.
pub async fn run(deps: Deps, shutdown: Shutdown) -> Result<(), LedgerError> {
    let endpoints = ENDPOINTS.iter().map(|(noun, verb)| (format!("{noun}-{verb}"), subjects::api(noun, verb))).collect();
    let mut requests = deps.ledger.serve("fanfold", env!("CARGO_PKG_VERSION"), endpoints).await?;
    let sources = Sources {
        deps,
        folded: Arc::default(),
        closed: Arc::default(),
        plans: Arc::new(Names::of(Bucket::State, "plan.")),
        terminals: Arc::new(Names::of(Bucket::Terminals, "terminal.")),
    };
    let permits = Arc::new(Semaphore::new(CONCURRENT_MAX));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let request = tokio::select! {
            biased;
            () = shutdown.wait() => break,
            request = requests.next() => request,
        };
        let (Some(request), Ok(permit)) = (request, permit) else { break };
        let sources = sources.clone();
        tokio::spawn(async move {
            answer(&sources, request).await;
            drop(permit);
        });
    }
    let all = u32::try_from(CONCURRENT_MAX).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(Duration::from_secs(5), permits.acquire_many(all)).await;
    Ok(())
}

async fn answer(deps: &Sources, request: BusMessage) {
    let Some(reply) = request.reply.as_deref().filter(|r| subjects::is_inbox(r, None)) else { return };
    let mut body = route(deps, &request.subject, &request.payload).await;
    if body.len() > deps.ledger.max_payload() {
        // It could not be sent, and the caller would wait for nothing.
        let message =
            format!("the answer has {} bytes, one message holds {}; ask for less at once", body.len(), deps.ledger.max_payload());
        body = encode::<()>(Err(ApiError::new("ANSWER_TOO_LARGE", message)));
    }
    if let Err(error) = deps.ledger.publish(reply, body).await {
        tracing::debug!(%error, subject = %request.subject, "an answer could not be sent");
    }
}

/// How many of these, from the first, one answer holds; at least one.
pub(crate) fn fitting(records: &[impl Serialize], max_payload: usize) -> usize {
    let mut room = max_payload.saturating_sub(AROUND_BYTES);
    let fits = |record| {
        let size = serde_json::to_vec(record).map_or(0, |text| text.len() + 1);
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    records.iter().map(fits).take_while(|fits| *fits).count().max(1)
}

async fn route(deps: &Sources, subject: &str, payload: &[u8]) -> Bytes {
    let endpoint = subject.strip_prefix("ff.api.").unwrap_or(subject);
    match endpoint {
        "plan.submit" => encode(with(payload, |r| submit::submit(deps, r)).await),
        "plan.get" => encode(with(payload, |r| plans::get(deps, r)).await),
        "plan.list" => encode(with(payload, |r| plans::list(deps, r)).await),
        "plan.cancel" => encode(with(payload, |r| plans::cancel(deps, r)).await),
        "plan.close" => encode(with(payload, |r| plans::close(deps, r)).await),
        "task.get" => encode(with(payload, |r| tasks::get(deps, r)).await),
        "task.list" => encode(with(payload, |r| tasks::list(deps, r)).await),
        "task.history" => encode(with(payload, |r| tasks::history(deps, r)).await),
        "task.requeue" => encode(with(payload, |r| tasks::requeue(deps, r)).await),
        "summary.get" => encode(with(payload, |r| summaries::get(deps, r)).await),
        "type.register" => encode(registry::register(deps, payload).await),
        "type.list" => encode(registry::list(deps).await),
        "terminal.list" => encode(with(payload, |r| terminals::list(deps, r)).await),
        other => encode::<()>(Err(ApiError::new("UNKNOWN_ENDPOINT", format!("there is no endpoint {other}")))),
    }
}

/// Reads the request, then does what it asks. An empty body is an empty object.
async fn with<R, A, F>(payload: &[u8], f: impl FnOnce(R) -> F) -> Result<A, ApiError>
where
    R: DeserializeOwned,
    F: Future<Output = Result<A, ApiError>>,
{
    let payload = if payload.is_empty() { b"{}" } else { payload };
    match fanfold_wire::strict::from_slice(payload) {
        Ok(request) => f(request).await,
        Err(error) => Err(ApiError::new("INVALID_REQUEST", format!("the request can't be read: {error}"))),
    }
}

fn encode<T: Serialize>(result: Result<T, ApiError>) -> Bytes {
    let answer = match result {
        Ok(value) => ApiAnswer::Ok(value),
        Err(error) => ApiAnswer::Error(error),
    };
    match serde_json::to_vec(&answer) {
        Ok(text) => Bytes::from(text),
        Err(error) => {
            tracing::error!(%error, "an answer can't be encoded");
            Bytes::from_static(
                br#"{"error":{"code":"INTERNAL","message":"the answer could not be encoded; see the service's log"}}"#,
            )
        }
    }
}

/// The ledger's errors as the caller sees them.
pub(crate) fn ledger_error(error: &LedgerError) -> ApiError {
    ApiError::new(error.code(), error.to_string())
}

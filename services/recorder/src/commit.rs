//! Group commit: whatever came in while the last commit was under way goes into the next one.

use std::num::NonZeroUsize;
use std::time::Duration;

use fanfold_domain::planted::{self, Planted};
use fanfold_ledger::port::{Append, Appended, LedgerError};
use fanfold_process::rates::Seldom;
use fanfold_wire::terminal::{ReportStatus, refusal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Deps;
use crate::answers::{Examined, refused, retry, settled};

/// Requests taken into one commit.
const REQUESTS_PER_COMMIT: usize = 1_000;
/// Reports taken into one commit, at least one request.
const REPORTS_PER_COMMIT: usize = 1_000;
/// After a commit of so many requests the next one waits a moment for more to come: a commit costs the server about as much for a few
/// events as for hundreds. As long as the last one took, which is longer where the server has much to do. A lone report waits for nothing.
const BUSY_REQUESTS: usize = 32;
const GATHER: Duration = Duration::from_millis(8);
const GATHER_MAX: Duration = Duration::from_millis(25);

/// A failure of a kind is said once in so long.
const SAID_PAUSE_MS: i64 = 5_000;
const SAID_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// Commits and answers until the intake is gone and its queue empty.
pub(crate) async fn run(deps: Deps, mut queue: mpsc::Receiver<Examined>) {
    let mut said = Seldom::new(SAID_PAUSE_MS, SAID_KEPT);
    let mut taken = Vec::with_capacity(REQUESTS_PER_COMMIT);
    let (mut busy, mut took) = (false, Duration::ZERO);
    while queue.recv_many(&mut taken, REQUESTS_PER_COMMIT).await > 0 {
        if busy && taken.len() < REQUESTS_PER_COMMIT {
            tokio::time::sleep(took.clamp(GATHER, GATHER_MAX)).await;
            let more = std::iter::from_fn(|| queue.try_recv().ok());
            taken.extend(more.take(REQUESTS_PER_COMMIT - taken.len()));
        }
        busy = taken.len() >= BUSY_REQUESTS;
        let begun = Instant::now();
        let mut requests = std::mem::take(&mut taken).into_iter().peekable();
        while requests.peek().is_some() {
            let mut group = Vec::new();
            let mut reports = 0;
            while let Some(request) = requests.next_if(|r| group.is_empty() || reports + r.candidates.len() <= REPORTS_PER_COMMIT)
            {
                reports += request.candidates.len();
                group.push(request);
            }
            commit(&deps, group, &mut said).await;
        }
        took = begun.elapsed();
    }
}

async fn commit(deps: &Deps, mut group: Vec<Examined>, said: &mut Seldom<&'static str>) {
    let appends: Vec<Append> = group.iter().flat_map(|r| r.candidates.iter().map(|c| c.append.clone())).collect();
    let outcome = if appends.is_empty() { Ok(Vec::new()) } else { deps.ledger.append(appends).await };
    let mut appended = match outcome {
        Ok(appended) => appended.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) => {
            if let Some(since_said) = said.may_say(&error.code(), deps.clock.now_ms()) {
                tracing::warn!(code = error.code(), %error, since_said, "reports could not be written; the terminals keep them and send them again");
            }
            Vec::from_iter(std::iter::repeat_n(Err(error), group.iter().map(|r| r.candidates.len()).sum()))
        }
    }
    .into_iter();
    for request in &mut group {
        for candidate in std::mem::take(&mut request.candidates) {
            let answer = match appended.next() {
                Some(Ok(appended)) => of_appended(candidate.index, &appended, candidate.valid),
                Some(Err(_)) if planted::is(Planted::AnsweredUnwritten) => {
                    settled(candidate.index, ReportStatus::Recorded, 0, candidate.valid)
                }
                Some(Err(error)) => of_error(candidate.index, &error),
                None => retry(candidate.index, refusal::UNAVAILABLE, "the log gave no answer; send it again"),
            };
            request.answer(answer);
        }
        deps.stats.count(&request.terminal, &request.answers);
    }
    for request in &group {
        let Some(reply) = &request.reply else { continue };
        if let Err(error) = deps.ledger.publish(reply, request.encode()).await {
            tracing::debug!(terminal = %request.terminal, %error, "an answer could not be sent; the terminal will ask again");
        }
    }
}

fn of_appended(index: usize, appended: &Appended, valid: Option<bool>) -> fanfold_wire::terminal::ReportResult {
    match appended {
        Appended::Stored { seq } => settled(index, ReportStatus::Recorded, *seq, valid),
        Appended::Duplicate { seq } => settled(index, ReportStatus::Duplicate, *seq, valid),
        Appended::Conflicting { seq } => refused(
            index,
            refusal::CONFLICT,
            &format!("the log holds another content under this report's id, at sequence {seq}; the first one stands"),
        ),
        Appended::Refused { code, message } => refused(index, code, message),
        // A report carries no expectation; a conflict can only be a passing state of the server.
        Appended::Conflict => retry(index, refusal::UNAVAILABLE, "the log refused it for now; send it again"),
    }
}

fn of_error(index: usize, error: &LedgerError) -> fanfold_wire::terminal::ReportResult {
    match error {
        LedgerError::Full(_) => retry(index, refusal::LOG_FULL, "the log is full; keep the report and send it again"),
        _ => retry(index, refusal::UNAVAILABLE, "the log is away; keep the report and send it again"),
    }
}

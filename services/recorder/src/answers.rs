//! A request on its way through: its reports, what is known about each, and the answer.

use bytes::Bytes;
use fanfold_domain::event::PROTOCOL_VERSION;
use fanfold_domain::ids::TerminalId;
use fanfold_ledger::port::Append;
use fanfold_wire::terminal::{ReportAnswer, ReportResult, ReportStatus, refusal};

/// Pause asked of terminals before they send again, in milliseconds.
pub(crate) const RETRY_AFTER_MS: u64 = 1_000;

/// A report that may be written.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) append: Append,
    /// For a success: the verdict.
    pub(crate) valid: Option<bool>,
}

/// A request whose reports are examined.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) terminal: TerminalId,
    pub(crate) reply: Option<String>,
    pub(crate) answers: Vec<Option<ReportResult>>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) bytes: usize,
    /// Its share of the bytes that may wait; given back when the request is answered.
    pub(crate) room: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Examined {
    pub(crate) fn answer(&mut self, result: ReportResult) {
        if let Some(slot) = self.answers.get_mut(result.index as usize) {
            *slot = Some(result);
        }
    }

    /// The encoded answer; a report nobody answered is to be sent again.
    pub(crate) fn encode(&self) -> Bytes {
        let answer = |(i, a): (usize, &Option<ReportResult>)| {
            a.clone().unwrap_or_else(|| retry(i, "UNAVAILABLE", "not examined; send it again"))
        };
        let answers: Vec<ReportResult> = self.answers.iter().enumerate().map(answer).collect();
        let again = answers.iter().any(|a| !a.status.is_settled());
        let answer =
            ReportAnswer { protocol_version: PROTOCOL_VERSION, answers, retry_after_ms: again.then_some(RETRY_AFTER_MS) };
        serde_json::to_vec(&answer).map(Bytes::from).unwrap_or_default()
    }
}

/// The answer to a request that is not looked at, the same for all: whatever it held is to come again.
pub(crate) fn not_looked_at() -> Bytes {
    let answer = retry(0, refusal::RATE_LIMITED, "too many reports in a short time; slow down and send them again");
    let answer = ReportAnswer { protocol_version: PROTOCOL_VERSION, answers: vec![answer], retry_after_ms: Some(RETRY_AFTER_MS) };
    serde_json::to_vec(&answer).map(Bytes::from).unwrap_or_default()
}

fn index(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

pub(crate) fn settled(i: usize, status: ReportStatus, seq: u64, valid: Option<bool>) -> ReportResult {
    ReportResult { index: index(i), status, seq: Some(seq), valid, code: None, message: None }
}

pub(crate) fn refused(i: usize, code: &str, message: &str) -> ReportResult {
    ReportResult {
        index: index(i),
        status: ReportStatus::Refused,
        seq: None,
        valid: None,
        code: Some(code.to_owned()),
        message: Some(message.chars().take(300).collect()),
    }
}

pub(crate) fn retry(i: usize, code: &str, message: &str) -> ReportResult {
    ReportResult { status: ReportStatus::Retry, ..refused(i, code, message) }
}

//! A log carried away as lines of JSON (`fanfold events --plan P --json`), and a plan replayed from it without any server.
//!
//! A line holds the event's bytes as they are stored: verbatim where they fit a line, else as text in `payload`. So what is folded from
//! a file is what is folded from the log, byte for byte.

use bytes::Bytes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, Summarised};
use fanfold_domain::summary::Summary;
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::Stored;
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects::{LogSubject, plan_event};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Folder, VerifyError};

/// One message of the log, as a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    seq: u64,
    time_ms: i64,
    #[serde(borrow)]
    subject: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    id: std::borrow::Cow<'a, str>,
    /// The event; null where it is no JSON.
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    /// The event's bytes as text, where they are no JSON or hold line ends.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload: Option<std::borrow::Cow<'a, str>>,
}

/// Why a file is no log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason} (make the file with `fanfold events --plan PLAN --json`)")]
pub struct LogFileError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// A message as one line, without its end; `None` when it can't be written.
pub fn line(stored: &Stored) -> Option<String> {
    let text = String::from_utf8_lossy(&stored.payload);
    let one_line = !text.contains(['\n', '\r']);
    let event = serde_json::from_str::<&RawValue>(&text).ok().filter(|event| one_line && event.get().len() == text.len());
    let payload = event.is_none().then(|| text.clone());
    let (subject, id) = (stored.subject.as_str().into(), stored.id.as_str().into());
    serde_json::to_string(&Line { seq: stored.seq, time_ms: stored.time_ms, subject, id, event, payload }).ok()
}

/// Reads lines as [`line()`] writes them; sequences must rise.
///
/// # Errors
/// [`LogFileError`] with the first bad line.
pub fn read(bytes: &[u8]) -> Result<Vec<Stored>, LogFileError> {
    let text = std::str::from_utf8(bytes).map_err(|e| LogFileError { line: 0, reason: format!("the file is no text: {e}") })?;
    let mut log: Vec<Stored> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |reason: String| LogFileError { line: i + 1, reason };
        let read: Line<'_> = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        if log.last().is_some_and(|last| last.seq >= read.seq) {
            return Err(bad(format!("#{} comes after a higher or equal sequence", read.seq)));
        }
        let payload = match (&read.payload, read.event) {
            (Some(payload), _) => Bytes::copy_from_slice(payload.as_bytes()),
            (None, Some(event)) => Bytes::copy_from_slice(event.get().as_bytes()),
            (None, None) => return Err(bad("neither `event` nor `payload`".to_owned())),
        };
        let (subject, id) = (read.subject.into_owned(), read.id.into_owned());
        log.push(Stored { seq: read.seq, time_ms: read.time_ms, subject, id, payload });
    }
    Ok(log)
}

/// A plan replayed from a file.
#[derive(Debug)]
pub struct Replayed {
    /// The plan at the last event folded.
    pub view: PlanView,
    /// Events folded.
    pub events: u64,
    /// Every summary that was written up to there, with the sha256 it has computed again, or why it can't be.
    pub summaries: Vec<(Summarised, Result<String, String>)>,
}

impl Replayed {
    /// The first summary that is not what was written.
    pub fn first_difference(&self) -> Option<String> {
        self.summaries.iter().find_map(|(written, computed)| {
            let name = format!("summary revision {} (as of #{})", written.this.revision, written.this.as_of_seq);
            match computed {
                Ok(sha256) if *sha256 == written.this.sha256 => None,
                Ok(sha256) => Some(format!("{name}: sha256 is {}, the file gives {sha256}", written.this.sha256)),
                Err(reason) => Some(format!("{name}: {reason}")),
            }
        })
    }
}

/// Plans submitted in a log, in order.
pub fn plans(log: &[Stored]) -> Vec<PlanId> {
    let submitted = |m: &Stored| match LogSubject::parse(&m.subject) {
        Some(LogSubject::Plan { plan, event }) if event == "submitted" => Some(plan),
        _ => None,
    };
    log.iter().filter_map(submitted).collect()
}

/// Every `plan.summarised` of a plan, with its own sequence.
pub fn summaries(log: &[Stored], plan: &PlanId) -> Vec<(u64, Summarised)> {
    let summarised = |m: &Stored| match decode(m.seq, m.time_ms, &m.subject, &m.payload) {
        Ok(LogEvent::Plan(of, logged)) if of == *plan => match logged.event {
            PlanEvent::Summarised(summarised) => Some((m.seq, *summarised)),
            _ => None,
        },
        _ => None,
    };
    let subject = plan_event(plan, "summarised");
    log.iter().filter(|m| m.subject == subject).filter_map(summarised).collect()
}

/// Folds a plan's events up to and including a sequence.
///
/// # Errors
/// [`VerifyError::UnknownPlan`], [`VerifyError::Unsupported`].
pub fn fold(log: &[Stored], plan: &PlanId, to: u64) -> Result<PlanView, VerifyError> {
    let mut folder = Folder::over(Vec::new());
    log.iter().filter(|m| m.seq <= to && is_of(m, plan)).for_each(|m| folder.apply(m));
    folder.into_view(plan)
}

/// Folds a plan's events up to and including a sequence, and computes each of its summaries again on the way.
///
/// # Errors
/// [`VerifyError::UnknownPlan`], [`VerifyError::Unsupported`].
pub fn replay(log: &[Stored], plan: &PlanId, to: u64) -> Result<Replayed, VerifyError> {
    let mut folder = Folder::over(Vec::new());
    let mut summaries = Vec::new();
    for stored in log.iter().filter(|m| m.seq <= to && is_of(m, plan)) {
        if let Ok(LogEvent::Plan(_, logged)) = decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload)
            && let PlanEvent::Summarised(written) = logged.event
        {
            // Folded here is exactly what came before it; a later event in between would change `asOfSeq` and with it the bytes.
            let computed = summarised(log, plan, &written);
            summaries.push((*written, computed));
        }
        folder.apply(stored);
    }
    let events = folder.events;
    Ok(Replayed { view: folder.into_view(plan)?, events, summaries })
}

/// The sha256 of a summary computed from exactly the events up to its position.
fn summarised(log: &[Stored], plan: &PlanId, written: &Summarised) -> Result<String, String> {
    let view = fold(log, plan, written.this.as_of_seq).map_err(|e| e.to_string())?;
    let bytes = Summary::compute(&view, written.kind).and_then(|s| s.to_bytes()).map_err(|e| e.to_string())?;
    Ok(sha256_hex(&bytes))
}

fn is_of(stored: &Stored, wanted: &PlanId) -> bool {
    match LogSubject::parse(&stored.subject) {
        Some(LogSubject::Plan { plan, .. }) => plan == *wanted,
        Some(LogSubject::Task { task, .. }) => task.plan == *wanted,
        Some(LogSubject::Fence { .. }) | None => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stored(seq: u64, payload: &str) -> Stored {
        let (subject, id) = ("ff.plan.p.paused".to_owned(), format!("p/paused/{seq}"));
        Stored { seq, time_ms: 5, subject, id, payload: Bytes::copy_from_slice(payload.as_bytes()) }
    }

    #[test]
    fn a_line_gives_the_very_bytes_back() {
        let odd = ["{\"b\":1.0,  \"a\":2}", "{\"a\":\n1}", "no json \u{1}", "", "{} "];
        let log: Vec<Stored> = odd.iter().zip(1..).map(|(payload, seq)| stored(seq, payload)).collect();
        let text: String = log.iter().map(|m| line(m).unwrap() + "\n").collect();
        let back = read(text.as_bytes()).unwrap();
        let facts = |log: &[Stored]| -> Vec<_> { log.iter().map(|m| (m.seq, m.id.clone(), m.payload.clone())).collect() };
        assert_eq!(facts(&back), facts(&log));
    }

    #[test]
    fn a_file_that_is_no_log_is_refused_with_its_line() {
        let good = line(&stored(7, "{}")).unwrap();
        for (text, at) in [("{}\n".to_owned(), 1), (format!("{good}\n{good}\n"), 2), (format!("{good}\n\nhello\n"), 3)] {
            assert_eq!(read(text.as_bytes()).unwrap_err().line, at, "{text}");
        }
        assert!(read(&[0xff]).is_err());
    }
}

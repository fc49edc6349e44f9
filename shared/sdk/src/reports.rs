//! Reports as bytes. They are written once: what is sent again is the same to the byte.

use bytes::Bytes;
use fanfold_wire::domain::event::TaskEvent;
use fanfold_wire::domain::ids::{TaskId, TerminalId};
use fanfold_wire::event::{EventError, Header, encode, report_id, task_data};

use crate::clock::WallClock;

/// Who writes reports, and by which clock. The time in them is this machine's claim; HQ goes by the log's own.
#[derive(Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) terminal: &'a TerminalId,
    pub(crate) clock: &'a WallClock,
}

/// Writes a report.
pub(crate) fn write(author: Author<'_>, task: &TaskId, traceparent: Option<&str>, event: &TaskEvent) -> Bytes {
    match try_write(author, task, traceparent, event) {
        Ok(bytes) => bytes,
        Err(error) => {
            // Not reachable with the values reports are made of. The recorder answers an empty object as malformed, which settles it.
            tracing::error!(%task, %error, "a report could not be written");
            Bytes::from_static(b"{}")
        }
    }
}

fn try_write(author: Author<'_>, task: &TaskId, traceparent: Option<&str>, event: &TaskEvent) -> Result<Bytes, EventError> {
    let terminal = author.terminal;
    let data = task_data(event)?;
    let header = Header {
        id: &report_id(task, terminal, event),
        source: &format!("/terminal/{terminal}"),
        subject: &task.to_string(),
        time_ms: author.clock.now_ms(),
        traceparent,
    };
    Ok(Bytes::from(encode(event.name(), &data, header)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fanfold_wire::event::{Envelope, decode_task};

    use super::*;

    #[test]
    fn a_report_is_a_cloud_event_about_its_task() {
        let (terminal, task) = (TerminalId::new("S1").unwrap(), TaskId::parse("p.S1.main").unwrap());
        let event = TaskEvent::Progressed { attempt: 2, k: 3, step: "scan".into(), ms: 7 };
        let clock = WallClock::of(|| Some(1_700_000_000_000));
        let bytes = write(Author { terminal: &terminal, clock: &clock }, &task, Some("00-1-2-01"), &event);
        let envelope = Envelope::parse(&bytes).unwrap();
        assert_eq!(envelope.id.as_deref(), Some("p.S1.main/2/S1/attempt.progressed/3"));
        assert_eq!((envelope.source.as_deref(), envelope.subject.as_deref()), (Some("/terminal/S1"), Some("p.S1.main")));
        assert_eq!(envelope.traceparent.as_deref(), Some("00-1-2-01"));
        assert_eq!(envelope.time.as_deref(), Some("2023-11-14T22:13:20.000Z"));
        let back = decode_task(envelope.name().unwrap(), envelope.data).unwrap();
        assert!(matches!(back, TaskEvent::Progressed { attempt: 2, k: 3, ms: 7, .. }));
    }
}

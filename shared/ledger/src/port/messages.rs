//! Plain messages and what can go wrong with a request.

use bytes::Bytes;

/// A message of core NATS (not stored).
#[derive(Debug, Clone)]
pub struct BusMessage {
    /// Subject it came in on.
    pub subject: String,
    /// Where an answer goes, if one is wanted.
    pub reply: Option<String>,
    /// Body.
    pub payload: Bytes,
    /// Sequence in the log, on messages the log itself republished (`ff.cmd.>`, header `Nats-Sequence`).
    pub seq: Option<u64>,
}

/// Why a request had no answer.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// Nobody listens there.
    #[error("nobody answers on {0} (is `fanfold up` or `fanfold serve{role}` running on this server?)", role = role_of(.0))]
    NoResponders(String),
    /// No answer in time.
    #[error("no answer on {subject} within {timeout_ms} ms")]
    Timeout {
        /// Subject asked.
        subject: String,
        /// Time waited.
        timeout_ms: u64,
    },
    /// The connection is gone, or the payload is over the server's limit.
    #[error("the request could not be sent: {0}")]
    Send(String),
}

/// How the service that answers on a subject is started, as far as it is one of the system's.
fn role_of(subject: &str) -> &'static str {
    match subject.strip_prefix("ff.").and_then(|rest| rest.split('.').next()) {
        Some("api") => " --role api",
        Some("report") => " --role recorder",
        Some("sync" | "beat") => " --role dispatcher",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_named_by_its_role() {
        let said = |subject: &str| RequestError::NoResponders(subject.to_owned()).to_string();
        assert!(said("ff.api.plan.list").contains("`fanfold serve --role api`"), "{}", said("ff.api.plan.list"));
        assert!(said("ff.report.S1").contains("`fanfold serve --role recorder`"), "{}", said("ff.report.S1"));
        assert!(said("elsewhere").contains("`fanfold serve` running"), "{}", said("elsewhere"));
    }
}

//! A fence as it is stored: subject, id and payload.

use bytes::Bytes;
use serde_json::json;

/// Subject of a role's fences.
pub(crate) fn subject(role: &str) -> String {
    format!("ff.fence.{role}")
}

/// Id of one fence: never used twice.
pub(crate) fn id(role: &str, incarnation: &str, number: u64) -> String {
    format!("{role}/{incarnation}/{number}")
}

/// Whether a stored fence was written by this incarnation, and with which number.
pub(crate) fn number_of(id: &str, role: &str, incarnation: &str) -> Option<u64> {
    id.strip_prefix(role)?.strip_prefix('/')?.strip_prefix(incarnation)?.strip_prefix('/')?.parse().ok()
}

/// Subject, id and CloudEvent of a fence. It carries no `time`: the log's own timestamp is the authoritative one.
pub(crate) fn message(role: &str, incarnation: &str, number: u64) -> (String, String, Bytes) {
    let id = id(role, incarnation, number);
    let event = json!({
        "specversion": "1.0", "id": id, "source": format!("/fanfold/{role}"), "type": "fanfold.fence.taken.v1", "subject": role,
        "data": { "role": role, "incarnation": incarnation, "number": number },
    });
    (subject(role), id, Bytes::from(event.to_string()))
}

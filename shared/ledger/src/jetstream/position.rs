//! Where a delivery stands: what the server writes into its reply subject.

/// What the reply subject of a delivery says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) stream_seq: u64,
    pub(super) consumer_seq: u64,
    pub(super) time_ms: i64,
    pub(super) pending: u64,
}

impl Position {
    /// `$JS.ACK.<stream>.<consumer>.<tries>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>`, in its newer form with
    /// domain and account hash after `ACK`.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.split('.').collect();
        let numbers = match tokens.as_slice() {
            ["$JS", "ACK", _, _, _, numbers @ ..] if tokens.len() == 9 => numbers,
            ["$JS", "ACK", _, _, _, _, _, numbers @ ..] if tokens.len() >= 11 => numbers,
            _ => return None,
        };
        let [stream_seq, consumer_seq, nanos, pending, ..] = numbers else { return None };
        Some(Self {
            stream_seq: stream_seq.parse().ok()?,
            consumer_seq: consumer_seq.parse().ok()?,
            time_ms: nanos.parse::<i64>().ok()? / 1_000_000,
            pending: pending.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_reply_subject_are_understood() {
        let wanted = Some(Position { stream_seq: 7, consumer_seq: 3, time_ms: 1_700_000_000_123, pending: 9 });
        assert_eq!(Position::parse("$JS.ACK.S.C.1.7.3.1700000000123456789.9"), wanted);
        assert_eq!(Position::parse("$JS.ACK._.HASH.S.C.1.7.3.1700000000123456789.9.tok"), wanted);
        assert_eq!(Position::parse("_INBOX.x"), None);
        assert_eq!(Position::parse("$JS.ACK.S.C.1.x.3.1.9"), None);
    }
}

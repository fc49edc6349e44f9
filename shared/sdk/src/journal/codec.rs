//! Rows as bytes: a tag, fixed fields, then one text or body to the end. No lengths to trust, nothing to allocate from a length.

use bytes::Bytes;

use super::{EndKind, Record};

const BEGUN: u8 = 1;
const FINISHED: u8 = 2;
const SETTLED: u8 = 3;

fn end_byte(end: EndKind) -> u8 {
    match end {
        EndKind::Succeeded => 1,
        EndKind::Failed => 2,
        EndKind::Stopped => 3,
        EndKind::Rejected => 4,
    }
}

fn end_from(byte: u8) -> Option<EndKind> {
    Some(match byte {
        1 => EndKind::Succeeded,
        2 => EndKind::Failed,
        3 => EndKind::Stopped,
        4 => EndKind::Rejected,
        _ => return None,
    })
}

/// Writes a row.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    match record {
        Record::Begun { traceparent } => {
            let mut out = vec![BEGUN];
            out.extend_from_slice(traceparent.as_deref().unwrap_or("").as_bytes());
            out
        }
        Record::Finished { end, report } => {
            let mut out = Vec::with_capacity(report.len() + 2);
            out.extend_from_slice(&[FINISHED, end_byte(*end)]);
            out.extend_from_slice(report);
            out
        }
        Record::Settled { end, seq, valid, code } => {
            let mut out = vec![SETTLED, end_byte(*end), u8::from(*valid)];
            out.extend_from_slice(&seq.to_le_bytes());
            out.extend_from_slice(code.as_deref().unwrap_or("").as_bytes());
            out
        }
    }
}

fn text(bytes: &[u8]) -> Option<Option<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some((!text.is_empty()).then(|| text.to_owned()))
}

/// Reads a row; `None`: it is none.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    match bytes {
        [BEGUN, rest @ ..] => Some(Record::Begun { traceparent: text(rest)? }),
        [FINISHED, end, rest @ ..] => Some(Record::Finished { end: end_from(*end)?, report: Bytes::copy_from_slice(rest) }),
        [SETTLED, end, valid @ (0 | 1), rest @ ..] => {
            let (seq, code) = rest.split_first_chunk::<8>()?;
            Some(Record::Settled { end: end_from(*end)?, seq: u64::from_le_bytes(*seq), valid: *valid == 1, code: text(code)? })
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let rows = [
            Record::Begun { traceparent: None },
            Record::Begun { traceparent: Some("00-a-b-01".into()) },
            Record::Finished { end: EndKind::Succeeded, report: Bytes::from_static(b"{\"x\":1}") },
            Record::Finished { end: EndKind::Rejected, report: Bytes::new() },
            Record::Settled { end: EndKind::Failed, seq: u64::MAX, valid: false, code: Some("NOT_YOURS".into()) },
            Record::Settled { end: EndKind::Stopped, seq: 0, valid: true, code: None },
        ];
        for row in rows {
            assert_eq!(decode(&encode(&row)), Some(row));
        }
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for bad in [
            &b""[..],
            b"\x00",
            b"\x09x",
            b"\x02",
            b"\x02\x09x",
            b"\x03\x01\x01\x00",
            b"\x03\x01\x07\x00\x00\x00\x00\x00\x00\x00\x00",
            b"\x01\xff",
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}

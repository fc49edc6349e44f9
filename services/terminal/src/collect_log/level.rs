//! The level of a log line, from the first level word in its head.
//!
//! A word is a run of ASCII letters, digits and `_`, so `NO_ERROR` and `TERRORS` are none of ours. Upper
//! case counts anywhere in the head; any case counts in `[error]`, `<error>` and after `level=`. Debug
//! words end the search too: `DEBUG got ERROR back` is a debug line.

/// How many bytes after the stamp are looked at: room for host, thread and trace ids, not for the message.
const HEAD_BYTES: usize = 128;

/// The levels that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Error,
    Warn,
    Info,
    Other,
}

/// The level of a line, given what follows its stamp.
pub(super) fn level_of(after_stamp: &[u8]) -> Level {
    let head = &after_stamp[..after_stamp.len().min(HEAD_BYTES)];
    let mut at = 0;
    while at < head.len() {
        if !is_word(head[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < head.len() && is_word(head[at]) {
            at += 1;
        }
        // A word that the head's end may have cut is not known to be whole.
        if at == HEAD_BYTES && after_stamp.get(at).copied().is_some_and(is_word) {
            break;
        }
        if let Some(level) = word_level(&head[start..at], &head[..start], head.get(at).copied()) {
            return level;
        }
    }
    Level::Other
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word_level(word: &[u8], before: &[u8], next: Option<u8>) -> Option<Level> {
    // No level word is shorter or longer; most words end here.
    if !(4..=11).contains(&word.len()) {
        return None;
    }
    let bracketed = matches!((before.last(), next), (Some(b'['), Some(b']')) | (Some(b'<'), Some(b'>')));
    if bracketed || before.ends_with(b"level=") || before.ends_with(b"level=\"") {
        return upper_level(&word.to_ascii_uppercase());
    }
    upper_level(word)
}

fn upper_level(word: &[u8]) -> Option<Level> {
    match word {
        b"ERROR" | b"FATAL" | b"CRITICAL" | b"SEVERE" => Some(Level::Error),
        b"WARN" | b"WARNING" => Some(Level::Warn),
        b"INFO" | b"INFORMATION" | b"NOTICE" => Some(Level::Info),
        b"DEBUG" | b"TRACE" | b"VERBOSE" => Some(Level::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, level_of};

    #[test]
    fn the_first_whole_level_word_in_the_head_decides() {
        let table: [(&str, Level); 22] = [
            (" ERROR pos.pay timeout", Level::Error),
            (" [main-1] FATAL out of memory", Level::Error),
            (" host app[12]: CRITICAL: disk", Level::Error),
            (" SEVERE", Level::Error),
            (",WARN,x", Level::Warn),
            (" WARNING low paper", Level::Warn),
            (" INFO no ERROR found", Level::Info),
            (" NOTICE x", Level::Info),
            (" [info] served", Level::Info),
            (" <Warning> x", Level::Warn),
            (" level=error msg=x", Level::Error),
            (" level=\"warn\" msg=x", Level::Warn),
            (" DEBUG got ERROR back", Level::Other),
            (" host app: no error found", Level::Other),
            (" TERROR", Level::Other),
            (" ERRORS", Level::Other),
            (" NO_ERROR", Level::Other),
            (" INFORMED", Level::Other),
            (" ERROR：支付失败", Level::Error),
            (" \u{fffd}发生ERROR了", Level::Error),
            ("", Level::Other),
            (" [error", Level::Other),
        ];
        for (line, expected) in table {
            assert_eq!(level_of(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn a_word_beyond_the_head_or_across_its_end_does_not_count() {
        let far = format!("{}ERROR", " ".repeat(super::HEAD_BYTES));
        assert_eq!(level_of(far.as_bytes()), Level::Other);
        let across = format!("{}ERRORS", " ".repeat(super::HEAD_BYTES - 5));
        assert_eq!(level_of(across.as_bytes()), Level::Other);
        let just_inside = format!("{}ERROR x", " ".repeat(super::HEAD_BYTES - 5));
        assert_eq!(level_of(just_inside.as_bytes()), Level::Error);
    }
}

//! Subjects and filters: matching, checking, and the literal part of a filter.
//!
//! Follows NATS: tokens divided by dots, `*` stands for one token, a final `>` for one or more.

/// Whether `subject` is matched by `filter`.
pub fn matches(filter: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in filter.split('.') {
        if wanted == ">" {
            return tokens.next().is_some();
        }
        match tokens.next() {
            Some(token) if wanted == "*" || wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// Whether a message may be stored under it: no wildcard, no empty token, no white space or control character.
pub fn is_publishable(subject: &str) -> bool {
    is_filter(subject) && subject.split('.').all(|token| token != "*" && token != ">")
}

/// Whether it is a well-formed filter (a subject, wildcards allowed, `>` only at the end).
pub fn is_filter(filter: &str) -> bool {
    let mut ended = false;
    !filter.is_empty()
        && filter.split('.').all(|token| {
            let fine = !ended && !token.is_empty() && !token.chars().any(|c| c.is_whitespace() || c.is_control());
            ended = token == ">";
            fine
        })
}

/// The part of a filter before its first wildcard; all of it when there is none.
pub(crate) fn literal_prefix(filter: &str) -> &str {
    let mut end = 0;
    for token in filter.split_inclusive('.') {
        if matches!(token, "*" | "*." | ">") {
            return &filter[..end];
        }
        end += token.len();
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_like_nats() {
        for (filter, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*.c", "a.b.c", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("a.*.*", "a.b", false),
        ] {
            assert_eq!(matches(filter, subject), expected, "{filter} on {subject}");
        }
    }

    #[test]
    fn only_plain_subjects_can_be_stored_under() {
        assert!(is_publishable("ff.task.p.t.main.by.t"));
        for bad in ["", "a..b", ".a", "a.", "a.*", "a.>", "a b", "a\n.b"] {
            assert!(!is_publishable(bad), "{bad:?}");
        }
        assert!(is_filter("a.*.>"));
        assert!(!is_filter("a.>.b"));
    }

    #[test]
    fn the_literal_part_ends_at_the_first_wildcard() {
        assert_eq!(literal_prefix("ff.task.p.t.main.hq.*"), "ff.task.p.t.main.hq.");
        assert_eq!(literal_prefix("ff.>"), "ff.");
        assert_eq!(literal_prefix("ff.a"), "ff.a");
        assert_eq!(literal_prefix(">"), "");
    }
}

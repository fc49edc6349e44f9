//! Which journal a person means who lets one in by name: the id itself or its beginning, of those heard of under the terminal's id.

use fanfold_wire::api::ApiError;

use super::Terminal;

/// Fewer characters than this name nothing: a beginning is typed from a list.
const PREFIX_CHARS_MIN: usize = 4;
/// Longest journal id, as HQ keeps them of terminals.
const JOURNAL_CHARS_MAX: usize = 64;

impl Terminal {
    /// Journals heard of under this id: the acting one's, one that waits for it to be gone, and the other process's.
    fn journals(&self) -> Vec<String> {
        let successor = self.successor.as_ref().map(|s| &s.identity.journal);
        let all = [Some(&self.identity.journal), successor, self.rival.as_deref()];
        let mut known: Vec<String> = all.into_iter().flatten().map(ToString::to_string).filter(|j| !j.is_empty()).collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// The journal that is meant. With `force` one that was never heard of is let in, too, by its whole id.
    ///
    /// # Errors
    /// `UNKNOWN_JOURNAL`, `AMBIGUOUS_JOURNAL`; both list what is known.
    pub(crate) fn journal_meant(&self, wanted: &str, force: bool) -> Result<String, ApiError> {
        let known = self.journals();
        if known.iter().any(|journal| journal == wanted) {
            return Ok(wanted.to_owned());
        }
        let shown: String = wanted.chars().take(JOURNAL_CHARS_MAX).collect();
        let long_enough = wanted.chars().count() >= PREFIX_CHARS_MIN;
        let listed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let meant: Vec<&String> = known.iter().filter(|journal| long_enough && journal.starts_with(wanted)).collect();
        match meant.as_slice() {
            [one] => Ok((*one).clone()),
            [] if force && long_enough && shown == wanted => Ok(shown),
            [] => Err(ApiError::new(
                "UNKNOWN_JOURNAL",
                format!(
                    "no process with journal `{shown}` was heard of under this id; known: {listed}. Give one of them, or at least its \
                     first {PREFIX_CHARS_MIN} characters; --force lets one in by its whole id before it is heard of. Nothing was changed"
                ),
            )),
            _ => Err(ApiError::new(
                "AMBIGUOUS_JOURNAL",
                format!(
                    "`{shown}` is the beginning of more than one journal; known: {listed}. Give more of it. Nothing was changed"
                ),
            )),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fanfold_domain::task::Journal;
    use fanfold_wire::terminal::Identity;

    use super::*;
    use crate::terminals::known::{Alike, Known};

    fn terminal(rival: Option<&str>) -> Terminal {
        let identity: Identity = serde_json::from_str(r#"{"journal":"5f2c81d0","boot":"b1"}"#).unwrap();
        let mut terminal = Terminal::new(Known::new(&identity, &mut Alike::default()), 0);
        terminal.rival = rival.map(|journal| Box::new(Journal::new(journal)));
        terminal
    }

    #[test]
    fn a_known_journal_is_found_by_its_id_or_its_beginning() {
        let twins = terminal(Some("5f2c99aa"));
        for (wanted, meant) in [("5f2c81d0", "5f2c81d0"), ("5f2c8", "5f2c81d0"), ("5f2c99", "5f2c99aa")] {
            assert_eq!(twins.journal_meant(wanted, false).unwrap(), meant);
            assert_eq!(twins.journal_meant(wanted, true).unwrap(), meant);
        }
        assert_eq!(
            terminal(Some("5f2c81d0")).journal_meant("5f2c", false).unwrap(),
            "5f2c81d0",
            "a cloned machine has the same one"
        );
    }

    #[test]
    fn anything_else_is_refused_and_says_what_is_known() {
        let twins = terminal(Some("5f2c99aa"));
        for (wanted, code) in [
            ("5f2c", "AMBIGUOUS_JOURNAL"),
            ("5f2", "UNKNOWN_JOURNAL"),
            ("", "UNKNOWN_JOURNAL"),
            ("beef", "UNKNOWN_JOURNAL"),
            ("5f2c81d0f", "UNKNOWN_JOURNAL"),
        ] {
            let error = twins.journal_meant(wanted, false).unwrap_err();
            assert_eq!(error.code, code, "{wanted}");
            assert!(error.message.contains("5f2c81d0, 5f2c99aa"), "{error}");
        }
    }

    #[test]
    fn one_that_was_never_heard_of_must_be_forced_and_whole() {
        let one = terminal(None);
        assert_eq!(one.journal_meant("0badcafe", true).unwrap(), "0badcafe");
        for nonsense in ["", "abc", &"x".repeat(65)] {
            assert_eq!(one.journal_meant(nonsense, true).unwrap_err().code, "UNKNOWN_JOURNAL");
        }
        assert_eq!(terminal(Some("5f2c99aa")).journal_meant("5f2c", true).unwrap_err().code, "AMBIGUOUS_JOURNAL");
    }
}

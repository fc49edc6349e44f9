//! How a terminal described itself, packed: HQ keeps one of these for each of a hundred thousand.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fanfold_domain::task::Journal;
use fanfold_wire::terminal::Identity;

/// What very many terminals say alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct About {
    pub(crate) protocol_version: u32,
    pub(crate) version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) types: Vec<String>,
}

/// Descriptions kept once. Beyond so many different ones nothing is shared any more.
const ALIKE_MAX: usize = 1_024;

/// The descriptions that are shared.
#[derive(Debug, Default)]
pub(crate) struct Alike(HashSet<Arc<About>>);

impl Alike {
    fn share(&mut self, about: About) -> Arc<About> {
        if let Some(known) = self.0.get(&about) {
            return Arc::clone(known);
        }
        let about = Arc::new(about);
        if self.0.len() >= ALIKE_MAX {
            // Of those that nobody says any more.
            self.0.retain(|known| Arc::strong_count(known) > 1);
        }
        if self.0.len() < ALIKE_MAX {
            self.0.insert(Arc::clone(&about));
        }
        about
    }
}

/// An [`Identity`], as HQ keeps it. The ids of journal and boot are of one form.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) journal: Journal,
    pub(crate) boot: Journal,
    pub(crate) slots: u32,
    pub(crate) beat_interval_ms: u64,
    pub(crate) about: Arc<About>,
}

impl Known {
    pub(crate) fn new(identity: &Identity, alike: &mut Alike) -> Self {
        let Identity { protocol_version, version, journal, boot, slots, beat_interval_ms, labels, types } = identity;
        let about =
            About { protocol_version: *protocol_version, version: version.clone(), labels: labels.clone(), types: types.clone() };
        Self {
            journal: Journal::new(journal),
            boot: Journal::new(boot),
            slots: *slots,
            beat_interval_ms: *beat_interval_ms,
            about: alike.share(about),
        }
    }

    /// Whether a terminal describes itself as it did before.
    pub(crate) fn is(&self, identity: &Identity) -> bool {
        let Identity { protocol_version, version, journal, boot, slots, beat_interval_ms, labels, types } = identity;
        self.journal == **journal
            && self.boot == **boot
            && (self.slots, self.beat_interval_ms) == (*slots, *beat_interval_ms)
            && self.about.protocol_version == *protocol_version
            && self.about.version == *version
            && self.about.labels == *labels
            && self.about.types == *types
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn identity(version: &str, boot: &str) -> Identity {
        let text = serde_json::json!({ "journal": "j", "boot": boot, "version": version, "slots": 2, "types": ["a@1"] });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn what_is_said_alike_is_kept_once_and_every_difference_is_seen() {
        let mut alike = Alike::default();
        let one = Known::new(&identity("1", "b1"), &mut alike);
        let two = Known::new(&identity("1", "b2"), &mut alike);
        assert!(Arc::ptr_eq(&one.about, &two.about));
        assert!(one.is(&identity("1", "b1")) && !one.is(&identity("1", "b2")) && !one.is(&identity("2", "b1")));
        let changed = [
            Identity { slots: 3, ..identity("1", "b1") },
            Identity { beat_interval_ms: 7, ..identity("1", "b1") },
            Identity { journal: "k".into(), ..identity("1", "b1") },
            Identity { types: Vec::new(), ..identity("1", "b1") },
            Identity { labels: [("a".to_owned(), "b".to_owned())].into(), ..identity("1", "b1") },
            Identity { protocol_version: 9, ..identity("1", "b1") },
        ];
        assert!(changed.iter().all(|other| !one.is(other)));
    }

    #[test]
    fn no_more_is_shared_than_there_is_room_for() {
        let mut alike = Alike::default();
        let kept: Vec<Known> = (0..3_000).map(|n| Known::new(&identity(&n.to_string(), "b"), &mut alike)).collect();
        assert_eq!(alike.0.len(), ALIKE_MAX);
        drop(kept);
        Known::new(&identity("another", "b"), &mut alike);
        assert_eq!(alike.0.len(), 1, "room is made where nobody says it any more");
    }
}

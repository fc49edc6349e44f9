//! Ids that were appended a moment ago: answered without asking the server, so that they do not spoil a batch.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// sha256 of a payload.
pub(super) type Hash = [u8; 32];

/// Bounded in number and in time: what is older than the duplicate window is forgotten, as the server forgets it.
pub(super) struct Known {
    ids: LruCache<String, Entry>,
    window: Duration,
}

struct Entry {
    seq: u64,
    hash: Hash,
    noted: Instant,
}

/// What is known about an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Stored at this sequence with these very bytes.
    Same(u64),
    /// Stored at this sequence with other bytes: compare the content.
    Other(u64),
}

impl Known {
    pub(super) fn new(ids_max: usize, window: Duration) -> Self {
        let bound = NonZeroUsize::new(ids_max).unwrap_or(NonZeroUsize::MIN);
        Self { ids: LruCache::new(bound), window }
    }

    pub(super) fn note(&mut self, id: &str, seq: u64, payload: &[u8]) {
        self.ids.put(id.to_owned(), Entry { seq, hash: Sha256::digest(payload).into(), noted: Instant::now() });
    }

    pub(super) fn seen(&mut self, id: &str, payload: &[u8]) -> Option<Seen> {
        let entry = self.ids.get(id)?;
        if entry.noted.elapsed() >= self.window {
            self.ids.pop(id);
            return None;
        }
        let hash: Hash = Sha256::digest(payload).into();
        Some(if hash == entry.hash { Seen::Same(entry.seq) } else { Seen::Other(entry.seq) })
    }
}

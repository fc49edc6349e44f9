//! Ids that were appended a moment ago: answered without asking the server, so that they do not spoil a batch.
//!
//! Kept as digests: an id is some sixty characters, and there are tens of thousands of them.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// 128 bits of a digest: enough that no two of them are alike by chance.
type Digest128 = [u8; 16];

/// Bounded in number and in time: what is older than the duplicate window is forgotten, as the server forgets it.
pub(super) struct Known {
    ids: LruCache<[u64; 2], Entry>,
    /// Seeded by the process: ids are made of what comes from outside.
    hashers: [RandomState; 2],
    began: Instant,
    window: Duration,
}

struct Entry {
    seq: u64,
    hash: Digest128,
    /// Since `began`.
    noted_ms: u64,
}

/// What is known about an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Stored at this sequence with these very bytes.
    Same(u64),
    /// Stored at this sequence with other bytes: compare the content.
    Other(u64),
}

fn hash(payload: &[u8]) -> Digest128 {
    let mut hash = Digest128::default();
    hash.iter_mut().zip(Sha256::digest(payload)).for_each(|(byte, digest)| *byte = digest);
    hash
}

impl Known {
    pub(super) fn new(ids_max: usize, window: Duration) -> Self {
        let bound = NonZeroUsize::new(ids_max).unwrap_or(NonZeroUsize::MIN);
        let hashers = [RandomState::new(), RandomState::new()];
        Self { ids: LruCache::new(bound), hashers, began: Instant::now(), window }
    }

    fn key(&self, id: &str) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(id))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn note(&mut self, id: &str, seq: u64, payload: &[u8]) {
        let noted_ms = self.now_ms();
        self.ids.put(self.key(id), Entry { seq, hash: hash(payload), noted_ms });
    }

    pub(super) fn seen(&mut self, id: &str, payload: &[u8]) -> Option<Seen> {
        let (key, now_ms) = (self.key(id), self.now_ms());
        let entry = self.ids.get(&key)?;
        if Duration::from_millis(now_ms.saturating_sub(entry.noted_ms)) >= self.window {
            self.ids.pop(&key);
            return None;
        }
        Some(if hash(payload) == entry.hash { Seen::Same(entry.seq) } else { Seen::Other(entry.seq) })
    }
}

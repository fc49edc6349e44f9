//! The buckets of the port: views for readers.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use super::{BoxStream, LedgerError};

/// Which bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// `fanfold-state`
    State,
    /// `fanfold-terminals`
    Terminals,
}

impl Bucket {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Bucket::State => "fanfold-state",
            Bucket::Terminals => "fanfold-terminals",
        }
    }
}

/// A record of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Key, dotted tokens.
    pub key: String,
    /// Revision (position in the bucket).
    pub revision: u64,
    /// Value; never empty, an empty one counts as deleted.
    pub value: Bytes,
}

/// How a bucket stands as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// When it was made: a bucket that was deleted and made again is another one.
    pub bucket: String,
    /// Last revision given.
    pub last_revision: u64,
    /// Messages it holds: records and deletion marks.
    pub records: u64,
}

/// The buckets: views for readers, never what a decision is made from.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Writes many records of `fanfold-state`, pipelined; returns after every ack. Later entries of the same key win.
    async fn put_state(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError>;
    /// One record of `fanfold-state`.
    async fn get_state(&self, key: &str) -> Result<Option<Entry>, LedgerError>;
    /// All records of `fanfold-state` whose key matches a filter such as `task.plan_1.>` or `plan.*`; ends.
    /// A record rewritten meanwhile may come twice; the later one counts.
    async fn list_state(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError>;
    /// Writes one record if its last revision is still `expect`; 0 = there is none, or a deleted one. An empty value deletes it.
    /// `None`: somebody else wrote it.
    async fn put_state_if(&self, key: &str, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError>;
    /// How `fanfold-state` stands as a whole, asked of its leader: one cheap request.
    async fn state_extent(&self) -> Result<Extent, LedgerError>;
    /// Writes the checkpoint if its last revision is still `expect` (0 = none). `None`: somebody else wrote it.
    async fn put_checkpoint(&self, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError>;
    /// The checkpoint, if there is one.
    async fn get_checkpoint(&self) -> Result<Option<Entry>, LedgerError>;
    /// Writes one record of `fanfold-terminals` (registry and presence), or of its store list (`store.<id>`).
    async fn put_terminals(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError>;
    /// One record of `fanfold-terminals`.
    async fn get_terminal(&self, key: &str) -> Result<Option<Entry>, LedgerError>;
    /// All records of `fanfold-terminals` under a filter; ends.
    async fn list_terminals(&self, filter: &str) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError>;
    /// How a bucket stands as a whole, asked of its leader.
    async fn extent(&self, bucket: Bucket) -> Result<Extent, LedgerError> {
        if bucket == Bucket::State {
            return self.state_extent().await;
        }
        let mut extent = Extent { bucket: bucket.name().to_owned(), ..Extent::default() };
        let mut all = self.list_terminals(">").await?;
        while let Some(entry) = all.next().await {
            extent.last_revision = extent.last_revision.max(entry?.revision);
            extent.records += 1;
        }
        Ok(extent)
    }
    /// Records of a bucket under a filter that were written after a revision; ends. For who has read what was there before. Deletions
    /// are not told.
    async fn list_since(
        &self,
        bucket: Bucket,
        filter: &str,
        after: u64,
    ) -> Result<BoxStream<Result<Entry, LedgerError>>, LedgerError> {
        let all = match bucket {
            Bucket::State => self.list_state(filter).await?,
            Bucket::Terminals => self.list_terminals(filter).await?,
        };
        let later = move |entry: &Result<Entry, LedgerError>| {
            std::future::ready(entry.as_ref().map_or(true, |entry| entry.revision > after))
        };
        Ok(all.filter(later).boxed())
    }
    /// The keys under a filter, those of deleted records perhaps among them, in no order.
    async fn keys(&self, bucket: Bucket, filter: &str) -> Result<Vec<String>, LedgerError> {
        let mut keys = Vec::new();
        let mut all = self.list_since(bucket, filter, 0).await?;
        while let Some(entry) = all.next().await {
            keys.push(entry?.key);
        }
        Ok(keys)
    }
    /// Many records by their keys, those that are there, in the order of the keys: what a page needs costs one page, however much the
    /// bucket holds.
    async fn get_many(&self, bucket: Bucket, keys: &[String]) -> Result<Vec<Entry>, LedgerError> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.extend(match bucket {
                Bucket::State => self.get_state(key).await?,
                Bucket::Terminals => self.get_terminal(key).await?,
            });
        }
        Ok(found)
    }
}

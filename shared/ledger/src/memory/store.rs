//! Buckets, types and objects in memory.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{Bucket, MemoryLedger};
use crate::port::{BoxStream, Buckets, Entry, Extent, LedgerError, Objects, Types};
use crate::subject;

/// Key of the checkpoint in `fanfold-state`.
const CHECKPOINT: &str = "checkpoint";

type Records = BoxStream<Result<Entry, LedgerError>>;

impl Bucket {
    fn put(&mut self, key: String, value: Bytes) -> u64 {
        self.last_revision += 1;
        self.records.insert(key, (self.last_revision, value));
        self.last_revision
    }

    fn put_all(&mut self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        if let Some((key, _)) = records.iter().find(|(key, _)| !subject::is_publishable(key)) {
            return Err(LedgerError::Other(format!("{key:?} is not a key")));
        }
        for (key, value) in records {
            self.put(key, value);
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Option<Entry> {
        let (revision, value) = self.records.get(key).filter(|(_, value)| !value.is_empty())?;
        Some(Entry { key: key.to_owned(), revision: *revision, value: value.clone() })
    }

    fn list(&self, filter: &str) -> Records {
        let mut entries: Vec<_> =
            self.records.keys().filter(|key| subject::matches(filter, key)).filter_map(|key| self.get(key)).collect();
        entries.sort_by_key(|entry| entry.revision);
        stream::iter(entries.into_iter().map(Ok)).boxed()
    }
}

impl Bucket {
    /// Writes a record if its revision is still `expect`; 0: there is none, or a deleted one.
    fn put_if(&mut self, key: &str, value: Bytes, expect: u64) -> Option<u64> {
        let (revision, deleted) = self.records.get(key).map_or((0, true), |(revision, value)| (*revision, value.is_empty()));
        (revision == expect || (expect == 0 && deleted)).then(|| self.put(key.to_owned(), value))
    }
}

#[async_trait]
impl Buckets for MemoryLedger {
    async fn put_state(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.reach()?.records.put_all(records)
    }

    async fn get_state(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        Ok(self.reach()?.records.get(key))
    }

    async fn list_state(&self, filter: &str) -> Result<Records, LedgerError> {
        Ok(self.reach()?.records.list(filter))
    }

    async fn put_state_if(&self, key: &str, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        if !subject::is_publishable(key) {
            return Err(LedgerError::Other(format!("{key:?} is not a key")));
        }
        Ok(self.reach()?.records.put_if(key, value, expect))
    }

    async fn state_extent(&self) -> Result<Extent, LedgerError> {
        let state = self.reach()?;
        let records = state.records.records.len() as u64;
        Ok(Extent { bucket: "memory".into(), last_revision: state.records.last_revision, records })
    }

    async fn put_checkpoint(&self, value: Bytes, expect: u64) -> Result<Option<u64>, LedgerError> {
        self.put_state_if(CHECKPOINT, value, expect).await
    }

    async fn get_checkpoint(&self) -> Result<Option<Entry>, LedgerError> {
        self.get_state(CHECKPOINT).await
    }

    async fn put_terminals(&self, records: Vec<(String, Bytes)>) -> Result<(), LedgerError> {
        self.reach()?.terminals.put_all(records)
    }

    async fn get_terminal(&self, key: &str) -> Result<Option<Entry>, LedgerError> {
        Ok(self.reach()?.terminals.get(key))
    }

    async fn list_terminals(&self, filter: &str) -> Result<Records, LedgerError> {
        Ok(self.reach()?.terminals.list(filter))
    }
}

#[async_trait]
impl Types for MemoryLedger {
    async fn create_type(&self, name: &str, version: u32, document: Bytes) -> Result<Option<Bytes>, LedgerError> {
        let mut state = self.reach()?;
        let key = (name.to_owned(), version);
        if let Some(existing) = state.types.get(&key) {
            return Ok(Some(existing.clone()));
        }
        state.types.insert(key, document);
        Ok(None)
    }

    async fn get_type(&self, name: &str, version: u32) -> Result<Option<Bytes>, LedgerError> {
        Ok(self.reach()?.types.get(&(name.to_owned(), version)).cloned())
    }

    async fn list_types(&self) -> Result<Vec<(String, u32, Bytes)>, LedgerError> {
        let state = self.reach()?;
        Ok(state.types.iter().map(|((name, version), document)| (name.clone(), *version, document.clone())).collect())
    }
}

#[async_trait]
impl Objects for MemoryLedger {
    async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), LedgerError> {
        self.reach()?.objects.insert(name.to_owned(), bytes);
        Ok(())
    }

    async fn get_object(&self, name: &str) -> Result<Option<Bytes>, LedgerError> {
        Ok(self.reach()?.objects.get(name).cloned())
    }
}

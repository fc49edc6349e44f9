//! The names of a bucket's records, in order: a page is found by its names and costs one page, however many there are.
//!
//! They are read once, when the first page is asked for; after that only what was written since. Names of records that are gone are
//! dropped when they are met. Nothing here is an answer: records are read from the bucket, each time.

use std::collections::BTreeSet;
use std::ops::Bound;

use fanfold_ledger::port::{Bucket, Ledger, LedgerError};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

/// Names kept. Where there are more they are read anew for every page, which takes as long as that does.
const NAMES_MAX: usize = 2_000_000;

#[derive(Default)]
struct Known {
    names: BTreeSet<Box<str>>,
    /// Whether there are too many to be kept.
    too_many: bool,
    /// Up to which revision they were read.
    seen: u64,
    /// Which bucket that was, and over which connection: after a crash of the server revisions are given again.
    of: Option<(String, u64)>,
}

/// See the module.
pub(crate) struct Names {
    bucket: Bucket,
    prefix: &'static str,
    max: usize,
    known: Mutex<Known>,
}

impl Names {
    /// Of the records of a bucket whose keys are this and one token.
    pub(crate) fn of(bucket: Bucket, prefix: &'static str) -> Self {
        Self { bucket, prefix, max: NAMES_MAX, known: Mutex::default() }
    }

    /// The records after a name, in the order of their names, at most so many; what can't be read is left out.
    pub(crate) async fn records<T: DeserializeOwned>(
        &self,
        ledger: &dyn Ledger,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, T)>, LedgerError> {
        let mut known = self.known.lock().await;
        self.catch_up(&mut known, ledger).await?;
        let mut found = Vec::new();
        let mut after = after.map(ToOwned::to_owned);
        // Each round but the last drops a name.
        while found.len() < limit {
            let names = if known.too_many {
                self.read_after(ledger, after.as_deref(), limit - found.len()).await?
            } else {
                let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let names = known.names.range::<str, _>((from, Bound::Unbounded)).take(limit - found.len());
                names.map(|name| name.to_string()).collect()
            };
            let Some(last) = names.last().cloned() else { break };
            let keys: Vec<String> = names.iter().map(|name| format!("{}{name}", self.prefix)).collect();
            let mut entries = ledger.get_many(self.bucket, &keys).await?.into_iter().peekable();
            for (name, key) in names.into_iter().zip(keys) {
                match entries.next_if(|entry| entry.key == key) {
                    Some(entry) => found.extend(serde_json::from_slice(&entry.value).ok().map(|record| (name, record))),
                    None => drop(known.names.remove(name.as_str())),
                }
            }
            after = Some(last);
        }
        Ok(found)
    }

    async fn catch_up(&self, known: &mut Known, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        let connection = *ledger.connections().borrow();
        let extent = ledger.extent(self.bucket).await?;
        let of = Some((extent.bucket, connection));
        if known.of != of || extent.last_revision < known.seen {
            *known = Known { of, ..Known::default() };
        }
        if extent.last_revision == known.seen || known.too_many {
            return Ok(());
        }
        let filter = format!("{}*", self.prefix);
        if known.seen == 0 {
            let keys = ledger.keys(self.bucket, &filter).await?;
            known.names.extend(keys.iter().filter_map(|key| key.strip_prefix(self.prefix)).map(Box::from));
        } else {
            let mut written = ledger.list_since(self.bucket, &filter, known.seen).await?;
            while let Some(entry) = written.next().await {
                known.names.extend(entry?.key.strip_prefix(self.prefix).map(Box::from));
            }
        }
        if known.names.len() > self.max {
            known.names.clear();
            known.too_many = true;
        }
        known.seen = extent.last_revision;
        Ok(())
    }

    /// The first names after one, read from the bucket.
    async fn read_after(&self, ledger: &dyn Ledger, after: Option<&str>, limit: usize) -> Result<Vec<String>, LedgerError> {
        let mut least = BTreeSet::new();
        let mut all = ledger.list_since(self.bucket, &format!("{}*", self.prefix), 0).await?;
        while let Some(entry) = all.next().await {
            let entry = entry?;
            let Some(name) = entry.key.strip_prefix(self.prefix) else { continue };
            if after.is_none_or(|after| name > after) {
                least.insert(name.to_owned());
                if least.len() > limit {
                    least.pop_last();
                }
            }
        }
        Ok(least.into_iter().collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use fanfold_ledger::memory::MemoryLedger;
    use fanfold_ledger::port::Buckets;

    use super::*;

    async fn put(ledger: &MemoryLedger, names: impl IntoIterator<Item = u32>) {
        let record = |n: u32| (format!("plan.p{n:03}"), Bytes::from(n.to_string()));
        ledger.put_state(names.into_iter().map(record).collect()).await.unwrap();
    }

    async fn page(names: &Names, ledger: &MemoryLedger, after: Option<&str>, limit: usize) -> Vec<u32> {
        let found: Vec<(String, u32)> = names.records(ledger, after, limit).await.unwrap();
        assert!(found.iter().all(|(name, n)| *name == format!("p{n:03}")), "{found:?}");
        found.into_iter().map(|(_, n)| n).collect()
    }

    #[tokio::test]
    async fn a_page_is_what_stands_in_the_bucket_now() {
        for max in [NAMES_MAX, 5] {
            let ledger = MemoryLedger::new(Arc::new(|| 0), 0);
            let names = Names { max, ..Names::of(Bucket::State, "plan.") };
            assert!(page(&names, &ledger, None, 10).await.is_empty());
            put(&ledger, (0..20).map(|n| n * 2)).await;
            ledger.put_state(vec![("task.x.y.main".into(), Bytes::from_static(b"7"))]).await.unwrap();
            assert_eq!(page(&names, &ledger, None, 3).await, [0, 2, 4]);
            assert_eq!(page(&names, &ledger, Some("p004"), 3).await, [6, 8, 10]);
            // Written and removed since.
            put(&ledger, [7, 6]).await;
            for gone in ["plan.p008", "plan.p010"] {
                let entry = ledger.get_state(gone).await.unwrap().unwrap();
                ledger.put_state_if(gone, Bytes::new(), entry.revision).await.unwrap().unwrap();
            }
            assert_eq!(page(&names, &ledger, Some("p004"), 4).await, [6, 7, 12, 14], "{max}");
            assert_eq!(page(&names, &ledger, Some("p005x"), 100).await.len(), 16, "{max}");
            assert!(page(&names, &ledger, Some("p038"), 4).await.is_empty());
        }
    }
}

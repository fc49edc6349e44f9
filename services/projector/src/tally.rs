//! What the bucket must look like: the projector is its only writer, so it knows.

use fanfold_ledger::port::Extent;
use fanfold_wire::record::Trail;

use crate::flush::Puts;

/// The bucket as it must be after this writer's own writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    extent: Extent,
    /// How many keys were new in the first flush is not known; the number of records is taken over after it.
    counted: bool,
}

impl Tally {
    /// Begins with the bucket as it is.
    pub(crate) fn adopt(extent: Extent, counted: bool) -> Self {
        Self { extent, counted }
    }

    /// Adds this writer's own puts.
    pub(crate) fn add(&mut self, puts: Puts) {
        self.extent.last_revision += puts.all;
        self.extent.records += puts.new;
    }

    /// What is wrong with the bucket, if anything; takes over what could not be known.
    pub(crate) fn compare(&mut self, found: &Extent) -> Option<String> {
        if !self.counted && found.last_revision == self.extent.last_revision {
            self.extent.records = found.records;
            self.counted = true;
        }
        let Extent { bucket, last_revision, records } = &self.extent;
        if found.bucket != *bucket {
            return Some(format!("it was made at {}, not at {bucket}: it is another bucket", found.bucket));
        }
        if found.last_revision != *last_revision {
            return Some(format!("its last revision is {}, not {last_revision}", found.last_revision));
        }
        (found.records != *records).then(|| format!("it holds {} messages, not {records}", found.records))
    }

    /// What the next checkpoint says of the bucket with itself in it; `None`: the records were not counted yet.
    pub(crate) fn trail(&self, is_first: bool) -> Option<Trail> {
        let Extent { bucket, last_revision, records } = &self.extent;
        let trail = Trail { bucket: bucket.clone(), revision: last_revision + 1, records: records + u64::from(is_first) };
        self.counted.then_some(trail)
    }
}

/// Whether the bucket is what its checkpoint, of this revision, says.
pub(crate) fn is_as_left(trail: Option<&Trail>, revision: u64, found: &Extent) -> bool {
    trail.is_some_and(|t| {
        t.bucket == found.bucket && t.revision == revision && found.last_revision == revision && t.records == found.records
    })
}

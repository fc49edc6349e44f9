//! What a server lacks when it is copied: a copy of a damaged store is a copy of the damage, and must say so.

use fanfold_ledger::port::{GAPS_MAX, Ledger};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::StreamFile;
use crate::error::CliError;
use crate::render::format::number;
use crate::verify::documents::{self, BadDocument};

/// Ranges told in a line.
const RANGES_SAID: usize = 5;

/// Events the log has lost, and summaries' documents and task types that are gone or damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lacks {
    /// Sequences of the log that do not come.
    pub events: u64,
    /// The ranges of them, first and last; at most 1,024.
    pub holes: Vec<(u64, u64)>,
    /// Documents that are missing or damaged.
    pub documents: u64,
    /// The first of them.
    pub bad_documents: Vec<BadDocument>,
    /// Task types that were counted and can't be read.
    pub types: u64,
}

impl Lacks {
    /// Whether nothing is lacking.
    pub fn is_nothing(&self) -> bool {
        self.events == 0 && self.documents == 0 && self.types == 0
    }

    /// Messages of the log that a copy must bring back.
    pub(super) fn leaves(&self, log: &StreamFile) -> u64 {
        log.messages.min(log.last_seq.saturating_sub(self.events))
    }

    /// What lacks, a line each, with a word in front that a script may look for.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.events > 0 {
            let range = |(from, to): &(u64, u64)| {
                if from == to { format!("#{}", number(*from)) } else { format!("#{} to #{}", number(*from), number(*to)) }
            };
            let said: Vec<String> = self.holes.iter().take(RANGES_SAID).map(range).collect();
            let more = if self.holes.len() > said.len() { ", and more" } else { "" };
            lines.push(format!("HOLES: the log has lost {} events: {}{more}", number(self.events), said.join(", ")));
        }
        if self.documents > 0 {
            let names = documents::names(&self.bad_documents, self.documents);
            lines.push(format!("DOCUMENTS: {} are not what the log says: {names}", number(self.documents)));
        }
        if self.types > 0 {
            lines.push(format!("TYPES: {} task types can't be read; plans go on, register them again", number(self.types)));
        }
        lines
    }

    fn hole(&mut self, from: u64, to: u64) {
        self.events += to - from + 1;
        if self.holes.len() < GAPS_MAX {
            self.holes.push((from, to));
        }
    }
}

/// Reads the whole log up to a sequence, every document it names, and the task types, of which there are so many.
///
/// # Errors
/// The ledger's.
pub(super) async fn look(ledger: &dyn Ledger, last_seq: u64, types: u64) -> Result<Lacks, CliError> {
    let mut lacks = Lacks::default();
    let mut next = 1;
    let mut events = ledger.read(vec!["ff.>".to_owned()], 1, last_seq).await?;
    while next <= last_seq
        && let Some(stored) = events.next().await.transpose()?
    {
        if stored.seq > next {
            lacks.hole(next, stored.seq - 1);
        }
        next = stored.seq + 1;
    }
    if next <= last_seq {
        lacks.hole(next, last_seq);
    }
    let found = documents::examine(ledger, None, last_seq, false).await?;
    lacks.documents = found.bad;
    lacks.bad_documents = found.named;
    lacks.types = types.saturating_sub(ledger.list_types().await?.len() as u64);
    Ok(lacks)
}

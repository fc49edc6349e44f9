//! The summaries' documents in the object store: whether each is there and whole, and those that are not written anew from the log.
//!
//! A summary is a pure function of the log, and its event holds the sha256 of its bytes: a document that is lost can be computed again,
//! and is taken only if it is the very one.

use bytes::Bytes;
use fanfold_domain::ids::PlanId;
use fanfold_domain::plan::{PlanEvent, Summarised};
use fanfold_domain::summary::Summary;
use fanfold_ledger::port::{Ledger, LedgerError, Stored};
use fanfold_wire::digest::sha256_hex;
use fanfold_wire::event::{LogEvent, decode};
use fanfold_wire::subjects::{LogSubject, SUMMARIES, plan_event};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::{Folder, VerifyError, filters};
use crate::patience;

/// Documents named one by one.
pub const NAMED_MAX: usize = 100;

/// What is wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// It is not there.
    Missing,
    /// Its bytes are not those the log names.
    Damaged,
}

/// A document that is not what the log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BadDocument {
    /// Its plan.
    pub plan_id: PlanId,
    /// Revision of the summary.
    pub revision: u32,
    /// Name of the object, and the digest of what it must hold.
    pub sha256: String,
    /// What is wrong.
    pub fault: Fault,
}

impl std::fmt::Display for BadDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fault = match self.fault {
            Fault::Missing => "missing",
            Fault::Damaged => "damaged",
        };
        write!(f, "summary {} of {} ({fault})", self.revision, self.plan_id)
    }
}

/// What was found, and what was done about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Documents {
    /// Documents that are what the log says.
    pub whole: u64,
    /// Documents written anew.
    pub mended: u64,
    /// Documents that are not what the log says, and stayed so.
    pub bad: u64,
    /// The first of them, at most [`NAMED_MAX`].
    pub named: Vec<BadDocument>,
}

impl Documents {
    /// Those that are bad, in words, the first few.
    pub fn names(&self) -> String {
        names(&self.named, self.bad)
    }
}

/// Bad documents in words: the first few, and how many more there are.
pub fn names(named: &[BadDocument], all: u64) -> String {
    const SAID: usize = 3;
    let said: Vec<String> = named.iter().take(SAID).map(ToString::to_string).collect();
    let more = all.saturating_sub(said.len() as u64);
    if more > 0 { format!("{} and {more} more", said.join(", ")) } else { said.join(", ") }
}

/// Looks at every document that the log names up to a sequence, of one plan or of all; `mend`: writes anew what can be.
///
/// # Errors
/// The ledger's; a document that is damaged is none.
pub async fn examine(ledger: &dyn Ledger, plan: Option<&PlanId>, to: u64, mend: bool) -> Result<Documents, VerifyError> {
    let mut found = Documents::default();
    let filter = plan.map_or(SUMMARIES.to_owned(), |plan| plan_event(plan, "summarised"));
    let mut events = ledger.read(vec![filter], 1, to).await?;
    while let Some(stored) = events.next().await.transpose()? {
        patience::alive();
        let Some((plan_id, summarised)) = read(&stored) else { continue };
        let Some(fault) = fault_of(ledger, &summarised.this.sha256).await? else {
            found.whole += 1;
            continue;
        };
        if mend && self::mend(ledger, &plan_id, stored.seq, &summarised).await? {
            found.mended += 1;
            continue;
        }
        found.bad += 1;
        if found.named.len() < NAMED_MAX {
            let Summarised { this, .. } = summarised;
            found.named.push(BadDocument { plan_id, revision: this.revision, sha256: this.sha256, fault });
        }
    }
    Ok(found)
}

fn read(stored: &Stored) -> Option<(PlanId, Summarised)> {
    let Some(LogSubject::Plan { plan, .. }) = LogSubject::parse(&stored.subject) else { return None };
    match decode(stored.seq, stored.time_ms, &stored.subject, &stored.payload) {
        Ok(LogEvent::Plan(_, logged)) => match logged.event {
            PlanEvent::Summarised(summarised) => Some((plan, *summarised)),
            _ => None,
        },
        _ => None,
    }
}

async fn fault_of(ledger: &dyn Ledger, sha256: &str) -> Result<Option<Fault>, LedgerError> {
    match ledger.get_object(sha256).await {
        Ok(Some(bytes)) if sha256_hex(&bytes) == sha256 => Ok(None),
        Ok(Some(_)) | Err(LedgerError::Corrupt(_)) => Ok(Some(Fault::Damaged)),
        Ok(None) => Ok(Some(Fault::Missing)),
        Err(error) => Err(error),
    }
}

/// Writes a document anew if the log still gives it. `seq` is the event's that names it.
async fn mend(ledger: &dyn Ledger, plan: &PlanId, seq: u64, summarised: &Summarised) -> Result<bool, VerifyError> {
    let this = &summarised.this;
    let mut folder = Folder::new(ledger, plan, this.as_of_seq).await?;
    let mut events = ledger.read(filters(plan), 1, this.as_of_seq).await?;
    while let Some(stored) = events.next().await.transpose()? {
        patience::alive();
        folder.apply(&stored);
    }
    folder.look_to(seq);
    let Some(view) = &folder.view else { return Ok(false) };
    let Ok(bytes) = Summary::compute(view, summarised.kind).and_then(|summary| summary.to_bytes()) else { return Ok(false) };
    if sha256_hex(&bytes) != this.sha256 {
        return Ok(false);
    }
    ledger.put_object(&this.sha256, Bytes::from(bytes)).await?;
    tracing::warn!(%plan, revision = this.revision, object = %this.sha256, "a summary's document was missing or damaged and is written anew");
    Ok(true)
}

//! Finding and folding what is open when a process starts.

use std::collections::BTreeMap;

use fanfold_domain::ids::PlanId;
use fanfold_wire::record::Checkpoint;
use fanfold_wire::subjects::{self, LogSubject};
use futures::StreamExt;

use super::model::{Model, decode_all};
use crate::port::{Ledger, LedgerError};

/// Plans read through one consumer.
const PLANS_PER_READ: usize = 100;
/// Messages decoded at once.
const CHUNK: usize = 1_024;

/// The model as of the log's end, and that sequence.
pub(super) async fn load(ledger: &dyn Ledger) -> Result<(Model, u64), LedgerError> {
    let last_seq = ledger.last_seq().await?;
    let mut model = Model::new(last_seq);
    let plans: Vec<PlanId> = candidates(ledger, last_seq).await?.into_keys().collect();
    for group in plans.chunks(PLANS_PER_READ) {
        let filters = group.iter().flat_map(|p| [subjects::plan_filter(p), subjects::plan_tasks_filter(p)]).collect();
        let mut events = ledger.read(filters, 1, last_seq).await?.ready_chunks(CHUNK);
        while let Some(chunk) = events.next().await {
            let messages = chunk.into_iter().collect::<Result<Vec<_>, _>>()?;
            for (message, event) in messages.iter().zip(decode_all(&messages)) {
                model.fold(message, event);
            }
        }
    }
    Ok((model, last_seq))
}

/// Plans that may be open at `last_seq`, with the sequence of their submission.
async fn candidates(ledger: &dyn Ledger, last_seq: u64) -> Result<BTreeMap<PlanId, u64>, LedgerError> {
    let checkpoint = match ledger.get_checkpoint().await? {
        None => None,
        Some(entry) => {
            let parsed = Checkpoint::parse(&entry.value);
            if parsed.is_none() {
                tracing::warn!("the checkpoint is damaged; open plans are found from the whole log");
            }
            parsed.filter(|c| c.seq <= last_seq)
        }
    };
    let (from, mut open) = match checkpoint {
        Some(checkpoint) => (checkpoint.seq + 1, checkpoint.open),
        None => (1, BTreeMap::new()),
    };
    if from <= last_seq {
        let filters = vec![subjects::SUBMISSIONS.to_owned(), subjects::SUMMARIES.to_owned()];
        let mut events = ledger.read(filters, from, last_seq).await?;
        while let Some(message) = events.next().await {
            let message = message?;
            match LogSubject::parse(&message.subject) {
                Some(LogSubject::Plan { plan, event }) if event == "submitted" => {
                    open.insert(plan, message.seq);
                }
                Some(LogSubject::Plan { plan, .. }) if from == 1 && is_final(&message.payload) => {
                    open.remove(&plan);
                }
                _ => {}
            }
        }
    }
    Ok(open)
}

/// Whether a `plan.summarised` is the last one. Only asked where the whole log is read: after a checkpoint the projector still needs
/// the plans that ended since.
fn is_final(payload: &[u8]) -> bool {
    use fanfold_domain::plan::{PlanEvent, SummaryKind};
    use fanfold_wire::event::{Envelope, decode_plan};
    let event = Envelope::parse(payload).and_then(|e| decode_plan("summarised", e.data));
    matches!(event, Ok(PlanEvent::Summarised(s)) if s.kind == SummaryKind::Final)
}

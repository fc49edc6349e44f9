//! Computing a summary and storing its document, both some at a time: neither stops the fold, and the document is never all in memory.

use bytes::Bytes;
use fanfold_domain::plan::{Summarised, SummaryKind, SummaryRef};
use fanfold_domain::summary::{Draft, PIECE_BYTES, Summary, SummaryError};
use fanfold_domain::view::PlanView;
use fanfold_ledger::port::{Ledger, LedgerError, Source};
use fanfold_wire::digest::Sha256Stream;
use tokio::task::yield_now;

/// Tasks gone through before other work of this process has its turn.
const TASKS_AT_A_TIME: usize = 1_000;

/// A summary that is due. The view is a copy: it shares the tasks that have not changed since.
pub(crate) struct Wanted {
    pub(crate) view: PlanView,
    pub(crate) kind: SummaryKind,
}

/// Why there is no summary.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// It would be wrong, or could not be written.
    Summary(SummaryError),
    /// The document could not be stored.
    Ledger(LedgerError),
}

struct Document<'v>(Summary<'v>);

impl Source for Document<'_> {
    fn pieces(&self) -> Box<dyn Iterator<Item = Bytes> + Send + '_> {
        // Every piece could be written when the digest was made, and is the same again.
        Box::new(self.0.pieces().map_while(Result::ok).map(Bytes::from))
    }
}

/// Computes a summary, checks it, and stores its document under its sha256; gives what the event says that names it.
pub(crate) async fn store(ledger: &dyn Ledger, wanted: &Wanted) -> Result<Summarised, StoreError> {
    let mut draft = Draft::begin(&wanted.view, wanted.kind);
    while draft.advance(TASKS_AT_A_TIME) {
        yield_now().await;
    }
    let summary = draft.finish().map_err(StoreError::Summary)?;
    let mut sha256 = Sha256Stream::default();
    for piece in summary.pieces() {
        let piece = piece.map_err(StoreError::Summary)?;
        sha256.update(&piece);
        if piece.len() >= PIECE_BYTES {
            yield_now().await;
        }
    }
    let sha256 = sha256.finish();
    let summarised = Summarised {
        this: SummaryRef { revision: summary.revision, as_of_seq: summary.as_of_seq, sha256: sha256.clone() },
        kind: wanted.kind,
        counts: summary.counts,
        previous: summary.previous.clone(),
        verdict: summary.verdict,
    };
    ledger.put_object_from(&sha256, &Document(summary)).await.map_err(StoreError::Ledger)?;
    Ok(summarised)
}

//! All or nothing: one atomic batch, and what became of it.

use std::ops::ControlFlow;

use futures::{StreamExt, stream};

use super::api::{ApiError, code, message_id};
use super::append::retry_or_refused;
use super::send::Outgoing;
use super::{Budget, JetStreamLedger, LOG};
use crate::intake;
use crate::port::{Append, Appended, LedgerError};

/// Reads in flight while a stored batch is compared.
const READS_IN_FLIGHT: usize = 64;

impl JetStreamLedger {
    /// `Log::append_atomic`.
    pub(super) async fn append_all_or_nothing(&self, events: &[Append]) -> Result<Appended, LedgerError> {
        if let Some(answer) = intake::batch_refusal(events, self.inner.client.max_payload()) {
            return Ok(answer);
        }
        let budget = self.budget();
        let messages: Vec<Outgoing<'_>> = events.iter().map(Outgoing::from).collect();
        let mut in_doubt = false;
        loop {
            let failure = match self.send_batch(&self.unique_name(), &messages).await {
                Ok(ack) => {
                    let first_seq = (ack.seq + 1).saturating_sub(messages.len() as u64);
                    self.known(|known| {
                        events.iter().zip(first_seq..).for_each(|(event, seq)| known.note(&event.id, seq, &event.payload))
                    });
                    return Ok(Appended::Stored { seq: ack.seq });
                }
                Err(failure) => failure,
            };
            let refused = match retry_or_refused(failure)? {
                // The server lost the open batch, as it does when it restarts: that is no answer about its members.
                ControlFlow::Break(error) if error.err_code == code::BATCH_INCOMPLETE && !in_doubt => {
                    ControlFlow::Continue(error.text())
                }
                other => other,
            };
            match refused {
                ControlFlow::Continue(reason) => {
                    in_doubt = true;
                    budget.pause(&reason).await?;
                }
                ControlFlow::Break(error) => return self.explain_batch(events, error, in_doubt, budget).await,
            }
        }
    }

    /// What a refused batch is: stored before as a whole, or in conflict.
    async fn explain_batch(
        &self,
        events: &[Append],
        error: ApiError,
        in_doubt: bool,
        budget: Budget,
    ) -> Result<Appended, LedgerError> {
        if !error.is_conflict() && !matches!(error.err_code, code::BATCH_DUPLICATE | code::BATCH_INCOMPLETE) {
            return Err(error.into_error());
        }
        let answer = self.find_batch(events, budget).await?;
        Ok(match answer {
            Appended::Duplicate { seq } if in_doubt => Appended::Stored { seq },
            other => other,
        })
    }

    async fn find_batch(&self, events: &[Append], budget: Budget) -> Result<Appended, LedgerError> {
        let Some(first) = events.first() else { return Ok(Appended::Conflict) };
        let candidate = match &first.expect {
            Some(expect) => self.leader_next(LOG, &expect.filter, expect.last_seq, budget).await?,
            None => self.leader_last(LOG, &first.subject, budget).await?,
        };
        let first_seq = match candidate {
            Some(stored) if message_id(&stored) == first.id => stored.sequence,
            _ => return Ok(Appended::Conflict),
        };
        // The members of a stored batch stand one behind the other.
        let reads: Vec<_> = events.iter().zip(first_seq..).map(|(event, seq)| self.compare_member(event, seq, budget)).collect();
        let answers: Vec<Result<Appended, LedgerError>> = stream::iter(reads).buffered(READS_IN_FLIGHT).collect().await;
        let mut last = Appended::Conflict;
        for answer in answers {
            last = answer?;
            if !matches!(last, Appended::Duplicate { .. }) {
                break;
            }
        }
        Ok(last)
    }

    async fn compare_member(&self, event: &Append, seq: u64, budget: Budget) -> Result<Appended, LedgerError> {
        Ok(match self.leader_seq(seq, budget).await? {
            Some(stored) if message_id(&stored) == event.id => self.compare(event, &stored),
            _ => Appended::Conflict,
        })
    }
}

//! Appending events that stand alone: group commit, and an answer of its own for each.
//!
//! The server refuses a whole atomic batch for one bad member and does not say which. So a refused batch is halved, and
//! small remains go one by one: only a single publish says what is wrong with an event. An unknown outcome is resolved by
//! sending again with the same ids; "duplicate" counts only once the stored content has been compared.

use std::ops::ControlFlow;

use async_nats::jetstream::message::StreamMessage;
use fanfold_wire::event::same_content;
use futures::{StreamExt, stream};

use super::api::{ApiError, Failure, code, header, message_id};
use super::damage::Behind;
use super::known::{Known, Seen};
use super::send::{Outgoing, PubAck};
use super::{AppendMode, Budget, JetStreamLedger};
use crate::intake::{self, BATCH_MESSAGES_MAX, Call};
use crate::port::{Append, Appended, Expect, LedgerError};

/// A refused batch of at most so many is not halved any further: that many pipelined publishes cost less.
const SINGLES_MAX: usize = 32;

/// Batches on their way at once: while one is committed the next one is sent.
const BATCHES_IN_FLIGHT: usize = 4;

/// Answers by the index of their event.
pub(super) type Answers = Vec<(usize, Appended)>;

/// What a refused event is.
pub(super) enum Refusal {
    /// A repetition of a stored one, or in conflict with the log.
    Answer(Appended),
    /// Nothing is known behind what it expects, and the server can't read the last record there is: it is to be sent again expecting
    /// what the server takes for the last.
    Expecting(u64),
}

impl JetStreamLedger {
    /// `Log::append`.
    pub(super) async fn append_events(&self, events: Vec<Append>) -> Result<Vec<Appended>, LedgerError> {
        let budget = self.budget();
        let mut call = Call::new(events, self.inner.client.max_payload());
        loop {
            let round = call.next_round();
            if round.is_empty() {
                break;
            }
            let unknown = self.answer_known(&mut call, round, budget).await?;
            let groups = intake::groups(&call.events, &unknown, BATCH_MESSAGES_MAX);
            // Events without expectations do not depend on each other: the next batch is on its way while one is committed.
            let free = self.inner.policy.append_mode == AppendMode::Durable
                && unknown.iter().all(|&index| call.events[index].expect.is_none());
            let stores: Vec<_> = groups.into_iter().map(|group| self.store_group(&call.events, group, budget)).collect();
            let answers: Vec<_> = stream::iter(stores).buffered(if free { BATCHES_IN_FLIGHT } else { 1 }).collect().await;
            for answers in answers {
                answers?.into_iter().for_each(|(index, answer)| call.answer(index, answer));
            }
        }
        call.finish().ok_or_else(|| LedgerError::Other("an event was left without an answer".into()))
    }

    /// Answers what was appended a moment ago; returns the rest.
    pub(super) async fn answer_known(
        &self,
        call: &mut Call,
        round: Vec<usize>,
        budget: Budget,
    ) -> Result<Vec<usize>, LedgerError> {
        let mut unknown = Vec::with_capacity(round.len());
        for index in round {
            let event = &call.events[index];
            let answer = match self.known(|known| known.seen(&event.id, &event.payload)) {
                None => None,
                Some(Seen::Same(seq)) => Some(Appended::Duplicate { seq }),
                Some(Seen::Other(seq)) => Some(self.compare_at(event, seq, budget).await?),
            };
            match answer {
                Some(answer) => call.answer(index, answer),
                None => unknown.push(index),
            }
        }
        Ok(unknown)
    }

    async fn store_group(&self, events: &[Append], group: Vec<usize>, budget: Budget) -> Result<Answers, LedgerError> {
        let mut answers = Answers::with_capacity(group.len());
        let mut waiting = vec![group];
        while let Some(mut chunk) = waiting.pop() {
            let one_by_one = chunk.len() == 1 || self.inner.policy.append_mode == AppendMode::Pipelined;
            let first_seq = if one_by_one { None } else { self.store_batch(events, &chunk, budget).await? };
            match first_seq {
                Some(first_seq) => answers.extend(self.note_stored(events, &chunk, first_seq)),
                None if one_by_one || chunk.len() <= SINGLES_MAX => {
                    answers.extend(self.store_singly(events, &chunk, budget).await?);
                }
                None => {
                    // The first half goes first: answers and sequences keep the caller's order.
                    let second = chunk.split_off(chunk.len() / 2);
                    waiting.push(second);
                    waiting.push(chunk);
                }
            }
        }
        Ok(answers)
    }

    /// The answers for events stored one behind the other.
    pub(super) fn note_stored(&self, events: &[Append], chunk: &[usize], first_seq: u64) -> Answers {
        let stored = |(&index, seq): (&usize, u64)| {
            self.known(|known| note(known, &events[index], seq));
            (index, Appended::Stored { seq })
        };
        chunk.iter().zip(first_seq..).map(stored).collect()
    }

    /// Tries an atomic batch until it is stored (sequence of its first) or refused (`None`).
    async fn store_batch(&self, events: &[Append], chunk: &[usize], budget: Budget) -> Result<Option<u64>, LedgerError> {
        let messages: Vec<Outgoing<'_>> = chunk.iter().map(|&index| Outgoing::from(&events[index])).collect();
        let Some(last) = messages.last() else { return Ok(None) };
        let mut tried: Vec<String> = Vec::new();
        loop {
            let batch_id = self.unique_name();
            let failure = match self.send_batch(&batch_id, &messages).await {
                Ok(ack) => return Ok(Some(first_seq(&ack, messages.len()))),
                Err(failure) => failure,
            };
            match retry_or_refused(failure)? {
                ControlFlow::Continue(reason) => {
                    tried.push(batch_id);
                    budget.pause(&reason).await?;
                }
                // Nothing of ours was left in doubt: the refusal is the truth.
                ControlFlow::Break(_) if tried.is_empty() => return Ok(None),
                ControlFlow::Break(_) => {
                    let stored = self.leader_last(super::LOG, last.subject, budget).await?;
                    return Ok(stored.and_then(|stored| start_of_batch(&stored, &tried, messages.len())));
                }
            }
        }
    }

    async fn store_singly(&self, events: &[Append], chunk: &[usize], budget: Budget) -> Result<Answers, LedgerError> {
        // Unconstrained, so that each is handed to the connection at its first poll: they go out in order.
        let send = |&index: &usize| tokio::task::unconstrained(self.store_single(&events[index], budget));
        let sends: Vec<_> = chunk.iter().map(send).collect();
        let answers: Vec<_> = stream::iter(sends).buffered(self.inner.policy.in_flight_max.max(1)).collect().await;
        chunk.iter().zip(answers).map(|(&index, answer)| Ok((index, answer?))).collect()
    }

    async fn store_single(&self, event: &Append, budget: Budget) -> Result<Appended, LedgerError> {
        let (mut in_doubt, mut expects_other) = (false, false);
        let mut outgoing = Outgoing::from(event);
        loop {
            let failure = match self.send_one(outgoing).await {
                Ok(ack) if ack.duplicate => {
                    let answer = self.compare_at(event, ack.seq, budget).await?;
                    return Ok(if in_doubt { ours(answer) } else { answer });
                }
                Ok(ack) => {
                    self.known(|known| note(known, event, ack.seq));
                    return Ok(Appended::Stored { seq: ack.seq });
                }
                Err(failure) => failure,
            };
            match retry_or_refused(failure)? {
                ControlFlow::Continue(reason) => {
                    in_doubt = true;
                    budget.pause(&reason).await?;
                }
                ControlFlow::Break(error) if error.is_conflict() => match self.explain_refusal(event, budget).await? {
                    Refusal::Expecting(last_seq) if !expects_other => {
                        outgoing.expect = outgoing.expect.map(|(filter, _)| (filter, last_seq));
                        expects_other = true;
                    }
                    Refusal::Expecting(_) => return Ok(Appended::Conflict),
                    Refusal::Answer(answer) => return Ok(if in_doubt { ours(answer) } else { answer }),
                },
                ControlFlow::Break(error) => return single_refused(error),
            }
        }
    }

    /// What a refused event is.
    pub(super) async fn explain_refusal(&self, event: &Append, budget: Budget) -> Result<Refusal, LedgerError> {
        // Had it been stored, it would stand right behind what it expected.
        let candidate = match &event.expect {
            Some(Expect { filter, last_seq }) => match self.leader_next(super::LOG, filter, *last_seq, budget).await? {
                // In a whole log there is something, or it would not have been refused.
                None => match self.behind_unreadable(filter, *last_seq).await? {
                    Behind::Unreadable(last) => return Ok(Refusal::Expecting(last)),
                    Behind::Unknown => None,
                    Behind::Stored(next) => Some(*next),
                },
                found => found,
            },
            None => self.leader_last(super::LOG, &event.subject, budget).await?,
        };
        Ok(Refusal::Answer(match candidate {
            Some(stored) if message_id(&stored) == event.id => self.compare(event, &stored),
            _ => Appended::Conflict,
        }))
    }

    /// Compares an event with the one the server says is its original. One that can't be read is no answer: the id is free again when the
    /// duplicate window is over or the server starts anew.
    async fn compare_at(&self, event: &Append, seq: u64, budget: Budget) -> Result<Appended, LedgerError> {
        Ok(match self.leader_seq(seq, budget).await? {
            Some(stored) => self.compare(event, &stored),
            None => {
                self.note_missing(seq, seq);
                Appended::Conflict
            }
        })
    }

    /// Tells a repetition from a conflicting use of its id.
    pub(super) fn compare(&self, event: &Append, stored: &StreamMessage) -> Appended {
        let seq = stored.sequence;
        if message_id(stored) == event.id && same_content(&event.payload, &stored.payload) {
            self.known(|known| note(known, event, seq));
            return Appended::Duplicate { seq };
        }
        tracing::warn!(id = event.id, seq, "ledger.conflicting: the id is stored with other content");
        Appended::Conflicting { seq }
    }
}

fn note(known: &mut Known, event: &Append, seq: u64) {
    known.note(&event.id, seq, &event.payload);
}

fn first_seq(ack: &PubAck, members: usize) -> u64 {
    (ack.seq + 1).saturating_sub(members as u64)
}

/// The sequence of the first of a batch, when `stored` is the last message of one of these batches.
fn start_of_batch(stored: &StreamMessage, batch_ids: &[String], members: usize) -> Option<u64> {
    let batch_id = header(&stored.headers, "Nats-Batch-Id");
    let number = header(&stored.headers, "Nats-Batch-Sequence").parse::<usize>().ok()?;
    let is_ours = number == members && batch_ids.iter().any(|tried| tried == batch_id);
    is_ours.then(|| (stored.sequence + 1).saturating_sub(members as u64))
}

/// After a time without an answer, "duplicate" is this call's own event.
fn ours(answer: Appended) -> Appended {
    match answer {
        Appended::Duplicate { seq } => Appended::Stored { seq },
        other => other,
    }
}

/// Whether to send again (with the reason), or what the server refused; everything else is an error.
pub(super) fn retry_or_refused(failure: Failure) -> Result<ControlFlow<ApiError, String>, LedgerError> {
    match failure {
        Failure::Unknown(reason) => Ok(ControlFlow::Continue(reason)),
        Failure::NotSent(reason) => Err(LedgerError::Other(reason)),
        Failure::Refused(error) if error.is_not_now() => Ok(ControlFlow::Continue(error.text())),
        Failure::Refused(error) if error.is_full() => Err(error.into_error()),
        Failure::Refused(error) => Ok(ControlFlow::Break(error)),
    }
}

/// The answer for a single event refused for a reason that is no conflict.
fn single_refused(error: ApiError) -> Result<Appended, LedgerError> {
    match error.err_code {
        code::MESSAGE_TOO_LARGE | code::HEADER_TOO_LARGE => Ok(Appended::Refused { code: "TOO_LARGE", message: error.text() }),
        _ => Err(error.into_error()),
    }
}

//! Appending behind a fence: who was overtaken can append nothing.
//!
//! The first stored message of every batch is a fence that expects the writer's own last fence. Its id is never used for
//! another batch, not even for a halved one: so "is the log's last fence this one?" says for certain whether a batch
//! without an answer is stored, and nothing is halved before that is known.

use std::ops::ControlFlow;

use bytes::Bytes;
use std::sync::atomic::Ordering;

use super::api::{ApiError, code, message_id};
use super::append::{Refusal, retry_or_refused};
use super::send::Outgoing;
use super::{Budget, JetStreamLedger, LOG};
use crate::fence;
use crate::intake::{self, BATCH_MESSAGES_MAX, Call};
use crate::port::{Append, Appended, Fence, FencedError, LedgerError};

/// What became of one batch behind a fence.
enum Batch {
    /// Stored; sequence of its fence.
    Stored(u64),
    /// One of its members is refused, or the fence alone was.
    Refused,
}

/// What the log's last fence says.
enum Lead {
    /// It is the one we expect: nothing of ours was stored since.
    Unchanged,
    /// It is a later one of ours, of this number.
    Moved { number: u64, seq: u64 },
}

impl JetStreamLedger {
    fn next_fence_number(&self) -> u64 {
        self.inner.fence_numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// `Log::acquire_fence`. Where the last fence can't be read, what the server takes for the last is expected.
    pub(super) async fn take_lead(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError> {
        let budget = self.budget();
        let last = self.leader_last(LOG, &fence::subject(role), budget).await?;
        let mut fence = Fence {
            role: role.to_owned(),
            incarnation: incarnation.to_owned(),
            next: 0,
            last_seq: last.map_or(0, |stored| stored.sequence),
        };
        match self.store_behind(&mut fence, &[], &[], budget).await? {
            Batch::Stored(_) => Ok(fence),
            Batch::Refused => Err(FencedError::Overtaken(role.to_owned())),
        }
    }

    /// `Log::append_fenced`.
    pub(super) async fn append_behind(&self, fence: &mut Fence, events: Vec<Append>) -> Result<Vec<Appended>, FencedError> {
        if self.may_lack_a_fence(fence).await? {
            tracing::warn!(
                role = fence.role,
                last_seq = fence.last_seq,
                "the log lacks something since the last fence; the lead is taken anew"
            );
            return Err(FencedError::Overtaken(fence.role.clone()));
        }
        let budget = self.budget();
        let mut call = Call::new(events, self.inner.client.max_payload());
        let mut proved = false;
        loop {
            let round = call.next_round();
            if round.is_empty() {
                break;
            }
            let unknown = self.answer_known(&mut call, round, budget).await?;
            for group in intake::groups(&call.events, &unknown, BATCH_MESSAGES_MAX - 1) {
                self.store_fenced_group(fence, &mut call, group, budget).await?;
                proved = true;
            }
        }
        if !proved && matches!(self.store_behind(fence, &[], &[], budget).await?, Batch::Refused) {
            return Err(FencedError::Overtaken(fence.role.clone()));
        }
        let unanswered = || LedgerError::Other("an event was left without an answer".into());
        Ok(call.finish().ok_or_else(unanswered)?)
    }

    async fn store_fenced_group(
        &self,
        fence: &mut Fence,
        call: &mut Call,
        group: Vec<usize>,
        budget: Budget,
    ) -> Result<(), FencedError> {
        let mut waiting = vec![group];
        while let Some(mut chunk) = waiting.pop() {
            match self.store_behind(fence, &call.events, &chunk, budget).await? {
                Batch::Stored(fence_seq) => {
                    let answers = self.note_stored(&call.events, &chunk, fence_seq + 1);
                    answers.into_iter().for_each(|(index, answer)| call.answer(index, answer));
                }
                Batch::Refused if chunk.len() == 1 => {
                    for index in chunk {
                        match self.explain_refusal(&call.events[index], budget).await? {
                            Refusal::Answer(answer) => call.answer(index, answer),
                            Refusal::Expecting(last_seq) if call.expect_instead(index, last_seq) => waiting.push(vec![index]),
                            Refusal::Expecting(_) => call.answer(index, Appended::Conflict),
                        }
                    }
                }
                Batch::Refused => {
                    let second = chunk.split_off(chunk.len() / 2);
                    waiting.push(second);
                    waiting.push(chunk);
                }
            }
        }
        Ok(())
    }

    /// Tries one batch behind the fence until it is certain what became of it.
    async fn store_behind(
        &self,
        fence: &mut Fence,
        events: &[Append],
        chunk: &[usize],
        budget: Budget,
    ) -> Result<Batch, FencedError> {
        let mut tried: Vec<u64> = Vec::new();
        loop {
            let number = self.next_fence_number();
            fence.next = number + 1;
            tried.push(number);
            let (subject, id, payload) = fence::message(&fence.role, &fence.incarnation, number);
            let sent = self.send_behind((&subject, &id, &payload), fence.last_seq, events, chunk).await;
            let (refused, reason) = match sent {
                Ok(seq) => {
                    fence.last_seq = seq;
                    self.note_proven(&fence.role);
                    return Ok(Batch::Stored(seq));
                }
                Err(failure) => match retry_or_refused(failure)? {
                    ControlFlow::Continue(reason) => (None, reason),
                    ControlFlow::Break(error) => (Some(error.err_code), refusal_text(error)?),
                },
            };
            match self.look_at_lead(fence, budget).await? {
                Lead::Moved { number, seq } => {
                    fence.last_seq = seq;
                    if tried.contains(&number) {
                        return Ok(Batch::Stored(seq));
                    }
                    // A batch of an earlier call, given up unanswered, was stored after all: go on from its fence.
                }
                // The server forgets open batches when it restarts; once is no answer about the members.
                Lead::Unchanged if refused == Some(code::BATCH_INCOMPLETE) && tried.len() == 1 => {}
                Lead::Unchanged if refused.is_some() => return Ok(Batch::Refused),
                Lead::Unchanged => {}
            }
            budget.pause(&reason).await?;
        }
    }

    /// Sends a fence and the members behind it; the fence's sequence.
    async fn send_behind(
        &self,
        (subject, id, payload): (&str, &str, &Bytes),
        last_seq: u64,
        events: &[Append],
        chunk: &[usize],
    ) -> Result<u64, super::api::Failure> {
        let fence = Outgoing { subject, id, payload, expect: Some((subject, last_seq)) };
        if chunk.is_empty() {
            return Ok(self.send_one(fence).await?.seq);
        }
        let members = chunk.iter().map(|&index| Outgoing::from(&events[index]));
        let messages: Vec<Outgoing<'_>> = std::iter::once(fence).chain(members).collect();
        let ack = self.send_batch(&self.unique_name(), &messages).await?;
        Ok(ack.seq - chunk.len() as u64)
    }

    /// Reads the role's last fence from the stream's leader.
    async fn look_at_lead(&self, fence: &Fence, budget: Budget) -> Result<Lead, FencedError> {
        let last = self.leader_last(LOG, &fence::subject(&fence.role), budget).await?;
        let overtaken = || FencedError::Overtaken(fence.role.clone());
        match last {
            None if fence.last_seq == 0 => Ok(Lead::Unchanged),
            None => Err(overtaken()),
            Some(stored) if stored.sequence == fence.last_seq => Ok(Lead::Unchanged),
            Some(stored) => {
                let number = fence::number_of(message_id(&stored), &fence.role, &fence.incarnation);
                let seq = stored.sequence;
                number.filter(|number| *number < fence.next).map(|number| Lead::Moved { number, seq }).ok_or_else(overtaken)
            }
        }
    }
}

/// A refusal that is about a member or the fence; anything else is an error of the store.
fn refusal_text(error: ApiError) -> Result<String, LedgerError> {
    let about_a_member = error.is_conflict()
        || matches!(
            error.err_code,
            code::BATCH_DUPLICATE | code::BATCH_INCOMPLETE | code::MESSAGE_TOO_LARGE | code::HEADER_TOO_LARGE
        );
    if about_a_member { Ok(error.text()) } else { Err(error.into_error()) }
}

//! Leadership of a role, as a candidate sees it. What makes it harmless is the fence in the log; this module only decides when to try.
//!
//! The leader beats on core NATS and answers a probe. A standby probes after half a lease without a beat and takes the lead at once when
//! nobody listens there any more; from one that listens and is silent it takes it after a whole lease. Taking it wrongly costs the other side its lead and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanfold_wire::subjects;
use futures::StreamExt;
use tokio::time::{Instant, sleep, timeout_at};

use crate::port::{BoxStream, BusMessage, Fence, FencedError, Ledger, LedgerError, RequestError};

/// Pause before a candidate whose ledger was away tries again.
const AGAIN: Duration = Duration::from_millis(200);

/// A process that may lead a role.
pub struct Candidate {
    ledger: Arc<dyn Ledger>,
    role: &'static str,
    lease: Duration,
}

/// The part of a held lead that runs beside the work: beats, answers to probes, and looking again when somebody else beats.
pub struct Keeper {
    incarnation: String,
    foreign: BoxStream<BusMessage>,
    probes: BoxStream<BusMessage>,
    beat: tokio::time::Interval,
    ledger: Arc<dyn Ledger>,
    role: &'static str,
}

impl Candidate {
    /// A candidate for `role`, which is given up after `lease` without a beat.
    pub fn new(ledger: Arc<dyn Ledger>, role: &'static str, lease: Duration) -> Self {
        Self { ledger, role, lease }
    }

    /// Waits as standby until the lead can be taken, and takes it. `incarnation` must never have been used.
    ///
    /// # Errors
    /// Those of the ledger; try again.
    pub async fn win(&self, incarnation: String) -> Result<(Fence, Keeper), LedgerError> {
        let mut beats = self.ledger.subscribe(&subjects::lead(self.role), None).await?;
        let mut heard = Instant::now();
        loop {
            if self.nobody_answers().await || heard.elapsed() >= self.lease {
                match self.taken_twice(&incarnation).await {
                    Ok(fence) => return self.lead(fence, incarnation, beats).await,
                    Err(FencedError::Overtaken(_)) => heard = Instant::now(),
                    Err(FencedError::Ledger(error)) => return Err(error),
                }
            }
            // A leader whose process is gone answers no probe: that is noticed before its lease is over.
            let until = (heard + self.lease).min(Instant::now() + self.lease / 2);
            match timeout_at(until, beats.next()).await {
                Ok(Some(_)) => heard = Instant::now(),
                Ok(None) => return Err(LedgerError::Other("the subscription to the leader's beats ended".into())),
                Err(_) => {}
            }
        }
    }

    /// Takes the lead with two fences. A record of the log that can't be read any more must not be the only one that says who was
    /// overtaken: the former leader's last fence would be the last again.
    async fn taken_twice(&self, incarnation: &str) -> Result<Fence, FencedError> {
        let mut fence = self.ledger.acquire_fence(self.role, incarnation).await?;
        self.ledger.append_fenced(&mut fence, Vec::new()).await?;
        Ok(fence)
    }

    async fn nobody_answers(&self) -> bool {
        let probe = self.ledger.request(&subjects::who(self.role), Bytes::new(), self.lease.min(Duration::from_secs(1))).await;
        matches!(probe, Err(RequestError::NoResponders(_)))
    }

    async fn lead(
        &self,
        fence: Fence,
        incarnation: String,
        foreign: BoxStream<BusMessage>,
    ) -> Result<(Fence, Keeper), LedgerError> {
        let probes = self.ledger.subscribe(&subjects::who(self.role), None).await?;
        tracing::info!(role = self.role, incarnation, fence_seq = fence.last_seq, "leading");
        let (ledger, role) = (Arc::clone(&self.ledger), self.role);
        let beat = tokio::time::interval(self.lease / 3);
        Ok((fence, Keeper { incarnation, foreign, probes, beat, ledger, role }))
    }
}

/// Whether a lead is still believed to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// As far as is known.
    Leading,
    /// Somebody else appended a later fence: stop answering, become standby.
    Overtaken,
}

impl Keeper {
    /// Runs until the lead is lost. Safe to drop at any await.
    pub async fn keep(&mut self) -> Standing {
        let lead = self;
        loop {
            tokio::select! {
                biased;
                _ = lead.beat.tick() => {
                    // A beat that can't be sent is missed by the standby, as it should be.
                    let _ = lead.ledger.publish(&subjects::lead(lead.role), Bytes::from(lead.incarnation.clone())).await;
                }
                Some(probe) = lead.probes.next() => {
                    if let Some(reply) = probe.reply.filter(|r| subjects::is_inbox(r, None)) {
                        let _ = lead.ledger.publish(&reply, Bytes::from(lead.incarnation.clone())).await;
                    }
                }
                Some(beat) = lead.foreign.next() => {
                    if beat.payload != lead.incarnation.as_bytes() && overtaken(lead.ledger.as_ref(), lead.role, &lead.incarnation).await {
                        return Standing::Overtaken;
                    }
                }
                else => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Leads whenever the candidate can, as standby in between, until `over` resolves. `lead` does the role's work and returns when it is
/// overtaken or over; a ledger that is away for a while is tried again.
///
/// # Errors
/// None but those of the ledger that don't pass by themselves.
pub async fn lead_until<O, L>(
    candidate: &Candidate,
    over: impl Fn() -> O,
    lead: impl Fn(Fence, Keeper) -> L,
) -> Result<(), LedgerError>
where
    O: Future<Output = ()>,
    L: Future<Output = Result<(), LedgerError>>,
{
    loop {
        let incarnation = format!("{:032x}", rand::random::<u128>());
        let won = tokio::select! {
            biased;
            () = over() => return Ok(()),
            won = candidate.win(incarnation) => won,
        };
        let ended = match won {
            Ok((fence, keeper)) => lead(fence, keeper).await,
            Err(error) => Err(error),
        };
        let pause = match ended {
            Ok(()) => Duration::ZERO,
            Err(error) if error.is_transient() => {
                tracing::warn!(role = candidate.role, code = error.code(), %error, "the leader lost its log; it tries again");
                AGAIN
            }
            Err(error) => return Err(error),
        };
        tokio::select! {
            biased;
            () = over() => return Ok(()),
            () = sleep(pause) => {}
        }
    }
}

/// Whether the role's last fence is another incarnation's.
pub async fn overtaken(ledger: &dyn Ledger, role: &str, incarnation: &str) -> bool {
    match ledger.last_under(&subjects::fence(role)).await {
        Ok(Some(last)) => last.id.split('/').nth(1).is_some_and(|owner| owner != incarnation),
        Ok(None) | Err(_) => false,
    }
}

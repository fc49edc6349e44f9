//! Open plans: every plan that isn't over, folded in memory, the same for every service of a process.
//!
//! At start: the log's last sequence S, the plans open at S (the checkpoint's list, then submissions after it; without a usable
//! checkpoint the whole log's submissions), one filtered read of their events up to S, then one unfiltered ordered tail from S+1.
//! Nothing is decided before S is reached. Services are level-triggered: [`Subscription`] only says *where* to look again.
//!
//! **Invariant.** Nothing here is written anywhere; what is held is a pure function of the log up to [`Position::seq`].

mod holes;
mod load;
mod model;
mod subscription;
mod unsupported;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use fanfold_domain::planted::{self, Planted};
use futures::StreamExt;
use tokio::task::JoinHandle;

use crate::port::{Ledger, LedgerError, Stored, TailItem};
use crate::watch;

pub use holes::{Gaps, fold_plan_event, fold_task_event, mark_at, mark_of, missing_to, note_gaps};
pub use load::{UNFILTERED_MAX, fold_plan, fold_plans, look_over, plan_sizes, plans_since, unsupported_rules};
pub use model::{Known, Model};
pub use subscription::{Changes, PlanChange, Subscription};
pub use unsupported::Unsupported;

use subscription::Mailbox;

/// Pause before the log is asked again where it ends.
const ASK_END_AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

/// Times a log that lacks what was folded is asked again before it is believed.
const DOUBTS: u32 = 10;

/// How far the fold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Last sequence folded.
    pub seq: u64,
    /// Whether that has reached the end of the log as it was at the last (re)connect.
    pub caught_up: bool,
    /// Counts up when the tail had to be made anew.
    pub reconnects: u64,
}

struct Shared {
    model: RwLock<Model>,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    position: watch::Sender<Position>,
    /// Why the tail ended.
    lost: Mutex<Option<LedgerError>>,
}

/// Handle to the open plans; clones share one fold and one tail.
#[derive(Clone)]
pub struct OpenPlans {
    shared: Arc<Shared>,
    tail: Arc<TailTask>,
}

struct TailTask(JoinHandle<()>);

impl Drop for TailTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl OpenPlans {
    /// Loads the open plans and begins to follow the log. Returns when the end of the log at the call is reached.
    ///
    /// # Errors
    /// Those of the ledger; nothing is left running then.
    pub async fn start(ledger: Arc<dyn Ledger>) -> Result<Self, LedgerError> {
        let (model, seq) = load::load(ledger.as_ref()).await?;
        let tail = ledger.tail(seq + 1).await?;
        let (position, _) = watch::channel(Position { seq, caught_up: true, reconnects: 0 });
        let shared =
            Arc::new(Shared { model: RwLock::new(model), mailboxes: Mutex::new(Vec::new()), position, lost: Mutex::new(None) });
        let follower = Arc::clone(&shared);
        let task = tokio::spawn(async move { follower.follow(ledger, tail).await });
        Ok(Self { shared, tail: Arc::new(TailTask(task)) })
    }

    /// The fold as it is now. Hold it briefly: the tail waits meanwhile.
    pub fn read(&self) -> RwLockReadGuard<'_, Model> {
        // A panic while folding is a bug; what was folded before it is still true, and the next start folds it anew.
        self.shared.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the fold is.
    pub fn position(&self) -> watch::Receiver<Position> {
        self.shared.position.subscribe()
    }

    /// Waits until the fold has reached `seq`; false when it has not within `timeout`.
    pub async fn reached(&self, seq: u64, timeout: std::time::Duration) -> bool {
        let mut position = self.position();
        let wait = position.wait_for(|p| p.seq >= seq);
        matches!(tokio::time::timeout(timeout, wait).await, Ok(Ok(_)))
    }

    /// A mailbox of changes from now on; everything open now is in its first reading. With `holds_over`, plans that are over stay
    /// readable until [`Subscription::release`] has passed their final summary.
    pub fn subscribe(&self, holds_over: bool) -> Subscription {
        let mailbox = Arc::new(Mailbox::new(holds_over));
        let mut mailboxes = self.shared.mailboxes();
        let model = self.read();
        for plan in model.plans() {
            mailbox.push_whole(plan.plan.id());
        }
        mailboxes.push(Arc::clone(&mailbox));
        Subscription::new(mailbox)
    }

    /// Whether the follower still runs; false means the process must be restarted.
    pub fn is_following(&self) -> bool {
        !self.tail.0.is_finished()
    }
}

impl OpenPlans {
    /// Why this fold can't be gone on with: the log no longer holds what was folded. Begin anew with [`OpenPlans::start`].
    pub fn lost(&self) -> Option<LedgerError> {
        self.shared.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the log said after a reconnect.
enum End {
    Told,
    /// It did not answer.
    Unknown,
    /// What was folded is no longer there.
    Lost(LedgerError),
}

impl Shared {
    fn mailboxes(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(&self, ledger: Arc<dyn Ledger>, mut tail: crate::port::BoxStream<TailItem>) {
        // After a reconnect, until the log has said where its end is, and that it still is the log that was folded.
        let mut end_unknown = false;
        loop {
            let item = tokio::select! {
                biased;
                item = tail.next(), if !end_unknown => item,
                () = tokio::time::sleep(ASK_END_AGAIN), if end_unknown => {
                    match self.learn_end(ledger.as_ref()).await {
                        End::Told => end_unknown = false,
                        End::Unknown => {}
                        End::Lost(error) => return self.lose(error),
                    }
                    continue;
                }
            };
            let Some(item) = item else { break };
            match item {
                TailItem::Messages(messages) => self.apply(messages),
                TailItem::Hole { from, to } => {
                    tracing::error!(from, to, "the log has a hole: events are missing and stay missing; run `fanfold doctor`");
                    self.pass_hole(from, to);
                }
                TailItem::Reconnected => {
                    self.position.send_modify(|p| {
                        p.caught_up = false;
                        p.reconnects += 1;
                    });
                    self.model.write().unwrap_or_else(PoisonError::into_inner).lose_end();
                    match self.learn_end(ledger.as_ref()).await {
                        End::Told => end_unknown = false,
                        End::Unknown => end_unknown = true,
                        End::Lost(error) => return self.lose(error),
                    }
                }
            }
        }
        tracing::error!("the log's tail ended; this process must be restarted");
    }

    /// Nothing more is folded, and nobody is caught up any more: whoever decides from this view decides nothing.
    fn lose(&self, error: LedgerError) {
        tracing::error!(code = error.code(), "{error}");
        self.announce();
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Asks where the log ends; until it has told nobody is caught up. A log that no longer holds what was folded is asked again for a
    /// while: a leader that has just been elected may not have caught up itself.
    async fn learn_end(&self, ledger: &dyn Ledger) -> End {
        let mut doubt = None;
        for _ in 0..DOUBTS {
            match self.compare(ledger).await {
                Ok((last_seq, None)) => {
                    self.model.write().unwrap_or_else(PoisonError::into_inner).catch_up_to(last_seq);
                    self.announce();
                    return End::Told;
                }
                Ok((_, Some(error))) => doubt = Some(error),
                Err(_) => {
                    self.announce();
                    return End::Unknown;
                }
            }
            tokio::time::sleep(ASK_END_AGAIN).await;
        }
        doubt.map_or(End::Unknown, End::Lost)
    }

    /// The log's last sequence, and what of the fold it no longer holds.
    async fn compare(&self, ledger: &dyn Ledger) -> Result<(u64, Option<LedgerError>), LedgerError> {
        let (seq, mark, known) = {
            let model = self.model.read().unwrap_or_else(PoisonError::into_inner);
            (model.seq(), model.mark(), model.gaps().to_vec())
        };
        let last = ledger.last_seq().await?;
        let gaps = ledger.gaps().await?;
        if let Some((from, to)) = gaps.iter().find(|gap| gap.0 <= seq && !known.contains(gap)) {
            return Ok((last, Some(LedgerError::Damaged { from: *from, to: *to })));
        }
        let here = mark_at(ledger, seq).await?;
        let another = here.is_some_and(|here| !mark.is_empty() && here != mark);
        Ok((last, (last < seq || another).then_some(LedgerError::WentBack { folded: seq, last })))
    }

    /// Goes on behind what is missing; plans it may have been about are to be looked at.
    fn pass_hole(&self, from: u64, to: u64) {
        let mailboxes = self.mailboxes();
        let plans = self.model.write().unwrap_or_else(PoisonError::into_inner).pass_hole(from, to);
        for mailbox in mailboxes.iter() {
            plans.iter().for_each(|plan| mailbox.push(plan, None));
            mailbox.wake();
        }
        drop(mailboxes);
        self.announce();
    }

    /// Folds a batch: parsed without the lock, applied under it, told afterwards.
    fn apply(&self, messages: Vec<Stored>) {
        let mut messages = messages;
        if planted::is(Planted::TailLosesOne) && messages.len() > 4 {
            messages.remove(2);
        }
        let decoded = model::decode_all(&messages);
        let mut mailboxes = self.mailboxes();
        mailboxes.retain(|m| Arc::strong_count(m) > 1);
        {
            let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
            for (message, event) in messages.iter().zip(decoded) {
                if let Some((plan, task)) = model.apply(message, event) {
                    for mailbox in mailboxes.iter() {
                        mailbox.push(&plan, task);
                    }
                }
            }
            model.note_last(&messages);
            let released = mailboxes.iter().filter(|m| m.holds_over()).map(|m| m.released()).min();
            model.prune(released);
        }
        for mailbox in mailboxes.iter() {
            mailbox.wake();
        }
        drop(mailboxes);
        self.announce();
    }

    fn announce(&self) {
        let (seq, caught_up) = {
            let model = self.model.read().unwrap_or_else(PoisonError::into_inner);
            (model.seq(), model.is_caught_up())
        };
        self.position.send_modify(|p| {
            p.seq = seq;
            p.caught_up = caught_up;
        });
    }
}

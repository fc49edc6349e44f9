//! What comes in from outside: beats, syncs, and people's word on who may use an id.

use bytes::Bytes;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::planted::{self, Planted};
use fanfold_ledger::open::Model;
use fanfold_ledger::port::{BoxStream, BusMessage};
use fanfold_wire::api::{ApiAnswer, ApiError, ReplaceRequest, Replaced};
use fanfold_wire::strict;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{AttemptRef, Beat, SyncAnswer, SyncRequest, SyncStatus};
use futures::{FutureExt, StreamExt};

use super::Leader;
use crate::terminals::Heard;
use crate::{ready, registry};

/// Beats taken in one go before anything else is looked at.
const BEATS_PER_TURN: usize = 1_024;

/// When a terminal is to ask again that is ahead of this view, or of which more is under way, in milliseconds.
const AGAIN_MS: u64 = 200;
/// How long the log may take to say where it ends, while everybody else waits.
const LOG_END_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Syncs moved in one go from where they arrive to where they wait.
const SYNCS_TAKEN_PER_TURN: usize = 1_024;
/// Syncs answered in one go before anything else is looked at.
const SYNCS_ANSWERED_PER_TURN: usize = 512;
/// When a terminal whose sync can't be read may ask again, in milliseconds.
const UNREADABLE_AGAIN_MS: u64 = 60_000;

/// Whether an attempt a terminal lists is of a plan that is open and has the terminal's task: nothing else is remembered.
fn concerns(model: &Model, id: &TerminalId, listed: &AttemptRef) -> bool {
    model.plan(&listed.task_id.plan).is_some_and(|v| v.plan.index_of(listed.task_id.target.as_str()).is_some())
        && listed.task_id.target.terminal() == *id
}

impl Leader<'_> {
    /// Whether the sender may be heard now: asked before anything is parsed.
    fn may_be_heard(&mut self, id: &TerminalId, now_ms: i64) -> bool {
        let known = self.terminals.may_be_heard(id.as_str(), self.rates.rate(), now_ms);
        if known.unwrap_or_else(|| self.rates.take(id, 1, now_ms) > 0) {
            return true;
        }
        self.terminals.count_limited(id);
        if let Some(held_back) = self.said_limited.may_say(id, now_ms) {
            tracing::warn!(terminal = %id, code = "RATE_LIMITED", since_said = held_back,
                "this terminal sends too many beats or syncs; those beyond {} a second are not looked at", self.deps.config.messages_per_s);
        }
        false
    }

    pub(super) fn take_beats(&mut self, first: BusMessage, more: &mut BoxStream<BusMessage>) {
        let (now_ms, default_ms) = (self.deps.clock.now_ms(), self.hq().beat_ms);
        let open = self.deps.open.clone();
        let mut changed = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(message) = next {
            taken += 1;
            let name = subjects::beat_of(&message.subject).unwrap_or_default();
            if !self.terminals.beat_again(name, &message.payload, self.rates.rate(), now_ms)
                && let Some(id) = subjects::parse_terminal(&message.subject)
                && self.may_be_heard(&id, now_ms)
            {
                match strict::from_slice::<Beat>(&message.payload) {
                    Ok(beat) => {
                        let calm = self.take_beat(&open.read(), &id, beat, (now_ms, default_ms), &mut changed);
                        if calm {
                            self.terminals.remember_beat(id.as_str(), &message.payload);
                        }
                    }
                    Err(_) => self.terminals.count_unreadable(&id),
                }
            }
            next = if taken < BEATS_PER_TURN { more.next().now_or_never().flatten() } else { None };
        }
        changed.extend(std::mem::take(&mut self.terminals.heard_again));
        if !changed.is_empty() {
            self.look_at_terminals(&changed);
        }
    }

    /// Says whether the same beat once more would say nothing new.
    fn take_beat(
        &mut self,
        model: &Model,
        id: &TerminalId,
        mut beat: Beat,
        at: (i64, i64),
        changed: &mut Vec<TerminalId>,
    ) -> bool {
        // What is listed may concern a plan that is submitted later.
        let calm = beat.holds.is_empty() && !beat.goodbye;
        beat.holds.retain(|listed| concerns(model, id, listed));
        match self.terminals.beat(id, beat, at.0, at.1) {
            Heard::Changed => changed.push(id.clone()),
            Heard::MustWait(at_ms) => self.wake_terminal(model, id, at_ms),
            Heard::InUse => self.say_in_use(id, at.0),
            Heard::Same => return calm,
            Heard::Full => {}
        }
        false
    }

    fn say_in_use(&mut self, id: &TerminalId, now_ms: i64) {
        let Some(terminal) = self.terminals.known.get(id) else { return };
        let in_use = terminal.id_in_use;
        let Some(held_back) = self.said_in_use.may_say(id, now_ms) else { return };
        if in_use {
            tracing::warn!(terminal = %id, code = "TERMINAL_ID_IN_USE", since_said = held_back,
                "two processes use this terminal id; nothing is dispatched to it: stop one of them, then `fanfold terminal replace {id}`");
        } else {
            tracing::warn!(terminal = %id, code = "TERMINAL_ID_IN_USE", since_said = held_back,
                "a process that was not let in uses this terminal id; it gets nothing, `fanfold terminal replace {id}` lets another one in");
        }
    }

    /// Looks at a terminal's tasks again at a moment.
    fn wake_terminal(&mut self, model: &Model, terminal: &TerminalId, at_ms: i64) {
        for view in model.open() {
            if let Some(task) = view.plan.index_of(terminal.as_str()) {
                self.work.wake_at(view.plan.id(), task as u32, at_ms);
            }
        }
    }

    /// Moves what has arrived to where it waits: the newest of each terminal.
    pub(super) fn take_syncs(&mut self, first: BusMessage, more: &mut BoxStream<BusMessage>) {
        let now_ms = self.deps.clock.now_ms();
        let mut next = Some(first);
        for _ in 0..SYNCS_TAKEN_PER_TURN {
            let Some(message) = next else { return };
            self.take_sync(message, now_ms);
            next = more.next().now_or_never().flatten();
        }
        if let Some(message) = next {
            self.take_sync(message, now_ms);
        }
    }

    fn take_sync(&mut self, message: BusMessage, now_ms: i64) {
        let Some(id) = subjects::parse_terminal(&message.subject) else { return };
        if !self.may_be_heard(&id, now_ms) {
            return;
        }
        if message.reply.as_ref().is_some_and(|r| subjects::is_inbox(r, Some(&id))) {
            if !self.syncs.add(id.clone(), message) {
                self.terminals.count_limited(&id);
            }
        } else {
            self.terminals.count_unreadable(&id);
        }
    }

    /// Answers a bounded number of those that wait.
    pub(super) async fn answer_syncs(&mut self) {
        // The log's end is asked for once at most: all of these had been sent before.
        let mut log_end = None;
        for _ in 0..SYNCS_ANSWERED_PER_TURN {
            let Some((id, message)) = self.syncs.next() else { return };
            let Some(reply) = message.reply else { continue };
            let answer = match strict::from_slice::<SyncRequest>(&message.payload) {
                Ok(request) => match self.restored_end(&id, &request, &mut log_end).await {
                    Some(end) => {
                        SyncAnswer { log_end_seq: Some(end), ..SyncAnswer::bare(SyncStatus::Later, end, Some(AGAIN_MS)) }
                    }
                    None => self.answer_sync(&id, &request),
                },
                Err(error) => {
                    self.terminals.count_unreadable(&id);
                    SyncAnswer::unreadable(&error.to_string(), UNREADABLE_AGAIN_MS)
                }
            };
            if let Ok(text) = serde_json::to_vec(&answer) {
                // A lost answer is asked for again.
                let _ = self.deps.ledger.publish(&reply, Bytes::from(text)).await;
            }
        }
    }

    /// Where the log ends, when that is before what a terminal knows: HQ was restored from an older backup. A view that is merely behind
    /// is no proof, so the log's leader is asked; `log_end` is what it has said about this turn's syncs, `Some(None)` that it said nothing.
    async fn restored_end(&mut self, id: &TerminalId, request: &SyncRequest, log_end: &mut Option<Option<u64>>) -> Option<u64> {
        let behind = self.hq().caught_up && self.deps.open.read().seq() < request.known_seq;
        if !behind {
            return None;
        }
        let end = match *log_end {
            Some(end) => end,
            None => {
                let asked = tokio::time::timeout(LOG_END_WITHIN, self.deps.ledger.last_seq()).await;
                *log_end.insert(asked.ok().and_then(Result::ok))
            }
        };
        let end = end.filter(|end| *end < request.known_seq)?;
        if let Some(held_back) = self.said_restored.may_say(id, self.deps.clock.now_ms()) {
            tracing::warn!(terminal = %id, known_seq = request.known_seq, end, since_said = held_back,
                "a terminal knows more than the log holds: HQ was restored from an older backup");
        }
        Some(end)
    }

    fn answer_sync(&mut self, id: &TerminalId, request: &SyncRequest) -> SyncAnswer {
        let hq = self.hq();
        let open = self.deps.open.clone();
        let model = open.read();
        let listed = request.holds.iter().map(|h| h.attempt.clone()).filter(|a| concerns(&model, id, a)).collect();
        if !hq.caught_up || (model.seq() < request.known_seq && !planted::is(Planted::SyncFromOldView)) {
            return SyncAnswer::bare(SyncStatus::Later, model.seq(), Some(AGAIN_MS));
        }
        match self.terminals.sync(id, &request.identity, listed, request.known_seq, (hq.now_ms, hq.beat_ms)) {
            Heard::InUse => {
                self.say_in_use(id, hq.now_ms);
                SyncAnswer::bare(SyncStatus::TerminalIdInUse, model.seq(), None)
            }
            Heard::Full => SyncAnswer::bare(SyncStatus::Later, model.seq(), Some(60_000)),
            Heard::MustWait(at_ms) => {
                self.wake_terminal(&model, id, at_ms);
                SyncAnswer::bare(SyncStatus::Later, 0, Some((at_ms - hq.now_ms).max(50).unsigned_abs()))
            }
            Heard::Same | Heard::Changed => {
                let mut answer = crate::sync::answer(&model, id, request);
                if answer.retry_after_ms.is_none() && ready::handing_out_to(&model, &self.work, id) {
                    answer.retry_after_ms = Some(AGAIN_MS);
                }
                if planted::is(Planted::SyncFromOldView) {
                    answer.as_of_seq = answer.as_of_seq.max(request.known_seq);
                }
                let attempt = |task: &TaskId| {
                    let view = model.plan(&task.plan)?;
                    let attempt = view.tasks.get(view.plan.index_of(task.target.as_str())?)?.attempt;
                    Some(AttemptRef { task_id: task.clone(), attempt })
                };
                self.terminals.handed_out(id, answer.open.iter().filter_map(|o| attempt(&o.task_id)));
                self.look_at_terminal(&model, id, None, &hq);
                answer
            }
        }
    }

    pub(super) async fn take_replace(&mut self, message: BusMessage) {
        let Some(reply) = message.reply.filter(|r| subjects::is_inbox(r, None)) else { return };
        let answer = match strict::from_slice::<ReplaceRequest>(&message.payload) {
            Err(error) => ApiAnswer::Error(ApiError::new("INVALID_REQUEST", format!("the request can't be read: {error}"))),
            Ok(request) => self.replace(request).await,
        };
        if let Ok(text) = serde_json::to_vec(&answer) {
            let _ = self.deps.ledger.publish(&reply, Bytes::from(text)).await;
        }
    }

    /// Replaces a terminal. It is in the registry before the answer: a later dispatcher must know which journal was allowed.
    async fn replace(&mut self, request: ReplaceRequest) -> ApiAnswer<Replaced> {
        let journal = match self.journal_to_let_in(&request) {
            Ok(journal) => journal,
            Err(error) => return ApiAnswer::Error(error),
        };
        self.terminals.replace(&request.terminal, journal.clone());
        let record = registry::encoded(&self.terminals, &request.terminal);
        if let Err(error) = self.deps.ledger.put_terminals(record.into_iter().collect()).await {
            return ApiAnswer::Error(ApiError::new(
                error.code(),
                format!("{error}; the replacement holds until HQ restarts, ask again to keep it"),
            ));
        }
        tracing::info!(terminal = %request.terminal, by = %request.by, ?journal, "terminal replaced");
        ApiAnswer::Ok(Replaced { terminal: request.terminal, journal })
    }

    /// The journal a person names; `None`: whichever is heard next.
    fn journal_to_let_in(&self, request: &ReplaceRequest) -> Result<Option<String>, ApiError> {
        let Some(terminal) = self.terminals.known.get(&request.terminal) else {
            return Err(ApiError::new("UNKNOWN_TERMINAL", format!("no terminal {} was ever heard of", request.terminal)));
        };
        request.journal.as_deref().map(|wanted| terminal.journal_meant(wanted, request.force)).transpose()
    }
}

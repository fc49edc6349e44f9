//! What comes in from outside: beats, syncs, and people's word on who may use an id.

use bytes::Bytes;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_ledger::port::{BoxStream, BusMessage};
use fanfold_wire::api::{ApiAnswer, ApiError, ReplaceRequest, Replaced};
use fanfold_wire::subjects;
use fanfold_wire::terminal::{AttemptRef, Beat, SyncAnswer, SyncRequest, SyncStatus};
use futures::{FutureExt, StreamExt};

use super::Leader;
use crate::registry;
use crate::terminals::Heard;

/// Beats taken in one go before anything else is looked at.
const BEATS_PER_TURN: usize = 1_024;

/// When a terminal is to ask again that is ahead of this view, in milliseconds.
const AGAIN_MS: u64 = 200;
/// How long the log may take to say where it ends, while everybody else waits.
const LOG_END_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

impl Leader<'_> {
    pub(super) fn take_beats(&mut self, first: BusMessage, more: &mut BoxStream<BusMessage>) {
        let (now_ms, default_ms) = (self.deps.clock.now_ms(), self.hq().beat_ms);
        let mut changed = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(message) = next {
            taken += 1;
            if let (Some(id), Ok(beat)) =
                (subjects::parse_terminal(&message.subject), serde_json::from_slice::<Beat>(&message.payload))
            {
                match self.terminals.beat(&id, beat, now_ms, default_ms) {
                    Heard::Changed => changed.push(id),
                    Heard::MustWait(at_ms) => self.wake_terminal(&id, at_ms),
                    Heard::InUse => self.say_in_use(&id),
                    Heard::Same | Heard::Full => {}
                }
            }
            next = if taken < BEATS_PER_TURN { more.next().now_or_never().flatten() } else { None };
        }
        if !changed.is_empty() {
            self.look_at_terminals(&changed);
        }
    }

    fn say_in_use(&self, id: &TerminalId) {
        tracing::warn!(terminal = %id, code = "TERMINAL_ID_IN_USE", "two processes use this terminal id; nothing is dispatched to it until `fanfold terminal replace {id}`");
    }

    /// Looks at a terminal's tasks again at a moment.
    fn wake_terminal(&mut self, terminal: &TerminalId, at_ms: i64) {
        let open = self.deps.open.clone();
        let model = open.read();
        for view in model.open() {
            if let Some(task) = view.plan.index.get(terminal.as_str()) {
                self.work.wake_at(view.plan.id(), *task, at_ms);
            }
        }
    }

    pub(super) async fn take_sync(&mut self, message: BusMessage) {
        let Some(id) = subjects::parse_terminal(&message.subject) else { return };
        let Some(reply) = message.reply.filter(|r| subjects::is_inbox(r, Some(&id))) else { return };
        let answer = match serde_json::from_slice::<SyncRequest>(&message.payload) {
            Ok(request) => match self.restored_end(&id, &request).await {
                Some(end) => SyncAnswer { log_end_seq: Some(end), ..SyncAnswer::bare(SyncStatus::Later, end, Some(AGAIN_MS)) },
                None => self.answer_sync(&id, &request),
            },
            Err(error) => {
                tracing::debug!(terminal = %id, %error, "a sync can't be read");
                SyncAnswer::bare(SyncStatus::Later, 0, Some(60_000))
            }
        };
        if let Ok(text) = serde_json::to_vec(&answer) {
            // A lost answer is asked for again.
            let _ = self.deps.ledger.publish(&reply, Bytes::from(text)).await;
        }
    }

    /// Where the log ends, when that is before what a terminal knows: HQ was restored from an older backup. A view that is merely behind
    /// is no proof, so the log's leader is asked.
    async fn restored_end(&self, id: &TerminalId, request: &SyncRequest) -> Option<u64> {
        let behind = self.hq().caught_up && self.deps.open.read().seq() < request.known_seq;
        if !behind {
            return None;
        }
        let asked = tokio::time::timeout(LOG_END_WITHIN, self.deps.ledger.last_seq()).await;
        let end = asked.ok()?.ok().filter(|end| *end < request.known_seq)?;
        tracing::warn!(terminal = %id, known_seq = request.known_seq, end, "a terminal knows more than the log holds: HQ was restored from an older backup");
        Some(end)
    }

    fn answer_sync(&mut self, id: &TerminalId, request: &SyncRequest) -> SyncAnswer {
        let hq = self.hq();
        let open = self.deps.open.clone();
        let model = open.read();
        let listed = request.holds.iter().map(|h| h.attempt.clone()).collect();
        if !hq.caught_up || model.seq() < request.known_seq {
            return SyncAnswer::bare(SyncStatus::Later, model.seq(), Some(AGAIN_MS));
        }
        match self.terminals.sync(id, &request.identity, listed, request.known_seq, (hq.now_ms, hq.beat_ms)) {
            Heard::InUse => SyncAnswer::bare(SyncStatus::TerminalIdInUse, model.seq(), None),
            Heard::Full => SyncAnswer::bare(SyncStatus::Later, model.seq(), Some(60_000)),
            Heard::MustWait(at_ms) => {
                drop(model);
                self.wake_terminal(id, at_ms);
                SyncAnswer::bare(SyncStatus::Later, 0, Some((at_ms - hq.now_ms).max(50).unsigned_abs()))
            }
            Heard::Same | Heard::Changed => {
                let answer = crate::sync::answer(&model, id, request);
                let attempt = |task: &TaskId| {
                    let view = model.plan(&task.plan)?;
                    let attempt = view.tasks.get(*view.plan.index.get(&task.target)? as usize)?.attempt;
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
        let answer = match serde_json::from_slice::<ReplaceRequest>(&message.payload) {
            Err(error) => ApiAnswer::Error(ApiError::new("INVALID_REQUEST", format!("the request can't be read: {error}"))),
            Ok(request) => self.replace(request).await,
        };
        if let Ok(text) = serde_json::to_vec(&answer) {
            let _ = self.deps.ledger.publish(&reply, Bytes::from(text)).await;
        }
    }

    /// Replaces a terminal. It is in the registry before the answer: a later dispatcher must know which journal was allowed.
    async fn replace(&mut self, request: ReplaceRequest) -> ApiAnswer<Replaced> {
        if self.terminals.replace(&request.terminal, request.journal.clone()).is_none() {
            let message = format!("no terminal {} was ever heard of", request.terminal);
            return ApiAnswer::Error(ApiError::new("UNKNOWN_TERMINAL", message));
        }
        let record = registry::encoded(&self.terminals, &request.terminal);
        if let Err(error) = self.deps.ledger.put_terminals(record.into_iter().collect()).await {
            return ApiAnswer::Error(ApiError::new(
                error.code(),
                format!("{error}; the replacement holds until HQ restarts, ask again to keep it"),
            ));
        }
        tracing::info!(terminal = %request.terminal, by = %request.by, journal = ?request.journal, "terminal replaced");
        ApiAnswer::Ok(Replaced { terminal: request.terminal, journal: request.journal })
    }
}

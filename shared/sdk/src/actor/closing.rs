//! An orderly end: no new work, wait for the runs, stop what is left, get the reports answered, say goodbye. Every step is bounded.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::Running;

/// Beyond the grace of a stop, for writing its end down.
const STOP_SLACK: Duration = Duration::from_secs(1);
/// How long the goodbye may take to leave.
const GOODBYE_WAIT: Duration = Duration::from_secs(1);

/// How far the end has come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closing {
    /// Runs may end by themselves until then.
    Draining(Instant),
    /// Runs were told to end; until then.
    Stopping(Instant),
    /// Reports are on their way; until then.
    Flushing(Instant),
    /// Nothing is left to do.
    Over,
}

impl Closing {
    /// When the next step comes at the latest.
    pub(super) fn deadline(&self) -> Instant {
        match self {
            Closing::Draining(at) | Closing::Stopping(at) | Closing::Flushing(at) => *at,
            Closing::Over => Instant::now(),
        }
    }
}

impl Running {
    /// Stops taking commands.
    pub(super) fn begin_closing(&mut self) {
        self.listening = false;
        self.actor.holds.close();
        let grace = Duration::from_millis(self.actor.config.shutdown_grace_ms);
        self.closing = Some(Closing::Draining(Instant::now() + grace));
    }

    /// Takes every step that can be taken now.
    pub(super) fn close_further(&mut self) {
        while let Some(now) = self.closing {
            let Some(next) = self.next_step(now) else { return };
            self.closing = Some(next);
            if matches!(next, Closing::Stopping(_)) {
                let actor = &mut self.actor;
                actor.holds.stop_all(&mut actor.actions);
                self.perform();
            }
        }
    }

    /// Only ever forward, so at most three times in a terminal's life.
    fn next_step(&self, closing: Closing) -> Option<Closing> {
        let now = Instant::now();
        let config = &self.actor.config;
        let idle = self.actor.holds.running() == 0;
        // The outbox is empty a moment before its last answers have been taken in.
        let answered = self.actor.shared.outbox.look().is_empty() && self.actor.holds.unanswered() == 0;
        let told = self.writes.is_empty() && (config.mute || answered);
        let flushing = Closing::Flushing(now + Duration::from_millis(config.shutdown_flush_ms));
        match closing {
            Closing::Draining(_) if idle => Some(flushing),
            Closing::Draining(at) if now >= at => {
                Some(Closing::Stopping(now + Duration::from_millis(config.stop_grace_ms) + STOP_SLACK))
            }
            Closing::Stopping(at) if idle || now >= at => Some(flushing),
            Closing::Flushing(at) if told || now >= at => Some(Closing::Over),
            Closing::Draining(_) | Closing::Stopping(_) | Closing::Flushing(_) | Closing::Over => None,
        }
    }

    /// Whether the end is reached.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.closing, Some(Closing::Over))
    }

    /// The last beat: whoever starts in this terminal's place needs not wait.
    pub(super) async fn say_goodbye(&mut self) {
        self.actor.subscription = futures::stream::empty().boxed();
        self.beat(true).await;
        if self.actor.transport.is_connected() {
            // If it doesn't get out, three missing beats say the same.
            let _ = tokio::time::timeout(GOODBYE_WAIT, self.actor.transport.flush()).await;
        }
    }
}

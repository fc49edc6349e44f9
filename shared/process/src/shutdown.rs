//! The token that tells everything to end.
//!
//! Level-triggered: once set it stays set, so nobody can miss it by looking late.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code of a process ended by a second signal: 128 + SIGINT, as shells report it.
pub const FORCED_EXIT_CODE: i32 = 130;

/// A shared "please end" flag. Clones are the same flag; a [`child`](Shutdown::child) follows its
/// parent but can be triggered alone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// A flag that only [`trigger`](Shutdown::trigger) sets.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that SIGINT or SIGTERM sets too. A second signal ends the process at once with
    /// [`FORCED_EXIT_CODE`], so a drain that hangs cannot hold a person up. Call it inside a tokio
    /// runtime, once a process.
    ///
    /// # Errors
    /// The system's error if a signal handler cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let mut signals = Signals::install()?;
        let shutdown = Self::new();
        let flag = shutdown.clone();
        tokio::spawn(async move {
            let name = signals.next().await;
            tracing::info!(signal = name, "shutting down; a second signal ends at once");
            flag.trigger();
            let name = signals.next().await;
            tracing::error!(signal = name, code = FORCED_EXIT_CODE, "ended by a second signal");
            std::process::exit(FORCED_EXIT_CODE);
        });
        Ok(shutdown)
    }

    /// Sets the flag. Doing it again changes nothing.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Whether the flag is set.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when the flag is set, at once if it is already. Safe to drop and call again.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.token.clone().cancelled_owned()
    }

    /// A flag that is set when this one is, and can be set without touching this one.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token() }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_late_still_sees_it() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_triggered());
        let before = shutdown.wait();
        shutdown.trigger();
        shutdown.trigger();
        before.await;
        shutdown.wait().await;
        assert!(shutdown.is_triggered());
    }

    #[test]
    fn a_child_follows_and_does_not_lead() {
        let parent = Shutdown::new();
        let (first, second) = (parent.child(), parent.child());
        first.trigger();
        assert!(first.is_triggered());
        assert!(!parent.is_triggered() && !second.is_triggered());
        parent.clone().trigger();
        assert!(second.is_triggered());
    }
}

//! Starting a terminal, and the handle on a started one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use fanfold_wire::domain::event::PROTOCOL_VERSION;
use fanfold_wire::domain::ids::TerminalId;
use fanfold_wire::subjects;
use fanfold_wire::terminal::Identity;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::actor::{Actor, Input};
use crate::config::TerminalConfig;
use crate::connects::Connects;
use crate::error::TerminalError;
use crate::handler::Registry;
use crate::holds::{Holds, Setup};
use crate::journal::Journal;
use crate::outbox::{Backoff, Outbox};
use crate::reporter::{self, Reporter, SharedOutbox};
use crate::runner::RunnerShared;
use crate::slots::slots_ceiling;
use crate::stats::TerminalStats;
use crate::transport::Transport;

/// Inputs waiting for a terminal's actor; senders wait beyond it.
const INPUTS_MAX: usize = 256;
/// Attempts held beyond the slots.
const QUEUE_BEYOND_SLOTS: usize = 16;
/// How long a killed terminal's runs may take to notice.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Starts terminals; see [`Terminal::start`].
#[derive(Debug)]
pub struct Terminal;

/// A started terminal. Dropping it ends it as a power cut would: runs are dropped, nothing is said.
#[derive(Debug)]
pub struct TerminalHandle {
    id: TerminalId,
    journal_id: String,
    boot_id: String,
    slots: u32,
    shutdown: CancellationToken,
    tracker: TaskTracker,
    stats: Arc<Mutex<TerminalStats>>,
    actor: AbortOnDropHandle<()>,
    reporter: AbortOnDropHandle<()>,
    connects: Option<AbortOnDropHandle<()>>,
}

impl Terminal {
    /// [`Terminal::start_on`] over a NATS client. Without [`TerminalConfig::connects`] it looks for reconnects once a second.
    ///
    /// # Errors
    /// As [`Terminal::start_on`].
    pub async fn start(
        client: Client,
        config: TerminalConfig,
        handlers: Registry,
        journal: Arc<dyn Journal>,
    ) -> Result<TerminalHandle, TerminalError> {
        let (mut config, mut watcher) = (config, None);
        if config.connects.is_none() {
            let (connects, watching) = Connects::watching(&client);
            (config.connects, watcher) = (Some(connects), Some(watching));
        }
        let mut handle = Self::start_on(Arc::new(client), config, handlers, journal).await?;
        handle.connects = watcher;
        Ok(handle)
    }

    /// Reads the journal, listens to commands, beats and syncs. Call it inside a tokio runtime. `transport` and `journal` may be
    /// shared with other terminals of the process; the same id must not be started twice.
    ///
    /// # Errors
    /// A configuration that can't be used, a journal that can't be read, or a connection that is closed for good. A server that is
    /// merely away is no error: the terminal waits for it.
    pub async fn start_on(
        transport: Arc<dyn Transport>,
        config: TerminalConfig,
        handlers: Registry,
        journal: Arc<dyn Journal>,
    ) -> Result<TerminalHandle, TerminalError> {
        config.check()?;
        let loaded = journal.load(&config.id).await?;
        let boot = config.chance.id();
        let slots = config.slots.min(slots_ceiling());
        let connects = config.connects.clone().map_or_else(Connects::never, Connects::starting_now);
        let subject = subjects::commands(&config.id);
        let subscription =
            transport.subscribe(&subject).await.map_err(|e| TerminalError::Subscribe { subject, reason: e.to_string() })?;
        let (inputs_in, inputs) = mpsc::channel(INPUTS_MAX);
        let reporter = reporter_of(&transport, &config, inputs_in.clone());
        let shared = shared_of(&config, journal, reporter.outbox.clone(), inputs_in);
        let setup = Setup {
            terminal: config.id.clone(),
            journal: loaded.journal_id.clone(),
            boot: boot.clone(),
            slots: slots as usize,
            held_max: slots as usize + QUEUE_BEYOND_SLOTS,
        };
        let mut actions = Vec::new();
        let holds = Holds::restore(setup, loaded.rows, loaded.known_seq, &mut actions);
        let (shutdown, tracker, stats) = (CancellationToken::new(), TaskTracker::new(), Arc::default());
        let actor = Actor {
            identity: identity(&config, slots, &loaded.journal_id, &boot, &handlers),
            transport,
            registry: handlers,
            shared: Arc::new(shared),
            holds,
            subscription,
            inputs,
            connects,
            shutdown: shutdown.clone(),
            tracker: tracker.clone(),
            published: Arc::clone(&stats),
            actions,
            config: config.clone(),
        };
        tracing::debug!(terminal = %config.id, journal = loaded.journal_id, boot, slots, "terminal started");
        Ok(TerminalHandle {
            id: config.id,
            journal_id: loaded.journal_id,
            boot_id: boot,
            slots,
            shutdown,
            tracker,
            stats,
            actor: AbortOnDropHandle::new(tokio::spawn(actor.run())),
            reporter: AbortOnDropHandle::new(tokio::spawn(reporter::run(reporter))),
            connects: None,
        })
    }
}

fn reporter_of(transport: &Arc<dyn Transport>, config: &TerminalConfig, inputs: mpsc::Sender<Input>) -> Reporter {
    let first = Duration::from_millis(config.report_retry_ms);
    let longest = Duration::from_millis(config.report_retry_max_ms);
    Reporter {
        transport: transport.clone(),
        subject: subjects::report(&config.id),
        outbox: SharedOutbox::new(Outbox::new(Backoff { first, longest })),
        inputs,
        timeout: Duration::from_millis(config.request_timeout_ms),
        repeats: config.duplicate_reports.clone().unwrap_or_default(),
        chance: config.chance.clone(),
    }
}

fn shared_of(
    config: &TerminalConfig,
    journal: Arc<dyn Journal>,
    outbox: SharedOutbox,
    inputs: mpsc::Sender<Input>,
) -> RunnerShared {
    RunnerShared {
        terminal: config.id.clone(),
        journal,
        outbox,
        inputs,
        started_hold: Duration::from_millis(config.started_hold_ms),
        stop_grace: Duration::from_millis(config.stop_grace_ms),
        watchdog: config.run_watchdog,
        mute: config.mute,
        clock: config.clock.clone(),
    }
}

/// What a terminal says of itself.
fn identity(config: &TerminalConfig, slots: u32, journal: &str, boot: &str, registry: &Registry) -> Identity {
    Identity {
        protocol_version: PROTOCOL_VERSION,
        version: config.version.clone(),
        journal: journal.to_owned(),
        boot: boot.to_owned(),
        slots,
        beat_interval_ms: config.beat_interval_ms,
        labels: config.labels.clone(),
        types: registry.types(),
    }
}

impl TerminalHandle {
    /// Its id.
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    /// Its journal's id.
    pub fn journal_id(&self) -> &str {
        &self.journal_id
    }

    /// The id of this start.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Tasks it runs at once, after the ceiling.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Its numbers now.
    pub fn stats(&self) -> TerminalStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it in order: takes nothing new, waits for runs up to `shutdown_grace_ms`, stops the rest, flushes reports up to
    /// `shutdown_flush_ms`, says goodbye. What is unanswered then stays in the journal for the next start.
    pub async fn shutdown(self) -> TerminalStats {
        self.shutdown.cancel();
        if let Err(error) = self.actor.await {
            tracing::error!(terminal = %self.id, %error, "the terminal's actor did not end in order");
        }
        drop(self.reporter);
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it as a power cut would, and waits until its runs are gone, so that the journal can be used by a next start.
    pub async fn kill(self) {
        self.actor.abort();
        self.reporter.abort();
        // Both only tell that they were aborted.
        let _ = self.actor.await;
        let _ = self.reporter.await;
        self.tracker.close();
        if tokio::time::timeout(KILL_WAIT, self.tracker.wait()).await.is_err() {
            tracing::warn!(terminal = %self.id, "a run blocks its thread and could not be dropped");
        }
    }
}

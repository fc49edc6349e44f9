//! The one task a terminal's state belongs to: it takes inputs one by one, asks the rules in [`crate::holds`], and performs what they
//! say. It never waits for the network or the disk itself; requests and durable writes come back as inputs.

mod beat;
mod closing;
mod sync;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fanfold_wire::domain::event::Dispatched;
use fanfold_wire::subjects;
use fanfold_wire::terminal::{AttemptRef, Command, Identity, ReportResult, SyncAnswer};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::beat::BeatClock;
use self::closing::Closing;
use self::sync::SyncClock;
use crate::config::TerminalConfig;
use crate::connects::Connects;
use crate::handler::Registry;
use crate::holds;
use crate::holds::{Action, Admission, Holds, Origin};
use crate::journal::{EndKind, Op, Record};
use crate::outbox::{Outbox, ReportKey};
use crate::reports::{self, Author};
use crate::runner::{self, RunnerShared};
use crate::stats::TerminalStats;
use crate::transport::{Incoming, Transport};

/// Commands taken in one turn before anything else is looked at again.
const COMMANDS_PER_TURN: usize = 64;

/// What comes back from the terminal's other tasks.
#[derive(Debug)]
pub(crate) enum Input {
    /// A run ended; `report` is in the journal if `journaled`.
    Ended { attempt: AttemptRef, end: EndKind, report: Bytes, journaled: bool },
    /// A run's begin could not be written.
    NotBegun(AttemptRef),
    /// A request with reports is over; what was told about each.
    Answers(Vec<(ReportKey, ReportResult)>),
}

/// A durable write the actor asked for is over.
enum Written {
    Report { attempt: AttemptRef, end: EndKind, report: Bytes, ok: bool },
    Probe { ok: bool },
}

/// A change of the outbox that waits for the others of its turn.
enum Sending {
    Report(AttemptRef, EndKind, Bytes),
    Expedite(AttemptRef),
}

/// A started terminal; see the module.
pub(crate) struct Actor {
    pub(crate) config: TerminalConfig,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) registry: Registry,
    pub(crate) identity: Identity,
    pub(crate) shared: Arc<RunnerShared>,
    pub(crate) holds: Holds,
    pub(crate) subscription: BoxStream<'static, Incoming>,
    pub(crate) inputs: mpsc::Receiver<Input>,
    pub(crate) connects: Connects,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tracker: TaskTracker,
    pub(crate) published: Arc<Mutex<TerminalStats>>,
    /// What is to be performed at the start, from the journal.
    pub(crate) actions: Vec<Action>,
}

/// The actor while it runs.
struct Running {
    actor: Actor,
    runs: JoinSet<()>,
    stops: HashMap<AttemptRef, CancellationToken>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    syncs: FuturesUnordered<BoxFuture<'static, Option<SyncAnswer>>>,
    clock: SyncClock,
    beats: BeatClock,
    /// What the last beat said of the journal.
    told_journal_ok: bool,
    listening: bool,
    closing: Option<Closing>,
    stats: TerminalStats,
}

impl Actor {
    /// Runs until the shutdown is over.
    pub(crate) async fn run(self) {
        let clock = SyncClock::starting(&self.config.chance, self.config.sync_jitter_ms);
        let mut running = Running {
            actor: self,
            runs: JoinSet::new(),
            stops: HashMap::new(),
            writes: FuturesUnordered::new(),
            syncs: FuturesUnordered::new(),
            clock,
            beats: BeatClock::starting(),
            told_journal_ok: true,
            listening: true,
            closing: None,
            stats: TerminalStats::default(),
        };
        running.perform();
        while !running.is_over() {
            running.beat_if_due().await;
            running.sync_if_due();
            running.publish_stats();
            running.turn().await;
            running.perform();
            running.close_further();
        }
        running.say_goodbye().await;
        running.publish_stats();
    }
}

impl Running {
    /// Waits for one thing to happen and takes it in.
    async fn turn(&mut self) {
        let wake = self.wake();
        let shutdown = self.actor.shutdown.clone();
        // What can always be ready comes after what can't. Connects are counted, not queued; inputs, writes and syncs only follow from
        // commands taken before; a flood of commands is last and taken in bites. Time needs no place before them: whatever is due
        // is done between two turns.
        tokio::select! {
            biased;
            () = shutdown.cancelled(), if self.closing.is_none() => self.begin_closing(),
            () = self.actor.connects.next() => self.take_connect(),
            Some(input) = self.actor.inputs.recv() => self.take(input),
            Some(written) = self.writes.next(), if !self.writes.is_empty() => self.take_written(written),
            Some(answer) = self.syncs.next(), if !self.syncs.is_empty() => self.take_sync(answer),
            message = self.actor.subscription.next(), if self.listening => self.take_messages(message),
            () = tokio::time::sleep_until(wake) => {}
        }
    }

    fn wake(&self) -> Instant {
        let sync = if self.syncs.is_empty() && self.closing.is_none() { self.clock.next() } else { self.beats.next() };
        let closing = self.closing.as_ref().map_or(self.beats.next(), Closing::deadline);
        self.beats.next().min(sync).min(closing)
    }

    fn take(&mut self, input: Input) {
        let actor = &mut self.actor;
        match input {
            Input::Ended { attempt, end, report, journaled } => {
                self.stops.remove(&attempt);
                actor.holds.ended(&attempt, end, report, journaled, &mut actor.actions);
            }
            Input::NotBegun(attempt) => {
                self.stops.remove(&attempt);
                actor.holds.not_begun(&attempt, &mut actor.actions);
            }
            Input::Answers(told) => {
                for (key, result) in told {
                    match key {
                        ReportKey::End(attempt, end) => actor.holds.answered(&attempt, end, &result, &mut actor.actions),
                        ReportKey::Started(_) | ReportKey::Step(..) => actor.holds.note_seq(result.seq.unwrap_or(0)),
                    }
                }
                if actor.holds.wants_sync() {
                    self.clock.soon(&self.actor.config.chance);
                }
            }
        }
        // Ended runs are told by their inputs; here only their remains are cleared away.
        while self.runs.try_join_next().is_some() {}
    }

    fn take_written(&mut self, written: Written) {
        match written {
            Written::Report { attempt, end, report, ok } => {
                self.note_journal(ok);
                self.actor.actions.push(Action::Send { attempt, end, report });
            }
            Written::Probe { ok } => self.note_journal(ok),
        }
    }

    fn note_journal(&mut self, ok: bool) {
        let terminal = &self.actor.config.id;
        match (self.actor.holds.journal_ok(), ok) {
            (true, false) => {
                tracing::error!(%terminal, code = holds::code::JOURNAL_UNAVAILABLE, "new work is refused until the journal can be written")
            }
            (false, true) => tracing::info!(%terminal, "the journal can be written again"),
            _ => {}
        }
        self.actor.holds.set_journal_ok(ok);
    }

    fn take_messages(&mut self, first: Option<Incoming>) {
        let mut next = Some(first);
        for _ in 0..COMMANDS_PER_TURN {
            match next {
                Some(Some(message)) => self.take_command(&message),
                Some(None) => {
                    tracing::error!(terminal = %self.actor.config.id, "the subscription to commands ended: the connection is closed");
                    self.listening = false;
                    return;
                }
                None => return,
            }
            next = self.actor.subscription.next().now_or_never();
        }
        if let Some(Some(message)) = next {
            self.take_command(&message);
        }
    }

    fn take_command(&mut self, message: &Incoming) {
        let Some(command) = read_command(message) else {
            self.stats.undecodable += 1;
            return;
        };
        let actor = &mut self.actor;
        let registry = &actor.registry;
        let wanted = actor.holds.wants_sync();
        actor.holds.command(command, Origin::Live, &|dispatched| admit(registry, dispatched), &mut actor.actions);
        // Once: HQ may have asked for a pause since.
        if !wanted && actor.holds.wants_sync() {
            self.clock.soon(&self.actor.config.chance);
        }
    }

    fn take_connect(&mut self) {
        let jitter_ms = self.actor.config.sync_jitter_ms;
        // An answer awaited over the old connection never comes.
        self.syncs.clear();
        let chance = &self.actor.config.chance;
        self.clock.reconnected(chance, jitter_ms);
        self.beats.connected(chance, jitter_ms);
        self.actor.shared.outbox.reconnected(chance.within(jitter_ms));
    }

    /// Does what the rules said. All reports of one turn reach the outbox together, so that they can share a batch.
    fn perform(&mut self) {
        if self.actor.actions.is_empty() {
            return;
        }
        let (mut notes, mut sends) = (Vec::new(), Vec::new());
        for action in std::mem::take(&mut self.actor.actions) {
            match action {
                Action::Run(order) => self.run(order),
                Action::Stop(attempt) => {
                    if let Some(stop) = self.stops.get(&attempt) {
                        stop.cancel();
                    }
                }
                Action::Report { attempt, end, event, traceparent, durable } => {
                    let author = Author { terminal: &self.actor.config.id, clock: &self.actor.config.clock };
                    let report = reports::write(author, &attempt.task_id, traceparent.as_deref(), &event);
                    if durable {
                        self.write_report(attempt, end, report);
                    } else {
                        sends.push(Sending::Report(attempt, end, report));
                    }
                }
                Action::Send { attempt, end, report } => sends.push(Sending::Report(attempt, end, report)),
                Action::Expedite(attempt) => sends.push(Sending::Expedite(attempt)),
                Action::Note(op) => notes.push(op),
            }
        }
        if !sends.is_empty() && !self.actor.config.mute {
            self.actor.shared.outbox.change(|outbox| send(outbox, sends));
        }
        if !notes.is_empty() {
            self.actor.shared.journal.write_lazily(&self.actor.config.id, notes);
        }
    }

    fn run(&mut self, order: Box<holds::RunOrder>) {
        let stop = CancellationToken::new();
        self.stops.insert(order.attempt.clone(), stop.clone());
        let handler = self.actor.registry.get(&order.kind, order.version).cloned();
        let run = runner::run(self.actor.shared.clone(), order, handler, stop);
        self.runs.spawn(self.actor.tracker.track_future(run));
    }

    fn write_report(&self, attempt: AttemptRef, end: EndKind, report: Bytes) {
        let shared = self.actor.shared.clone();
        self.writes.push(Box::pin(async move {
            let record = Record::Finished { end, report: report.clone() };
            let ops = vec![Op::Put { task: attempt.task_id.clone(), attempt: attempt.attempt, record }];
            // Without a row it is sent all the same: the row that is there keeps the attempt from running again.
            let ok = shared.journal.write(&shared.terminal, ops).await.is_ok();
            Written::Report { attempt, end, report, ok }
        }));
    }

    fn publish_stats(&mut self) {
        let holds = &self.actor.holds;
        let outbox = self.actor.shared.outbox.look().counts;
        let stats = TerminalStats {
            counts: holds.counts(),
            queued: holds.queued(),
            running: holds.running(),
            unanswered: holds.unanswered(),
            settled: holds.settled(),
            tasks: holds.tasks(),
            known_seq: holds.known_seq(),
            journal_unavailable: !holds.journal_ok(),
            report_requests: outbox.requests,
            report_requests_failed: outbox.requests_failed,
            reports_sent: outbox.sent,
            reports_settled: outbox.settled,
            reports_retried: outbox.retried,
            steps_dropped: outbox.steps_dropped,
            ..self.stats
        };
        self.stats = stats.clone();
        *self.actor.published.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}

fn send(outbox: &mut Outbox, sends: Vec<Sending>) {
    let now = Instant::now();
    for sending in sends {
        match sending {
            Sending::Report(attempt, end, report) => outbox.end(attempt, end, report, now),
            Sending::Expedite(attempt) => outbox.expedite(&attempt, now),
        }
    }
}

/// The task is in the subject, the sequence in the header the server put there; without one it is no stored decision.
fn read_command(message: &Incoming) -> Option<Command> {
    let (_, task) = subjects::parse_command(&message.subject)?;
    let read = Command::decode(task, message.seq?, &message.payload);
    read.inspect_err(|error| tracing::warn!(subject = %message.subject, %error, "a command can't be read")).ok()
}

/// Whether a handler takes it. A check that panics is a refusal, not a dead terminal.
fn admit(registry: &Registry, dispatched: &Dispatched) -> Admission {
    let Some(handler) = registry.get(&dispatched.kind, dispatched.version) else { return Admission::UnknownType };
    match catch_unwind(AssertUnwindSafe(|| handler.check(&dispatched.input))) {
        Ok(Ok(())) => Admission::Taken,
        Ok(Err(reason)) => Admission::BadInput(reason),
        Err(_) => Admission::BadInput("the handler's check panicked".into()),
    }
}

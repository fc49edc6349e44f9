//! Doing what was drawn, and undoing it when its time has come.

use std::time::Duration;

use fanfold_ledger::port::Buckets;
use fanfold_wire::record::{TerminalRecord, terminal_key};
use rustix::process::Signal;
use tokio::time::Instant;

use super::Run;
use super::draw::{Kind, Whom};
use super::table::Row;
use crate::stack::ROLES;

/// Most terminals hit at once.
const TERMINALS_MAX: u64 = 16;
/// How long a twin may go unnoticed, or a replacement unanswered, over all that is done to the dispatcher meanwhile.
const TWIN_WITHIN: Duration = Duration::from_secs(60);

/// What is undone later.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    StartService(String),
    ThawService(String),
    StartTerminal(String),
    ThawTerminal(String),
    StartNats,
    ThawNats,
}

/// Something to be undone at a moment.
#[derive(Debug, Clone)]
pub(super) struct Due {
    at: Instant,
    undo: Undo,
}

/// A second process under a store's id.
#[derive(Debug, Clone)]
pub(super) struct Twin {
    store: String,
    /// Index among the ground's twins.
    index: usize,
    since: Instant,
    /// It is stopped once so many disturbances were made.
    until_rows: usize,
    /// Who is ended: the twin, or the store's own terminal, whose place the twin takes.
    stays: bool,
    /// It ends with SIGKILL, not in order.
    killed: bool,
    noticed: bool,
    stopped: bool,
}

impl Run {
    /// Does one disturbance and notes what it met; gives the log's last sequence before it.
    pub(super) async fn act(&mut self, kind: Kind) -> u64 {
        self.watch.look().await;
        let (live, seq, at) = (self.watch.live(), self.watch.seq, self.started.elapsed());
        let (what, whom) = match kind {
            Kind::Kill(Whom::Role(role)) => self.hit_role(ROLES[role], true),
            Kind::Freeze(Whom::Role(role)) => self.hit_role(ROLES[role], false),
            Kind::Kill(Whom::Terminals) => self.hit_terminals(true),
            Kind::Freeze(Whom::Terminals) => self.hit_terminals(false),
            Kind::Kill(Whom::Nats) => {
                let pause = self.pause();
                self.ground.nats.kill().await;
                self.later(pause, Undo::StartNats);
                (format!("kill, back after {pause:.1?}"), "nats-server".to_owned())
            }
            Kind::Freeze(Whom::Nats) => {
                let pause = self.frozen_for();
                self.ground.freeze_nats(true);
                self.later(pause, Undo::ThawNats);
                (format!("freeze {pause:.1?}"), "nats-server".to_owned())
            }
            Kind::Twin => self.start_twin().await,
        };
        self.rows.push(Row { at, what, whom, live, progress: None });
        seq
    }

    /// None half the time, else up to 3 s.
    fn pause(&mut self) -> Duration {
        if self.draw.one_in(2) { Duration::ZERO } else { self.draw.ms(100, 3_000) }
    }

    /// Past the lease, in any case.
    fn frozen_for(&mut self) -> Duration {
        let lease_ms = self.settings.lease_ms;
        self.draw.ms(lease_ms + 500, lease_ms + 2_500)
    }

    fn later(&mut self, pause: Duration, undo: Undo) {
        self.due.push(Due { at: Instant::now() + pause, undo });
    }

    /// One process of the role, or all of them.
    fn hit_role(&mut self, role: &str, kill: bool) -> (String, String) {
        let mut names: Vec<String> =
            self.ground.services.iter().filter(|(_, s)| s.role == role).map(|(n, _)| n.clone()).collect();
        self.draw.shuffle(&mut names);
        if !self.draw.one_in(3) {
            names.truncate(1);
        }
        let pause = if kill { self.pause() } else { self.frozen_for() };
        for name in &names {
            // Whatever is still to be done about it is overtaken by this.
            self.due.retain(|d| !matches!(&d.undo, Undo::StartService(n) | Undo::ThawService(n) if n == name));
            if kill {
                self.ground.kill_service(name);
                self.later(pause, Undo::StartService(name.clone()));
            } else {
                self.ground.freeze_service(name);
                // One that was just down is started by its supervisor when it thaws.
                self.later(pause, Undo::ThawService(name.clone()));
            }
        }
        let what = if kill { format!("kill, back after {pause:.1?}") } else { format!("freeze {pause:.1?}") };
        (what, names.join(", "))
    }

    /// Some terminals, most of them at work.
    fn hit_terminals(&mut self, kill: bool) -> (String, String) {
        let count = self.draw.between(1, TERMINALS_MAX + 1) as usize;
        let mut all: Vec<String> = self.ground.stores.keys().cloned().collect();
        // The log is behind what a handler does: the handlers' own account tells who is at work now.
        let mut live: Vec<String> =
            self.ground.stores.iter().filter(|(_, s)| s.fleet.at_work()).map(|(id, _)| id.clone()).collect();
        self.draw.shuffle(&mut live);
        self.draw.shuffle(&mut all);
        live.truncate(count);
        live.extend(all);
        let mut hit: Vec<String> = Vec::new();
        let (mut from, mut to) = (Duration::MAX, Duration::ZERO);
        for id in live {
            if hit.len() >= count || hit.contains(&id) || !self.ground.store(&id).is_free() {
                continue;
            }
            let pause = if kill { self.pause() } else { self.draw.ms(500, 7_000) };
            (from, to) = (from.min(pause), to.max(pause));
            let store = self.ground.store(&id);
            if kill {
                store.fleet.kill();
                self.later(pause, Undo::StartTerminal(id.clone()));
            } else {
                store.fleet.signal(Signal::STOP);
                store.frozen = true;
                self.later(pause, Undo::ThawTerminal(id.clone()));
            }
            hit.push(id);
        }
        (format!("{} {from:.1?} to {to:.1?}", if kill { "kill, back" } else { "freeze" }), hit.join(", "))
    }

    /// A second process with an empty journal, or with a copy of the journal as it is at this moment: a cloned till.
    async fn start_twin(&mut self) -> (String, String) {
        if self.twin.is_some() {
            // One at a time: the one before is ended first.
            self.end_twin_now().await;
        }
        let mut candidates = self.watch.live_targets();
        self.draw.shuffle(&mut candidates);
        candidates.extend(self.ground.stores.keys().cloned());
        let free = |run: &mut Self, id: &String| run.ground.store(id).is_free();
        let id = candidates.into_iter().find(|id| free(self, id)).expect("a terminal nobody meddles with");
        let (cloned, killed, stays) = (self.draw.one_in(2), self.draw.one_in(2), self.draw.one_in(3));
        let index = self.ground.twins.len();
        let mut twin = self.ground.fleet(&format!("{id}-twin{index}"), &id);
        if cloned {
            let store = self.ground.store(&id);
            store.fleet.freeze();
            std::fs::copy(store.fleet.journal(), twin.journal()).expect("room on disk");
            store.fleet.signal(Signal::CONT);
        }
        twin.launch();
        self.ground.store(&id).twinned = true;
        self.ground.twins.push((id.clone(), twin));
        let until_rows = self.rows.len() + 1 + self.draw.between(0, 3) as usize;
        let since = Instant::now();
        self.twin = Some(Twin { store: id.clone(), index, since, until_rows, stays, killed, noticed: false, stopped: false });
        let journal = if cloned { "cloned journal" } else { "own journal" };
        (format!("twin, {journal}{}", if stays { ", stays" } else { "" }), id)
    }

    /// Waits, and goes on looking, until the twin that is about is no more.
    async fn end_twin_now(&mut self) {
        if let Some(twin) = &mut self.twin {
            twin.until_rows = 0;
        }
        Box::pin(self.until_within("the twin before is ended", TWIN_WITHIN * 2, |run| run.twin.is_none())).await;
    }

    /// What HQ has written down about a terminal; `None` while it can't be read.
    pub(super) async fn registered(&self, id: &str) -> Option<TerminalRecord> {
        let key = terminal_key(&fanfold_domain::ids::TerminalId::new(id).ok()?);
        let entry = tokio::time::timeout(Duration::from_secs(1), self.ground.hq.ledger.get_terminal(&key)).await.ok()?.ok()??;
        serde_json::from_slice(&entry.value).ok()
    }

    /// A twin is noticed by HQ, lives for some disturbances, is stopped, and a person lets the terminal in again.
    pub(super) async fn look_after_twin(&mut self) {
        let Some(mut twin) = self.twin.clone() else { return };
        let late = twin.since.elapsed() > TWIN_WITHIN;
        assert!(!late || twin.noticed, "HQ did not notice two processes under {} within {TWIN_WITHIN:?}", twin.store);
        if !twin.noticed {
            // Where a person has let one in before, the other is turned away at once: noticed, and no more than that.
            let told = |r: TerminalRecord| r.id_in_use || r.rival_journal.is_some();
            twin.noticed = self.registered(&twin.store).await.is_some_and(told);
        }
        let ends =
            twin.noticed && (self.rows.len() >= twin.until_rows || self.work.stop.load(std::sync::atomic::Ordering::Relaxed));
        if ends && !twin.stopped {
            let (store, twins) = (self.ground.stores.get_mut(&twin.store).expect("a store"), &mut self.ground.twins);
            store.retired = twin.stays;
            let fleet = if twin.stays { &mut store.fleet } else { &mut twins[twin.index].1 };
            if twin.killed {
                fleet.kill();
            } else {
                fleet.stop().await;
            }
            twin.stopped = true;
        }
        if twin.stopped && self.replaced(&twin.store).await {
            self.ground.store(&twin.store).twinned = false;
            self.twin = None;
            return;
        }
        self.twin = Some(twin);
    }

    /// `terminal replace`, as a person does it; whether it was done.
    async fn replaced(&self, id: &str) -> bool {
        self.ground.cli().run(&["terminal", "replace", id]).await.code == Some(0)
    }

    /// Undoes what is due.
    pub(super) async fn undo_due(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(|d| d.at <= now);
        self.due = later;
        let due: Vec<Due> = due;
        for Due { undo, .. } in due {
            match undo {
                Undo::StartService(name) => self.ground.start_service(&name),
                Undo::ThawService(name) => self.ground.thaw_service(&name),
                Undo::StartTerminal(id) => self.ground.store(&id).fleet.launch(),
                Undo::ThawTerminal(id) => {
                    let store = self.ground.store(&id);
                    store.fleet.signal(Signal::CONT);
                    store.frozen = false;
                }
                Undo::StartNats => self.ground.nats.restart().await.expect("the server starts again on its store"),
                Undo::ThawNats => self.ground.freeze_nats(false),
            }
        }
    }
}

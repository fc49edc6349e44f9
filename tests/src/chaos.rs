//! Chaos: a server, every service and a hundred terminals, each a process of its own, killed, frozen and doubled while they work; at the
//! end the handlers' own account, the log, the summaries, the records, the API and a replay have to say the same.
//!
//! Reading order: [`Settings`], [`Run`] (the loop), [`draw`] (what comes from the seed), [`ground`] (processes), [`watch`] (the log as an
//! observer sees it), [`act`] (doing it and undoing it), [`judge`] (the end).

pub mod act;
pub mod draw;
pub mod feed;
pub mod ground;
pub mod judge;
pub mod table;
pub mod tap;
pub mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::act::{Due, Twin};
use self::draw::{Deck, Draw, Kind};
use self::feed::Shared;
use self::ground::Ground;
use self::table::Row;
use self::tap::Tap;
use self::watch::Watch;

/// Pause between two looks at the log and the processes.
const LOOK: Duration = Duration::from_millis(60);
/// Tasks that must have gone all the way, from hand-out to success, before the next disturbance: one of these is drawn. None means that
/// one new event in the log is enough, so that some disturbances meet a system that is just coming back.
const PROGRESS: [usize; 4] = [0, 3, 8, 24];
/// How long it may take until work has gone all the way again after a disturbance. Generous: machines that test are busy.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);
/// How long everything may take to end once nothing is disturbed any more.
const END_WITHIN: Duration = Duration::from_secs(120);

/// How a run is made up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything drawn is drawn from it.
    pub seed: u64,
    /// Disturbances that met live work.
    pub disturbances: usize,
    /// Terminals, each a process.
    pub stores: usize,
    /// After so long a standby takes over, in milliseconds.
    pub lease_ms: u64,
    /// Heartbeat interval of terminals, in milliseconds.
    pub beat_ms: u64,
    /// Tasks out at once over all plans.
    pub in_flight: u32,
    /// How long a handler takes, in milliseconds: from, to.
    pub work_ms: (u64, u64),
    /// Roles with two processes, so that one can take over.
    pub twice: Vec<&'static str>,
}

impl Settings {
    /// A hundred terminals; seed and number of disturbances from `FANFOLD_CHAOS_SEED` and `FANFOLD_CHAOS_DISTURBANCES`, else 1 and 60.
    pub fn from_env() -> Self {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
            Err(_) => default,
        };
        Self {
            seed: number("FANFOLD_CHAOS_SEED", 1),
            disturbances: number("FANFOLD_CHAOS_DISTURBANCES", 60) as usize,
            stores: number("FANFOLD_CHAOS_STORES", 100) as usize,
            lease_ms: 1_500,
            beat_ms: 1_000,
            in_flight: 20,
            work_ms: (50, 500),
            twice: vec!["recorder", "dispatcher", "projector", "convergence"],
        }
    }
}

/// A run under way.
pub struct Run {
    /// How it is made up.
    pub settings: Settings,
    /// The processes.
    pub ground: Ground,
    /// The log.
    pub watch: Watch,
    /// The wire.
    pub tap: Tap,
    /// The work.
    pub work: Arc<Shared>,
    /// What was done so far.
    pub rows: Vec<Row>,
    kinds: BTreeSet<Kind>,
    deck: Deck,
    draw: Draw,
    due: Vec<Due>,
    twin: Option<Twin>,
    feeder: JoinHandle<()>,
    started: Instant,
}

impl Run {
    /// Starts everything and waits until every terminal is online and work goes its way.
    pub async fn start(program: &str, settings: Settings) -> Self {
        let mut ground = Ground::new(program, &settings).await;
        ground.start_services(&settings).await;
        let ids = crate::fleet::ids(1, settings.stores);
        ground.start_stores(&ids).await;
        ground.hq.online(settings.stores).await;
        let watch = Watch::new(Arc::clone(&ground.hq.ledger));
        let tap = Tap::start(&ground.nats.url()).await;
        let work = Arc::new(Shared::default());
        let feeder = feed::start(ground.hq.clone(), settings.seed, ids, Arc::clone(&work));
        let (deck, draw) = (Deck::new(settings.seed), Draw::new(settings.seed, 3));
        let (rows, due, kinds) = (Vec::new(), Vec::new(), BTreeSet::new());
        let started = Instant::now();
        Self { settings, ground, watch, tap, work, rows, kinds, deck, draw, due, twin: None, feeder, started }
    }

    /// Disturbs until enough disturbances met live work.
    pub async fn disturb(&mut self) {
        self.until("work is under way", |run| run.watch.successes_since(0) > 0 && run.watch.live().counts()).await;
        while self.rows.iter().filter(|r| r.live.counts()).count() < self.settings.disturbances {
            assert!(self.rows.len() < self.settings.disturbances * 2, "too many disturbances met no live work");
            let kind = self.deck.deal();
            let at = Instant::now();
            let seq = self.act(kind).await;
            self.kinds.insert(kind);
            let progress = PROGRESS[self.draw.between(0, PROGRESS.len() as u64) as usize];
            self.until(&format!("{progress} tasks go all the way after a disturbance"), |run| {
                run.watch.seq > seq && run.watch.successes_since(seq) >= progress && run.watch.live().counts()
            })
            .await;
            if let Some(row) = self.rows.last_mut() {
                row.progress = Some((progress, at.elapsed()));
            }
        }
        let missing: Vec<Kind> = Kind::all().into_iter().filter(|k| !self.kinds.contains(k)).collect();
        assert!(missing.is_empty() || self.settings.disturbances < Kind::all().len(), "never drawn: {missing:?}");
    }

    /// Undoes what is left to undo, takes no more plans, and waits until all have ended and every terminal is online.
    pub async fn settle(&mut self) {
        self.work.stop.store(true, Ordering::Relaxed);
        self.until_within("everything is undone", PROGRESS_WITHIN * 2, |run| {
            run.due.is_empty() && run.twin.is_none() && run.ground.all_serve()
        })
        .await;
        (&mut self.feeder).await.expect("the feeder does not panic");
        let over = |run: &Self| {
            run.watch.plans.values().all(|v| v.is_over())
                && run.work.plans().iter().all(|(id, _)| run.watch.plans.keys().any(|k| k.as_str() == id))
        };
        self.until_within("every plan has its final summary", END_WITHIN, over).await;
    }

    /// One look: what is due is undone, who ended is started again, what is new in the log is folded.
    async fn look(&mut self) {
        self.undo_due().await;
        self.ground.supervise();
        self.look_after_twin().await;
        self.watch.look().await;
        self.work.outstanding.store(self.outstanding(), Ordering::Relaxed);
    }

    /// Unended tasks; a plan that was taken and is not in view yet counts whole.
    fn outstanding(&self) -> usize {
        let plans = self.work.plans();
        let unseen = plans.iter().filter(|(id, _)| !self.watch.plans.keys().any(|k| k.as_str() == id)).count();
        self.watch.outstanding() + unseen * self.settings.stores
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) {
        self.until_within(what, PROGRESS_WITHIN, wanted).await;
    }

    async fn until_within(&mut self, what: &str, within: Duration, wanted: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + within;
        loop {
            self.look().await;
            if wanted(self) {
                return;
            }
            if Instant::now() >= deadline {
                panic!("not within {within:?}: {what}\n{}", self.told());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Where things stand, for a failure.
    fn told(&self) -> String {
        let plans: Vec<String> =
            self.watch.plans.iter().filter(|(_, v)| !v.is_over()).map(|(id, _)| self.watch.told(id)).collect();
        format!(
            "log #{}, {} succeeded, live {:?}, due {:?}, twin {:?}, deaths {:?}, last refusal {:?}\n{}",
            self.watch.seq,
            self.watch.succeeded(),
            self.watch.live(),
            self.due,
            self.twin,
            self.ground.deaths,
            self.work.last_error(),
            plans.join("\n")
        )
    }

    /// The seed, the table, and how much was done.
    pub fn report(&self) -> String {
        format!(
            "seed {}, {} terminals, {:.0} s, {} plans, {} tasks succeeded\n{}",
            self.settings.seed,
            self.settings.stores,
            self.started.elapsed().as_secs_f64(),
            self.watch.plans.len(),
            self.watch.succeeded(),
            table::text(&self.rows)
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.feeder.abort();
        if std::thread::panicking() {
            eprintln!("{}\nagain: just chaos {} {}", self.report(), self.settings.seed, self.settings.disturbances);
        }
    }
}

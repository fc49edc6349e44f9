//! One history: plans and terminals go through what chance has in store, then everything is healed, and the plans must come to their
//! end with an account that is true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use fanfold_domain::ids::PlanId;
use fanfold_domain::sets::row_changed_seq;
use fanfold_domain::task::Task;
use fanfold_ledger::open::Known;
use fanfold_ledger::port::{Log, Stored};
use fanfold_tests::world::handle::{Op, When};
use fanfold_tests::world::terminal::{Options, Step};
use fanfold_tests::world::{EPOCH_MS, Process, Role, World};
use futures::StreamExt;

use super::chance::Chance;
use super::coverage::{Counts, fault};
use super::misfortunes::{Undo, permille};
use super::script::{Pace, act_of, pace, submit};
use super::weather::Weather;
use super::{people, phase, safety, trace, weather};

/// Stores, one terminal each.
pub const STORES: usize = 20;
/// Events of a history, before everything is healed.
pub const EVENTS_MIN: u64 = 200;
/// Plans of a history in which too little happens.
const PLANS_MAX: usize = 8;
/// After everything is healed, tasks of terminals that are on end within this, in ms.
const TASKS_END_WITHIN_MS: i64 = 150_000;
/// After its expiry, and after everything is healed, a plan is over within this, in ms.
const OVER_WITHIN_MS: i64 = 45_000;
/// An update is written within this of the moment it is due, in ms.
const UPDATE_WITHIN_MS: i64 = 10_000;

/// What a terminal is in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes and goes.
    Ordinary,
    /// It is there again only after the deadline.
    PastDeadline,
    /// It is there again only when its plans are over.
    PastExpiry,
    /// It is never seen again.
    Gone,
}

impl Fate {
    pub fn is_ordinary(self) -> bool {
        self == Fate::Ordinary
    }
}

/// What a history came to.
pub struct Told {
    pub hash: String,
    pub events: u64,
    pub misfortunes: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub rows: Counts,
}

/// What people asked for and HQ confirmed: plan, event, sequence.
pub type Noted = (String, &'static str, u64);

/// A history under way.
pub struct Sim {
    pub seed: u64,
    pub w: World,
    pub second: Process,
    pub chance: Chance,
    pub weather: Arc<Mutex<Weather>>,
    pub stores: Vec<String>,
    pub fates: BTreeMap<String, Fate>,
    pub plans: Vec<String>,
    pub agenda: BTreeMap<(i64, u64), Undo>,
    pub planned: BTreeMap<(bool, Role), (Op, When)>,
    /// Steps at which terminals are to crash, and how often those had been passed.
    pub steps: BTreeMap<String, (Step, u64)>,
    pub misfortunes: u64,
    /// Terminals that lost power, disk or name.
    pub tainted: BTreeSet<String>,
    /// Terminals that said goodbye.
    pub leavers: BTreeSet<String>,
    /// What people asked for and HQ confirmed: plan, event, sequence.
    pub noted: Arc<Mutex<Vec<Noted>>>,
    /// What was seen that must never be.
    pub broken: Arc<Mutex<Vec<String>>>,
    agenda_number: u64,
    /// Everything is well and the plans end.
    pub ending: bool,
}

impl Sim {
    async fn begin(seed: u64, slow: bool, pace: &Pace) -> Self {
        let mut chance = Chance::of(seed, 1);
        let mut w = World::silent().await;
        trace::use_clock(&w.clock);
        trace::follow(&w.ledger).await;
        w.hq.in_flight = *chance.of_these(&[4, 12, 1_000]);
        w.hq.beat_ms = pace.beat_ms;
        let mut second = w.process().await;
        (second.in_flight, second.beat_ms) = (w.hq.in_flight, pace.beat_ms);
        fanfold_tests::world::ROLES.iter().for_each(|role| w.hq.start(*role));
        if chance.percent(50) {
            [Role::Dispatcher, Role::Convergence, Role::Projector].iter().for_each(|role| second.start(*role));
        }
        if chance.percent(40) {
            fault("hq: a second recorder and api");
            [Role::Recorder, Role::Api].iter().for_each(|role| second.start(*role));
        }
        let weather = Weather::new(seed, &w.clock);
        weather.lock().unwrap().permille = Some(permille(&mut chance));
        w.ledger.set_network(Some(weather::network(&weather)));
        let stores: Vec<String> = (0..STORES).map(|n| format!("S{n:02}")).collect();
        let mut sim = Self {
            seed,
            w,
            second,
            chance,
            weather,
            fates: stores.iter().map(|s| (s.clone(), Fate::Ordinary)).collect(),
            stores,
            plans: Vec::new(),
            agenda: BTreeMap::new(),
            planned: BTreeMap::new(),
            steps: BTreeMap::new(),
            misfortunes: 0,
            tainted: BTreeSet::new(),
            leavers: BTreeSet::new(),
            noted: Arc::default(),
            broken: Arc::default(),
            agenda_number: 0,
            ending: false,
        };
        sim.w.sleep(10).await;
        sim.terminals(slow, pace);
        sim
    }

    fn terminals(&mut self, slow: bool, pace: &Pace) {
        for (n, store) in self.stores.clone().iter().enumerate() {
            let (seed, number) = (self.seed, n as u64);
            let mut options = Options::new(move |task, attempt| act_of(seed, task, attempt));
            options.seed = seed;
            options.slots = self.chance.between(1, 4) as u32;
            options.sync_jitter_ms = pace.beat_ms / 4;
            options.watchdog = self.chance.percent(50);
            options.disk_ms = *self.chance.of_these(&[(0, 0), (0, 3), (1, 30)]);
            options.beat_ms = pace.beat_ms;
            options.sync_ms = if slow { 60_000 + 317 * number } else { 7_000 + 317 * number };
            self.w.terminal_with(store, options);
            let fate = match self.chance.below(100) {
                0..84 => Fate::Ordinary,
                84..90 => Fate::PastDeadline,
                90..95 => Fate::PastExpiry,
                _ => Fate::Gone,
            };
            self.fates.insert(store.clone(), fate);
            let begins_ms = self.chance.below(pace.pause_ms * 4);
            match fate {
                Fate::Ordinary if self.chance.percent(80) => continue,
                Fate::Ordinary => {
                    self.w.terminals.get_mut(store).unwrap().kill();
                    self.later(begins_ms, Undo::Start(store.clone()));
                }
                // Half of the others have been there and go with what is in their journals.
                _ if self.chance.percent(50) => self.later(begins_ms, Undo::Kill(store.clone())),
                _ => self.w.terminals.get_mut(store).unwrap().kill(),
            }
            if fate == Fate::PastDeadline {
                fault("terminal: offline past the deadline");
                let back_ms = pace.deadline_ms + self.chance.between(500, 20_000);
                self.later(back_ms.max(begins_ms + 1), Undo::Start(store.clone()));
            }
        }
    }

    /// Notes what ends a misfortune, `in_ms` from now.
    pub fn later(&mut self, in_ms: u64, undo: Undo) {
        self.agenda_number += 1;
        self.agenda.insert((self.w.clock.now_ms() + in_ms as i64, self.agenda_number), undo);
    }

    /// The whole log as it is, also while the server is away.
    pub async fn log(&self) -> Vec<Stored> {
        let Ok(last) = self.w.ledger.last_seq().await else { return Vec::new() };
        let Ok(messages) = self.w.ledger.read(vec![">".into()], 1, last).await else { return Vec::new() };
        messages.filter_map(|m| async { m.ok() }).collect().await
    }

    /// Events of the log; fences are none.
    async fn events(&self) -> u64 {
        self.log().await.iter().filter(|m| !m.subject.starts_with("ff.fence.")).count() as u64
    }

    /// Lets time pass until `at_ms`, and ends what is over meanwhile.
    async fn pass_until(&mut self, at_ms: i64) {
        loop {
            self.bury();
            let next = self.agenda.first_key_value().map(|(at, _)| *at).filter(|(due_ms, _)| *due_ms <= at_ms);
            let until_ms = next.map_or(at_ms, |(due_ms, _)| due_ms);
            let wait_ms = until_ms - self.w.clock.now_ms();
            if wait_ms > 0 {
                self.w.sleep(wait_ms.min(250) as u64).await;
                if wait_ms > 250 {
                    continue;
                }
            }
            match next.and_then(|key| self.agenda.remove(&key)) {
                Some(undo) => self.undo(undo).await,
                None => return,
            }
        }
    }

    /// Whether HQ counts the plan as over; a fold made after its end has never heard of it.
    fn is_over(&self, plan: &str) -> bool {
        self.w.hq.open.read().known(&PlanId::new(plan).unwrap()) != Known::Open
    }

    /// Tasks that have not ended although their terminal is on and ordinary.
    fn unfinished(&self) -> Vec<String> {
        let model = self.w.hq.open.read();
        let open = model.open().flat_map(|view| view.tasks.iter().enumerate().map(move |(i, task)| (view, i, task)));
        open.filter(|(_, _, task)| !task.state.is_final())
            .filter(|(view, i, _)| self.fates[view.plan.targets[*i].as_str()] == Fate::Ordinary)
            .map(|(view, i, task)| format!("{} {task:?}", view.task_id(i).unwrap()))
            .collect()
    }

    async fn look_until(&mut self, until_ms: i64, so: impl Fn(&Self) -> bool) -> bool {
        while !so(self) {
            if self.w.clock.now_ms() >= until_ms {
                return false;
            }
            self.pass_until(self.w.clock.now_ms() + 500).await;
            self.all_along();
            assert_eq!(self.overdue(), None);
        }
        true
    }

    /// A change that the summary ought to have by now.
    fn overdue(&self) -> Option<String> {
        let now_ms = self.w.clock.now_ms();
        let model = self.w.hq.open.read();
        model.open().filter(|v| v.plan.close.is_none()).find_map(|view| {
            let (last, _, at_ms) = view.plan.summary.as_ref()?;
            let pause_ms = (2_000_i64 << (last.this.revision - 1).min(16)).min(300_000);
            let late = |t: &Task| {
                row_changed_seq(&view.plan, t) > last.this.as_of_seq
                    && now_ms - t.updated_ms.max(at_ms + pause_ms) > UPDATE_WITHIN_MS
            };
            let task = view.tasks.iter().position(late).filter(|_| last.this.revision < 99)?;
            Some(format!("{} changed, and no update says so", view.task_id(task).unwrap()))
        })
    }

    /// What must hold at every moment.
    fn all_along(&self) {
        let before = phase::enter("SAFETY");
        self.w.hq.assert_alive();
        self.second.assert_alive();
        safety::account(self);
        let broken = self.broken.lock().unwrap();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        phase::enter(before);
    }
}

/// One history.
pub async fn history(seed: u64) -> Told {
    phase::enter("SETUP");
    let mut chance = Chance::of(seed, 3);
    let slow = seed % 64 == 7;
    let pace = pace(&mut chance, slow);
    let mut sim = Sim::begin(seed, slow, &pace).await;
    let begun_ms = sim.w.clock.now_ms();
    let mut submitting = Vec::new();
    let plans = chance.between(1, 4);
    let mut begins_ms: Vec<i64> = (1..plans).map(|_| chance.below(pace.chaos_ms as u64 / 2) as i64).collect();
    begins_ms.insert(0, 0);
    let away_ms = slow.then(|| begun_ms + 300_000);
    let (mut away_due, mut chaos_ms) = (away_ms, pace.chaos_ms);
    loop {
        let now_ms = sim.w.clock.now_ms();
        while let Some(n) = begins_ms.iter().position(|ms| begun_ms + ms <= now_ms) {
            begins_ms.remove(n);
            submitting.push(submit(&mut sim, &mut chance, &pace));
        }
        if away_due.is_some_and(|ms| ms <= now_ms) {
            away_due = None;
            sim.hq_is_away_for_an_hour();
        }
        if now_ms - begun_ms >= chaos_ms {
            if sim.events().await >= EVENTS_MIN || sim.plans.len() >= PLANS_MAX {
                break;
            }
            // Too little came of it, as when everything was cancelled at once: another plan, and more of the same.
            submitting.push(submit(&mut sim, &mut chance, &pace));
            chaos_ms += pace.chaos_ms / 2;
        }
        let away = slow && away_due.is_none() && now_ms < away_ms.unwrap() + 3_600_000;
        if !away {
            sim.misfortune().await;
        }
        let pause_ms = sim.chance.between(pace.pause_ms / 4, pace.pause_ms * 2);
        sim.pass_until(sim.w.clock.now_ms() + pause_ms as i64).await;
        sim.all_along();
    }
    sim.heal().await;
    live(&mut sim, submitting).await;
    after_the_end(&mut sim).await;
    let rows = safety::everything(&sim).await;
    phase::enter("HASH");
    let events = sim.events().await;
    let hash = sim.w.log_hash().await;
    sim.w.ledger.set_network(None);
    Told { hash, events, misfortunes: sim.misfortunes, faults: super::coverage::take(), rows }
}

/// Everything is well: progress is required.
async fn live(sim: &mut Sim, submitting: Vec<tokio::task::JoinHandle<()>>) {
    phase::enter("LIVENESS");
    let healed_ms = sim.w.clock.now_ms();
    let sealed = sim.look_until(healed_ms + 30_000, |_| submitting.iter().all(tokio::task::JoinHandle::is_finished)).await;
    assert!(sealed, "30 s after everything is well a plan that was submitted all the time is not sealed");
    // Who had to wait for a twin to go, or was taken for one, is looked after when HQ has said so.
    for _ in 0..3 {
        people::looks_after_twins(sim).await;
        sim.pass_until(sim.w.clock.now_ms() + 3_000).await;
    }
    let ended = sim.look_until(healed_ms + TASKS_END_WITHIN_MS, |sim| sim.unfinished().is_empty()).await;
    let left = sim.unfinished();
    assert!(
        ended,
        "{TASKS_END_WITHIN_MS} ms after everything is well, {} tasks have not ended:\n{}",
        left.len(),
        left[..left.len().min(3)].join("\n")
    );
    // Nothing new is to be seen until the plans expire: most histories don't wait for it.
    let closes = sim.chance.percent(90);
    sim.the_projector_crashes_at_the_end();
    for plan in sim.plans.clone() {
        if closes && !sim.is_over(&plan) {
            people::closes(sim, &plan).await;
        }
        let expires_ms = sim.w.view(&plan).await.plan.expires_ms().filter(|_| !closes).unwrap_or(sim.w.clock.now_ms());
        let until_ms = expires_ms.max(healed_ms) + OVER_WITHIN_MS;
        let over = sim.look_until(until_ms, |sim| sim.is_over(&plan)).await;
        assert!(over, "{plan} is not over at {} ms, {OVER_WITHIN_MS} ms after its expiry", until_ms - EPOCH_MS);
    }
}

/// Who was away until after expiry comes back with what it has.
async fn after_the_end(sim: &mut Sim) {
    for (store, fate) in sim.fates.clone() {
        match fate {
            Fate::PastExpiry => {
                fault("terminal: offline past expiry");
                sim.undo(Undo::Start(store)).await;
            }
            Fate::Gone => fault("terminal: offline for ever"),
            Fate::Ordinary | Fate::PastDeadline => {}
        }
    }
    sim.pass_until(sim.w.clock.now_ms() + 10_000).await;
    // A crash that is still to come would come while everything is judged.
    sim.heal().await;
    sim.all_along();
}

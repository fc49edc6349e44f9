//! What goes wrong, drawn from the seed: one misfortune at a time, each with the moment at which it is over.

use fanfold_ledger::port::Log;
use fanfold_tests::world::handle::{Fault, Faults, Op, When};
use fanfold_tests::world::{Process, ROLES, Role};
use fanfold_wire::subjects;

use super::chance::Chance;
use super::coverage::{CRASHES, fault};
use super::history::Sim;
use super::people;

/// What ends a misfortune.
#[derive(Debug, Clone)]
pub enum Undo {
    /// A service starts again; whether it is the second process's.
    Restart(bool, Role),
    /// A frozen service goes on; who led when it froze.
    Thaw(bool, Role, Option<String>),
    /// The fold follows the log again.
    ThawTail(bool),
    /// The server is there again.
    ServerUp,
    /// The log takes more again.
    Room,
    /// A terminal is switched on.
    Start(String),
    /// A terminal is switched off.
    Kill(String),
    /// A terminal's disk takes more again.
    DiskRoom(String),
    /// A terminal's line is mended.
    Mend(String),
    /// Only one process is left under a terminal's id.
    EndTwins(String),
    /// A person says that whoever is heard next is the terminal.
    Replace(String),
    /// All of HQ is there again, in a new process with a fold of its own.
    HqBack,
}

/// Roles whose loss of the lead is noticed in the log.
const LED: [Role; 3] = [Role::Dispatcher, Role::Convergence, Role::Projector];

impl Sim {
    fn process(&mut self, second: bool) -> &mut Process {
        if second { &mut self.second } else { &mut self.w.hq }
    }

    /// The faults of a running service of either process.
    fn faults(&self, second: bool, role: Role) -> Option<&Faults> {
        let process = if second { &self.second } else { &self.w.hq };
        process.roles().any(|r| r == role).then(|| process.faults(role))
    }

    /// A process that runs the role.
    fn one_running(&mut self, role: Role) -> Option<bool> {
        let which = self.chance.percent(35);
        [which, !which].into_iter().find(|second| self.faults(*second, role).is_some())
    }

    /// One misfortune.
    pub async fn misfortune(&mut self) {
        self.misfortunes += 1;
        match self.chance.below(100) {
            0..18 => self.an_append_fails(),
            18..36 => self.a_service_crashes(),
            36..40 => self.a_service_is_killed(),
            40..48 => self.somebody_freezes().await,
            48..54 => self.the_view_is_stale(),
            54..57 => self.the_server_is_away(),
            57..59 => {
                fault("server: reconnect");
                self.w.ledger.reconnect();
            }
            59..61 => self.all_of_hq_dies(),
            61..80 => self.a_terminal_suffers().await,
            80..84 => super::confused::writes(self).await,
            84..93 => self.somebody_lies().await,
            _ => people::asks(self),
        }
    }

    fn an_append_fails(&mut self) {
        let role = *self.chance.of_these(&[Role::Recorder, Role::Dispatcher, Role::Dispatcher, Role::Convergence, Role::Api]);
        let Some(second) = self.one_running(role) else { return };
        let what = match self.chance.below(9) {
            0..3 => ("append: answer lost", Fault::AckLost),
            3 | 4 => ("append: nothing stored", Fault::Away),
            5 => ("append: log full", Fault::Full),
            6 | 7 => ("append: one member refused", Fault::Member(self.chance.next())),
            _ => {
                fault("append: log full for a while");
                self.w.ledger.set_full(true);
                let ms = self.chance.between(100, 2_500);
                return self.later(ms, Undo::Room);
            }
        };
        fault(what.0);
        let goes_well = self.chance.below(3);
        let meets = (0..goes_well).map(|_| None).chain([Some(what.1)]);
        self.faults(second, role).unwrap().next_appends(meets);
    }

    /// The crash itself comes when the service gets there; it is counted then.
    fn a_service_crashes(&mut self) {
        let (role, op, when, _) = *self.chance.of_these(CRASHES);
        let Some(second) = self.one_running(role) else { return };
        let after = self.chance.below(3) as u32;
        self.planned.insert((second, role), (op, when));
        self.faults(second, role).unwrap().crash_at(op, when, after);
        if role == Role::Api {
            people::asks(self);
        }
    }

    /// What ends while the projector crashes is written once by nobody else: it is made to happen in half of the histories.
    pub fn the_projector_crashes_at_the_end(&mut self) {
        self.ending = true;
        for second in [false, true] {
            let after = self.chance.below(6) as u32;
            if self.chance.percent(50)
                && let Some(faults) = self.faults(second, Role::Projector)
            {
                let (op, when) = *self.chance.clone().of_these(&[(Op::Checkpoint, When::After), (Op::Checkpoint, When::Before)]);
                faults.crash_at(op, when, after);
                self.planned.insert((second, Role::Projector), (op, when));
            }
        }
    }

    /// Buries the services that have met their crash, and has them started again a while later.
    pub fn bury(&mut self) {
        for second in [false, true] {
            for role in self.process(second).crashed() {
                let planned = self.planned.remove(&(second, role));
                let name = CRASHES.iter().find(|c| c.0 == role && Some((c.1, c.2)) == planned).map(|c| c.3);
                if let Some(name) = name {
                    fault(name);
                }
                self.process(second).stop(role);
                let ms = self.chance.below(3_000);
                if self.ending && !second && ms < 1_500 {
                    // With it the whole process: what its fold still knew of a plan that has ended is gone.
                    ROLES.iter().for_each(|role| self.w.hq.stop(*role));
                    self.later(ms, Undo::HqBack);
                } else {
                    self.later(ms, Undo::Restart(second, role));
                }
            }
        }
        self.bury_terminals();
    }

    fn a_service_is_killed(&mut self) {
        let role = *self.chance.of_these(&ROLES);
        let Some(second) = self.one_running(role) else { return };
        fault("hq: a service killed");
        self.process(second).stop(role);
        let ms = self.chance.below(4_000);
        self.later(ms, Undo::Restart(second, role));
    }

    async fn somebody_freezes(&mut self) {
        let role = *self.chance.of_these(&LED);
        let Some(second) = self.one_running(role) else { return };
        let leader = self.leader(role).await;
        self.faults(second, role).unwrap().freeze(true);
        let ms = self.chance.between(500, 5_000);
        self.later(ms, Undo::Thaw(second, role, leader));
    }

    /// Who led the role last, or, of the projector, whose turn it was.
    async fn leader(&self, role: Role) -> Option<String> {
        let role = match role {
            Role::Dispatcher => "dispatcher",
            Role::Convergence => "convergence",
            _ => return None,
        };
        let last = self.w.ledger.last_under(&subjects::fence(role)).await.ok().flatten()?;
        last.id.split('/').nth(1).map(str::to_owned)
    }

    fn the_view_is_stale(&mut self) {
        let second = self.chance.percent(35);
        fault("hq: the fold's tail frozen (stale view)");
        self.process(second).tail.freeze(true);
        let ms = self.chance.between(300, 5_000);
        self.later(ms, Undo::ThawTail(second));
    }

    fn the_server_is_away(&mut self) {
        fault("server: away");
        self.w.ledger.set_down(true);
        let ms = self.chance.between(50, 2_500);
        self.later(ms, Undo::ServerUp);
    }

    fn all_of_hq_dies(&mut self) {
        fault("hq: everything killed, a new fold");
        ROLES.iter().for_each(|role| self.w.hq.stop(*role));
        let ms = self.chance.below(3_000);
        self.later(ms, Undo::HqBack);
    }

    /// All of HQ, both processes, is away for an hour.
    pub fn hq_is_away_for_an_hour(&mut self) {
        fault("hq: away for an hour");
        for role in ROLES {
            self.w.hq.stop(role);
            if self.second.roles().any(|r| r == role) {
                self.second.stop(role);
                self.later(3_600_000, Undo::Restart(true, role));
            }
        }
        self.later(3_600_000, Undo::HqBack);
    }

    /// Ends a misfortune.
    pub async fn undo(&mut self, undo: Undo) {
        super::trace::say("heals", || format!("{undo:?}"));
        match undo {
            Undo::Restart(second, role) => {
                if self.faults(second, role).is_none() {
                    self.planned.remove(&(second, role));
                    self.process(second).start(role);
                }
            }
            Undo::Thaw(second, role, leader) => {
                let overtaken = match role {
                    Role::Projector => self.faults(!second, role).is_some(),
                    _ => self.leader(role).await.is_some_and(|now| leader.is_some_and(|then| then != now)),
                };
                if let Some(faults) = self.faults(second, role) {
                    faults.freeze(false);
                    if overtaken {
                        fault(match role {
                            Role::Dispatcher => "hq: dispatcher frozen past its lease, overtaken, thawed",
                            Role::Convergence => "hq: convergence frozen past its lease, overtaken, thawed",
                            _ => "hq: projector frozen past its lease, overtaken, thawed",
                        });
                    }
                }
            }
            Undo::ThawTail(second) => self.process(second).tail.freeze(false),
            Undo::ServerUp => self.w.ledger.set_down(false),
            Undo::Room => self.w.ledger.set_full(false),
            Undo::Start(store) => self.switch_on(&store),
            Undo::Kill(store) => self.terminal(&store).kill(),
            Undo::DiskRoom(store) => self.terminal(&store).journal_full(false),
            Undo::Mend(store) => self.terminal(&store).set_linked(true),
            Undo::EndTwins(store) => self.terminal(&store).kill_twins(),
            Undo::Replace(store) => people::replaces(self, &store),
            Undo::HqBack => self.hq_starts_anew().await,
        }
    }

    /// A new process with a fold of its own; the server may be away, then it waits for it.
    async fn hq_starts_anew(&mut self) {
        self.w.ledger.set_down(false);
        let (in_flight, beat_ms) = (self.w.hq.in_flight, self.w.hq.beat_ms);
        self.planned.retain(|(second, _), _| *second);
        self.w.hq = self.w.process().await;
        (self.w.hq.in_flight, self.w.hq.beat_ms) = (in_flight, beat_ms);
        ROLES.iter().for_each(|role| self.w.hq.start(*role));
    }

    async fn somebody_lies(&mut self) {
        super::lies::tell(self).await;
    }

    /// Everything is well from now on.
    pub async fn heal(&mut self) {
        super::trace::say("heals", || "everything".into());
        self.weather.lock().unwrap().permille = None;
        self.w.ledger.set_full(false);
        self.w.ledger.set_down(false);
        let undone: Vec<Undo> = std::mem::take(&mut self.agenda).into_values().collect();
        for undo in undone {
            if !matches!(undo, Undo::Kill(_)) {
                self.undo(undo).await;
            }
        }
        self.bury();
        self.planned.clear();
        for second in [false, true] {
            let process = self.process(second);
            process.tail.heal();
            let roles: Vec<Role> = process.roles().collect();
            roles.iter().for_each(|role| process.faults(*role).heal());
        }
        for undo in std::mem::take(&mut self.agenda).into_values() {
            self.undo(undo).await;
        }
        for store in self.stores.clone() {
            self.terminal(&store).clear_steps();
            self.terminal(&store).kill_twins();
            if self.fates[&store].is_ordinary() {
                self.switch_on(&store);
            }
        }
    }
}

/// How much of the traffic suffers in this history: permille late, twice, lost.
pub fn permille(chance: &mut Chance) -> (u64, u64, u64) {
    *chance.of_these(&[(20, 20, 5), (60, 60, 15), (150, 100, 30)])
}

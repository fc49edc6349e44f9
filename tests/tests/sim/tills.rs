//! What happens to terminals: power, disks, lines, clocks, and second processes under the same name.

use fanfold_tests::world::terminal::{STEPS, SimTerminal, TwinDisk};

use super::coverage::{crash_of, fault};
use super::history::Sim;
use super::misfortunes::Undo;

impl Sim {
    pub fn terminal(&mut self, store: &str) -> &mut SimTerminal {
        self.w.terminals.get_mut(store).unwrap()
    }

    pub fn switch_on(&mut self, store: &str) {
        let terminal = self.terminal(store);
        if !terminal.is_on() {
            terminal.start();
        }
    }

    /// One terminal's misfortune.
    pub async fn a_terminal_suffers(&mut self) {
        let store = self.chance.of_these(&self.stores).clone();
        if !self.fates[&store].is_ordinary() {
            return;
        }
        let back_ms = self.chance.below(9_000);
        let what = self.chance.below(100);
        if !(54..60).contains(&what) && !(76..90).contains(&what) {
            self.tainted.insert(store.clone());
        }
        match what {
            0..14 => {
                fault("terminal: killed");
                self.terminal(&store).kill();
                self.later(back_ms, Undo::Start(store));
            }
            14..54 => self.a_step_fails(&store),
            54..60 => {
                if self.terminal(&store).is_on() {
                    fault("terminal: goodbye");
                    self.leavers.insert(store.clone());
                    self.terminal(&store).goodbye().await;
                }
                self.later(back_ms, Undo::Start(store));
            }
            60..68 => {
                fault("terminal: journal lost");
                self.terminal(&store).kill();
                self.terminal(&store).lose_journal();
                self.later(back_ms, Undo::Start(store));
            }
            68..76 => {
                fault("terminal: journal full");
                self.terminal(&store).journal_full(true);
                self.later(back_ms, Undo::DiskRoom(store));
            }
            76..84 => {
                fault("terminal: line cut");
                self.terminal(&store).set_linked(false);
                self.later(back_ms, Undo::Mend(store));
            }
            84..90 => {
                let hours = self.chance.between(1, 13) as i64 * if self.chance.percent(50) { 1 } else { -1 };
                fault("terminal: clock off by hours");
                self.terminal(&store).clock_off_ms(hours * 3_600_000);
            }
            _ => self.a_twin_comes(&store, back_ms),
        }
    }

    fn a_step_fails(&mut self, store: &str) {
        let step = *self.chance.of_these(&STEPS);
        if self.chance.percent(12) {
            fault("terminal: held up at a step");
            let ms = self.chance.between(500, 6_000);
            return self.terminal(store).pause_at(step, ms);
        }
        let passed = self.terminal(store).passed(step);
        self.terminal(store).crash_at(step);
        self.steps.insert(store.to_owned(), (step, passed));
    }

    fn a_twin_comes(&mut self, store: &str, goes_ms: u64) {
        let disk = if self.chance.percent(50) { TwinDisk::Own } else { TwinDisk::Copied };
        fault(match disk {
            TwinDisk::Own => "terminal: twin with a disk of its own",
            TwinDisk::Copied => "terminal: twin with a copied disk",
        });
        self.terminal(store).twin(disk);
        self.later(goes_ms, Undo::EndTwins(store.to_owned()));
        if self.chance.percent(60) {
            let ms = self.chance.below(2 * goes_ms + 1);
            self.later(ms, Undo::Replace(store.to_owned()));
        }
    }

    /// Counts the terminals that have crashed where they were to, and has them started again a while later.
    pub fn bury_terminals(&mut self) {
        for (store, (step, before)) in self.steps.clone() {
            if self.terminal(&store).passed(step) > before {
                fault(crash_of(step));
                self.steps.remove(&store);
                let ms = self.chance.below(6_000);
                self.later(ms, Undo::Start(store));
            }
        }
    }
}

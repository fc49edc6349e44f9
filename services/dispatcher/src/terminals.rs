//! What is known of the terminals: who was heard of when, with which journal and boot, holding what. Pure: time is an argument.

use std::collections::{BTreeSet, HashMap};

use fanfold_domain::dispatch::{BEATS_MISSING_OFFLINE, Hq, Presence};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::{Attempt, Journal};
use fanfold_wire::record::TerminalRecord;
use fanfold_wire::terminal::{AttemptRef, Beat, Identity};

mod again;
mod journals;
mod known;
mod one;
mod silence;

use known::{Alike, Known};
pub(crate) use one::Terminal;

/// Attempts kept of one listing.
const LISTED_MAX: usize = 1_024;

/// What hearing from a terminal came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing new.
    Same,
    /// Something HQ decides by changed: online, boot, slots, a listing.
    Changed,
    /// It must wait until its predecessor is surely gone.
    MustWait(i64),
    /// Another process uses the id.
    InUse,
    /// Too many terminals are known already.
    Full,
}

/// All terminals.
#[derive(Debug, Default)]
pub(crate) struct Terminals {
    pub(crate) known: HashMap<TerminalId, Box<Terminal>>,
    alike: Alike,
    /// Whose record in the registry is to be written.
    pub(crate) dirty: BTreeSet<TerminalId>,
    /// Of whom more reports were counted and nothing else: their records may be written later.
    pub(crate) counted: BTreeSet<TerminalId>,
    /// Heard again though what they say does not count: their tasks are no longer offline ones.
    pub(crate) heard_again: BTreeSet<TerminalId>,
    max: usize,
    pub(crate) turned_away: u64,
    /// Nobody falls silent before.
    silence: silence::Bound,
    /// Nobody's wait for another one to be gone is over before.
    waits: silence::Bound,
}

impl Terminals {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Loads what an earlier dispatcher knew: whoever was online counts as online until three beats are missing.
    pub(crate) fn restore(&mut self, record: TerminalRecord, now_ms: i64) {
        let identity = Identity {
            protocol_version: fanfold_domain::event::PROTOCOL_VERSION,
            version: record.version,
            journal: record.journal,
            boot: record.boot,
            slots: record.slots.max(1),
            beat_interval_ms: record.beat_interval_ms,
            labels: record.labels,
            types: record.types,
        };
        let mut terminal = Terminal::new(Known::new(&identity, &mut self.alike), now_ms);
        terminal.heard = !identity.boot.is_empty();
        terminal.online = record.online;
        if !record.online {
            terminal.last_seen_ms = record.last_seen_ms.unwrap_or(0);
        }
        terminal.id_in_use = record.id_in_use;
        terminal.allowed_journal = record.allowed_journal.map(|journal| Box::new(Journal::new(&journal)));
        terminal.replace_with_next = record.replace_with_next;
        terminal.heard &= !record.replace_with_next;
        terminal.journal_unavailable = record.journal_unavailable;
        terminal.rival = record.rival_journal.map(|journal| Box::new(Journal::new(&journal)));
        terminal.limited = record.messages_limited;
        terminal.unreadable = record.messages_unreadable;
        terminal.reports = record.reports;
        self.silence.not_after(i64::MIN);
        self.known.insert(record.id, Box::new(terminal));
    }

    fn hear(&mut self, id: &TerminalId, identity: &Identity, goodbye: bool, now_ms: i64, default_ms: i64) -> Heard {
        let Some(terminal) = self.known.get_mut(id) else {
            if self.known.len() >= self.max {
                self.turned_away += 1;
                return Heard::Full;
            }
            let mut terminal = Terminal::new(Known::new(identity, &mut self.alike), now_ms);
            terminal.online = !goodbye;
            terminal.gone = goodbye;
            self.silence.not_after(terminal.silent_ms(default_ms));
            self.known.insert(id.clone(), Box::new(terminal));
            self.dirty.insert(id.clone());
            return Heard::Changed;
        };
        let before = (terminal.id_in_use, terminal.rival.clone());
        let mark = terminal.beat_mark.take();
        let mut heard = terminal.identify(identity, goodbye, (now_ms, default_ms), &mut self.alike);
        if let Heard::MustWait(at_ms) = heard {
            self.waits.not_after(at_ms);
        }
        if matches!(heard, Heard::Same | Heard::Changed) {
            let changed = !terminal.online || terminal.identity.slots != identity.slots || terminal.gone || !terminal.heard;
            terminal.heard = true;
            terminal.last_seen_ms = now_ms;
            terminal.boot_seen_ms = now_ms;
            if changed || !terminal.identity.is(identity) {
                terminal.identity = Known::new(identity, &mut self.alike);
                heard = Heard::Changed;
            }
            if heard == Heard::Same {
                terminal.beat_mark = mark;
            }
            terminal.online = true;
            terminal.gone = false;
            self.silence.not_after(terminal.silent_ms(default_ms));
        } else if heard == Heard::InUse && terminal.id_in_use && !goodbye {
            // Nobody is given work under this id, but it is not offline: two are there.
            terminal.last_seen_ms = now_ms;
            if terminal.identity.boot == *identity.boot {
                terminal.boot_seen_ms = now_ms;
            }
            if !std::mem::replace(&mut terminal.online, true) {
                terminal.gone = false;
                self.silence.not_after(terminal.silent_ms(default_ms));
                self.heard_again.insert(id.clone());
                self.dirty.insert(id.clone());
            }
        }
        if heard == Heard::Changed || (terminal.id_in_use, &terminal.rival) != (before.0, &before.1) {
            self.dirty.insert(id.clone());
        }
        heard
    }

    /// A beat.
    pub(crate) fn beat(&mut self, id: &TerminalId, beat: Beat, now_ms: i64, default_ms: i64) -> Heard {
        let identity = beat.identity.bounded();
        let mut heard = self.hear(id, &identity, beat.goodbye, now_ms, default_ms);
        if matches!(heard, Heard::Same | Heard::Changed)
            && let Some(terminal) = self.known.get_mut(id)
        {
            let mut listed = beat.holds;
            listed.truncate(LISTED_MAX);
            if terminal.journal_unavailable != beat.journal_unavailable {
                heard = Heard::Changed;
                self.dirty.insert(id.clone());
            }
            terminal.journal_unavailable = beat.journal_unavailable;
            terminal.listed = listed;
            if beat.goodbye {
                heard = Heard::Changed;
                match terminal.successor.take() {
                    // Whoever waited for this one to be gone waits no longer.
                    Some(successor) => terminal.become_known(successor.identity),
                    None => {
                        terminal.gone = true;
                        terminal.online = false;
                    }
                }
                self.dirty.insert(id.clone());
            }
        } else if let Some(terminal) = self.known.get_mut(id)
            && terminal.id_in_use
            && terminal.identity.boot == *identity.boot
        {
            // What it was given before the other came is still in its hands.
            terminal.listed = beat.holds;
            terminal.listed.truncate(LISTED_MAX);
        }
        heard
    }

    /// A sync; `listed` is what it holds, ended or not.
    pub(crate) fn sync(
        &mut self,
        id: &TerminalId,
        identity: &Identity,
        mut listed: Vec<AttemptRef>,
        known_seq: u64,
        at: (i64, i64),
    ) -> Heard {
        let (now_ms, default_ms) = at;
        let heard = self.hear(id, &identity.clone().bounded(), false, now_ms, default_ms);
        if matches!(heard, Heard::Same | Heard::Changed)
            && let Some(terminal) = self.known.get_mut(id)
        {
            terminal.synced_ms = Some(now_ms);
            // Of a listing that is cut short nothing is concluded from what it lacks.
            let cut = listed.len() > LISTED_MAX;
            listed.truncate(LISTED_MAX);
            terminal.sync_seq = if cut { 0 } else { known_seq };
            terminal.sync_listed = listed.clone();
            if terminal.listed != listed {
                terminal.beat_mark = None;
            }
            terminal.listed = listed;
        }
        heard
    }

    /// Counts a message that was not looked at because its sender sends too many.
    pub(crate) fn count_limited(&mut self, id: &TerminalId) {
        if let Some(terminal) = self.known.get_mut(id) {
            terminal.limited += 1;
            self.dirty.insert(id.clone());
        } else {
            self.turned_away += 1;
        }
    }

    /// Counts a message that could not be read.
    pub(crate) fn count_unreadable(&mut self, id: &TerminalId) {
        if let Some(terminal) = self.known.get_mut(id) {
            terminal.unreadable += 1;
            self.dirty.insert(id.clone());
        } else {
            self.turned_away += 1;
        }
    }

    /// Something was handed out to that boot: whoever comes after it waits from now on.
    pub(crate) fn dispatched(&mut self, id: &TerminalId, boot: &str, now_ms: i64) {
        if let Some(terminal) = self.known.get_mut(id).filter(|t| t.identity.boot == *boot) {
            terminal.handed_ms = now_ms;
        }
    }

    /// The answer to the latest sync hands these out: that the sync did not list them says nothing, the next one does.
    pub(crate) fn handed_out(&mut self, id: &TerminalId, attempts: impl Iterator<Item = AttemptRef>) {
        if let Some(terminal) = self.known.get_mut(id) {
            terminal.sync_listed.extend(attempts);
        }
    }

    /// Only this journal may act under the id from now on; `None`: the one heard next.
    pub(crate) fn replace(&mut self, id: &TerminalId, journal: Option<String>) -> Option<String> {
        let terminal = self.known.get_mut(id)?;
        terminal.id_in_use = false;
        terminal.previous_boot = None;
        terminal.successor = None;
        // Not "gone": it is not offline, only nobody has been heard under the new rule yet.
        terminal.heard = false;
        terminal.replace_with_next = journal.is_none();
        terminal.allowed_journal = journal.as_deref().map(|journal| Box::new(Journal::new(journal)));
        terminal.rival = None;
        self.dirty.insert(id.clone());
        journal.or(Some(String::new()))
    }

    /// What the policy is told about a terminal and, where there is one, the attempt it should have.
    pub(crate) fn presence(&self, id: &TerminalId, task: &TaskId, attempt: Option<&Attempt>, hq: &Hq) -> Presence {
        let Some(t) = self.known.get(id) else { return Presence::default() };
        let names =
            |listed: &[AttemptRef]| attempt.is_some_and(|a| listed.iter().any(|l| l.attempt == a.number && l.task_id == *task));
        let synced = t.synced_ms.is_some_and(|ms| ms >= hq.connected_ms);
        // Of a doubled id others are heard too: only the known boot's own word keeps its listing young.
        let silence_ms = BEATS_MISSING_OFFLINE.saturating_mul(t.interval_ms(hq.beat_ms));
        let young = !t.id_in_use || hq.now_ms.saturating_sub(t.boot_seen_ms) < silence_ms;
        let lists_attempt = young && names(&t.listed);
        let forgot = synced
            && !lists_attempt
            && attempt.is_some_and(|a| a.started_ms().is_some() && a.dispatched_seq <= t.sync_seq && !names(&t.sync_listed));
        Presence {
            last_seen_ms: (t.last_seen_ms > 0).then_some(t.last_seen_ms),
            gone: t.gone,
            beat_ms: i64::try_from(t.identity.beat_interval_ms).unwrap_or(0),
            usable: t.heard && !t.id_in_use && t.successor.is_none() && !t.journal_unavailable && !t.gone,
            // A wait that is over ends with the next sweep, which looks at the tasks again; nobody polls for it.
            usable_at_ms: t.successor.as_ref().map(|s| s.usable_at_ms).filter(|at_ms| *at_ms > hq.now_ms),
            lists_attempt,
            same_journal: attempt.is_some_and(|a| a.journal == t.identity.journal),
            forgot_attempt: forgot,
            synced,
        }
    }

    /// Lets a successor whose wait is over take its place; says whether it did.
    pub(crate) fn promote(&mut self, id: &TerminalId, now_ms: i64) -> bool {
        let Some(terminal) = self.known.get_mut(id) else { return false };
        match terminal.successor.take() {
            Some(successor) if now_ms >= successor.usable_at_ms && !terminal.id_in_use => {
                terminal.become_known(successor.identity);
                terminal.last_seen_ms = now_ms;
                terminal.online = true;
                self.silence.not_after(now_ms);
                self.dirty.insert(id.clone());
                true
            }
            other => {
                terminal.successor = other;
                false
            }
        }
    }

    /// The registry's record of a terminal.
    pub(crate) fn record(&self, id: &TerminalId) -> Option<TerminalRecord> {
        let t = self.known.get(id)?;
        Some(TerminalRecord {
            id: id.clone(),
            online: t.online,
            last_seen_ms: (t.last_seen_ms > 0).then_some(t.last_seen_ms),
            version: t.identity.about.version.clone(),
            slots: t.identity.slots,
            beat_interval_ms: t.identity.beat_interval_ms,
            journal: t.identity.journal.to_string(),
            boot: t.identity.boot.to_string(),
            allowed_journal: t.allowed_journal.as_ref().map(ToString::to_string),
            id_in_use: t.id_in_use,
            replace_with_next: t.replace_with_next,
            rival_journal: t.rival.as_ref().map(ToString::to_string),
            journal_unavailable: t.journal_unavailable,
            messages_limited: t.limited,
            messages_unreadable: t.unreadable,
            labels: t.identity.about.labels.clone(),
            types: t.identity.about.types.clone(),
            reports: t.reports.clone(),
        })
    }
}

#[cfg(test)]
mod tests;

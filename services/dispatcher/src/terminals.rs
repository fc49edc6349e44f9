//! What is known of the terminals: who was heard of when, with which journal and boot, holding what. Pure: time is an argument.

use std::collections::HashMap;

use fanfold_domain::dispatch::{BEATS_MISSING_OFFLINE, Hq, Presence};
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::Attempt;
use fanfold_wire::record::{ReportCounts, TerminalRecord};
use fanfold_wire::terminal::{AttemptRef, Beat, Identity};

/// Attempts kept of one listing.
const LISTED_MAX: usize = 1_024;

/// Another boot of the same id, heard of before the known one was surely gone.
#[derive(Debug, Clone)]
struct Successor {
    identity: Identity,
    usable_at_ms: i64,
}

/// One terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) identity: Identity,
    pub(crate) last_seen_ms: i64,
    heard: bool,
    gone: bool,
    successor: Option<Successor>,
    previous_boot: Option<String>,
    pub(crate) id_in_use: bool,
    pub(crate) allowed_journal: Option<String>,
    replace_with_next: bool,
    journal_unavailable: bool,
    listed: Vec<AttemptRef>,
    pub(crate) synced_ms: Option<i64>,
    /// Of the last sync: highest sequence the terminal knew, and that it came from `identity.journal`.
    sync_seq: u64,
    sync_listed: Vec<AttemptRef>,
    pub(crate) online: bool,
    pub(crate) reports: ReportCounts,
}

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
    pub(crate) known: HashMap<TerminalId, Terminal>,
    pub(crate) dirty: Vec<TerminalId>,
    max: usize,
    pub(crate) turned_away: u64,
}

impl Terminal {
    fn new(identity: Identity, now_ms: i64) -> Self {
        Self {
            identity,
            last_seen_ms: now_ms,
            heard: true,
            gone: false,
            successor: None,
            previous_boot: None,
            id_in_use: false,
            allowed_journal: None,
            replace_with_next: false,
            journal_unavailable: false,
            listed: Vec::new(),
            synced_ms: None,
            sync_seq: 0,
            sync_listed: Vec::new(),
            online: false,
            reports: ReportCounts::default(),
        }
    }

    fn interval_ms(&self, default_ms: i64) -> i64 {
        i64::try_from(self.identity.beat_interval_ms).ok().filter(|ms| *ms > 0).unwrap_or(default_ms)
    }

    /// When its predecessor's silence is long enough: one interval and its jitter.
    fn silent_at_ms(&self, default_ms: i64) -> i64 {
        self.last_seen_ms + self.interval_ms(default_ms) * 3 / 2
    }

    fn become_known(&mut self, identity: Identity) {
        self.previous_boot = Some(std::mem::take(&mut self.identity.boot));
        if self.identity.journal != identity.journal {
            self.sync_seq = 0;
            self.sync_listed = Vec::new();
        }
        self.identity = identity;
        self.successor = None;
        self.gone = false;
        self.listed = Vec::new();
        self.synced_ms = None;
    }

    /// Judges who is speaking; only `Same` and `Changed` let the message count as this terminal's.
    fn identify(&mut self, identity: &Identity, goodbye: bool, now_ms: i64, default_ms: i64) -> Heard {
        if self.replace_with_next && !goodbye {
            self.replace_with_next = false;
            self.allowed_journal = Some(identity.journal.clone());
        }
        if let Some(allowed) = &self.allowed_journal
            && *allowed != identity.journal
        {
            return Heard::InUse;
        }
        if identity.boot == self.identity.boot {
            if !goodbye && self.successor.take().is_some() {
                // Both beat within one interval: two processes under one id.
                self.id_in_use = true;
            }
            return if self.id_in_use { Heard::InUse } else { Heard::Same };
        }
        if goodbye {
            if self.successor.as_ref().is_some_and(|s| s.identity.boot == identity.boot) {
                self.successor = None;
            }
            return Heard::InUse;
        }
        if self.previous_boot.as_ref() == Some(&identity.boot) {
            self.id_in_use = true;
        }
        if self.id_in_use {
            return Heard::InUse;
        }
        if self.gone || !self.heard || now_ms >= self.silent_at_ms(default_ms) {
            self.become_known(identity.clone());
            return Heard::Changed;
        }
        let usable_at_ms = self.silent_at_ms(default_ms);
        self.successor = Some(Successor { identity: identity.clone(), usable_at_ms });
        Heard::MustWait(usable_at_ms)
    }
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
        let mut terminal = Terminal::new(identity, now_ms);
        terminal.heard = !terminal.identity.boot.is_empty();
        terminal.online = record.online;
        if !record.online {
            terminal.last_seen_ms = record.last_seen_ms.unwrap_or(0);
        }
        terminal.id_in_use = record.id_in_use;
        terminal.allowed_journal = record.allowed_journal;
        terminal.reports = record.reports;
        self.known.insert(record.id, terminal);
    }

    fn hear(&mut self, id: &TerminalId, identity: &Identity, goodbye: bool, now_ms: i64, default_ms: i64) -> Heard {
        let Some(terminal) = self.known.get_mut(id) else {
            if self.known.len() >= self.max {
                self.turned_away += 1;
                return Heard::Full;
            }
            let mut terminal = Terminal::new(identity.clone(), now_ms);
            terminal.online = !goodbye;
            terminal.gone = goodbye;
            self.known.insert(id.clone(), terminal);
            self.dirty.push(id.clone());
            return Heard::Changed;
        };
        let in_use = terminal.id_in_use;
        let mut heard = terminal.identify(identity, goodbye, now_ms, default_ms);
        if matches!(heard, Heard::Same | Heard::Changed) {
            let changed = !terminal.online || terminal.identity.slots != identity.slots || terminal.gone || !terminal.heard;
            terminal.heard = true;
            terminal.last_seen_ms = now_ms;
            if changed || terminal.identity != *identity {
                terminal.identity = identity.clone();
                heard = Heard::Changed;
            }
            terminal.online = true;
            terminal.gone = false;
        }
        if heard == Heard::Changed || terminal.id_in_use != in_use {
            self.dirty.push(id.clone());
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
                self.dirty.push(id.clone());
            }
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
            terminal.listed = listed;
        }
        heard
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
        terminal.allowed_journal = journal.clone();
        self.dirty.push(id.clone());
        journal.or(Some(String::new()))
    }

    /// Marks who fell silent; gives their names.
    pub(crate) fn sweep(&mut self, now_ms: i64, default_ms: i64) -> Vec<TerminalId> {
        let mut silent = Vec::new();
        for (id, terminal) in &mut self.known {
            if terminal.online && now_ms - terminal.last_seen_ms >= BEATS_MISSING_OFFLINE * terminal.interval_ms(default_ms) {
                terminal.online = false;
                silent.push(id.clone());
            }
        }
        silent.sort_unstable();
        self.dirty.extend(silent.iter().cloned());
        silent
    }

    /// What the policy is told about a terminal and, where there is one, the attempt it should have.
    pub(crate) fn presence(&self, id: &TerminalId, task: &TaskId, attempt: Option<&Attempt>, hq: &Hq) -> Presence {
        let Some(t) = self.known.get(id) else { return Presence::default() };
        let names =
            |listed: &[AttemptRef]| attempt.is_some_and(|a| listed.iter().any(|l| l.attempt == a.number && l.task_id == *task));
        let synced = t.synced_ms.is_some_and(|ms| ms >= hq.connected_ms);
        let lists_attempt = names(&t.listed);
        let forgot = synced
            && !lists_attempt
            && attempt.is_some_and(|a| a.started_ms.is_some() && a.dispatched_seq <= t.sync_seq && !names(&t.sync_listed));
        Presence {
            last_seen_ms: (t.last_seen_ms > 0).then_some(t.last_seen_ms),
            gone: t.gone,
            beat_ms: i64::try_from(t.identity.beat_interval_ms).unwrap_or(0),
            usable: t.heard && !t.id_in_use && t.successor.is_none() && !t.journal_unavailable && !t.gone,
            // A wait that is over ends with the next sweep, which looks at the tasks again; nobody polls for it.
            usable_at_ms: t.successor.as_ref().map(|s| s.usable_at_ms).filter(|at_ms| *at_ms > hq.now_ms),
            lists_attempt,
            same_journal: attempt.is_some_and(|a| *a.journal == *t.identity.journal),
            forgot_attempt: forgot,
            synced,
        }
    }

    /// Terminals whose successor's wait is over.
    pub(crate) fn waiting(&self, now_ms: i64) -> Vec<TerminalId> {
        let over = |t: &Terminal| t.successor.as_ref().is_some_and(|s| now_ms >= s.usable_at_ms);
        let mut waiting: Vec<TerminalId> = self.known.iter().filter(|(_, t)| over(t)).map(|(id, _)| id.clone()).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Lets a successor whose wait is over take its place; says whether it did.
    pub(crate) fn promote(&mut self, id: &TerminalId, now_ms: i64) -> bool {
        let Some(terminal) = self.known.get_mut(id) else { return false };
        match terminal.successor.take() {
            Some(successor) if now_ms >= successor.usable_at_ms && !terminal.id_in_use => {
                terminal.become_known(successor.identity);
                terminal.last_seen_ms = now_ms;
                terminal.online = true;
                self.dirty.push(id.clone());
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
            version: t.identity.version.clone(),
            slots: t.identity.slots,
            beat_interval_ms: t.identity.beat_interval_ms,
            journal: t.identity.journal.clone(),
            boot: t.identity.boot.clone(),
            allowed_journal: t.allowed_journal.clone(),
            id_in_use: t.id_in_use,
            labels: t.identity.labels.clone(),
            types: t.identity.types.clone(),
            reports: t.reports.clone(),
        })
    }
}

#[cfg(test)]
mod tests;

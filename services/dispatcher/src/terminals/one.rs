//! One terminal as HQ knows it, and the judgement who is speaking under its id. Pure: time is an argument.

use fanfold_domain::task::Journal;
use fanfold_process::rates::Bucket;
use fanfold_wire::record::ReportCounts;
use fanfold_wire::terminal::{AttemptRef, Identity};

use super::Heard;
use super::known::{Alike, Known};

/// Another boot of the same id, heard of before the known one was surely gone.
#[derive(Debug, Clone)]
pub(super) struct Successor {
    pub(super) identity: Known,
    pub(super) usable_at_ms: i64,
}

/// One terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) identity: Known,
    pub(crate) last_seen_ms: i64,
    pub(super) heard: bool,
    pub(super) gone: bool,
    pub(super) successor: Option<Box<Successor>>,
    pub(super) previous_boot: Option<Box<Journal>>,
    pub(crate) id_in_use: bool,
    pub(crate) allowed_journal: Option<Box<Journal>>,
    pub(super) replace_with_next: bool,
    pub(super) journal_unavailable: bool,
    pub(super) listed: Vec<AttemptRef>,
    pub(crate) synced_ms: Option<i64>,
    /// Of the last sync: highest sequence the terminal knew, and that it came from `identity.journal`.
    pub(super) sync_seq: u64,
    pub(super) sync_listed: Vec<AttemptRef>,
    pub(crate) online: bool,
    pub(crate) reports: ReportCounts,
    /// When the known boot itself was last heard; another one under the same id counts for `last_seen_ms` only.
    pub(super) boot_seen_ms: i64,
    /// When something was last handed out to the known boot.
    pub(super) handed_ms: i64,
    /// Journal of the other process heard under this id.
    pub(super) rival: Option<Box<Journal>>,
    /// Beats and syncs not taken because there were too many.
    pub(super) limited: u64,
    /// Beats and syncs that could not be read.
    pub(super) unreadable: u64,
    /// Of its last beat, where that said nothing new: one with the same text says nothing new either.
    pub(super) beat_mark: Option<u64>,
    /// How much it may say.
    pub(super) said: Bucket,
}

impl Terminal {
    pub(super) fn new(identity: Known, now_ms: i64) -> Self {
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
            boot_seen_ms: now_ms,
            handed_ms: 0,
            rival: None,
            limited: 0,
            unreadable: 0,
            beat_mark: None,
            said: Bucket::full(now_ms),
        }
    }

    pub(super) fn interval_ms(&self, default_ms: i64) -> i64 {
        i64::try_from(self.identity.beat_interval_ms).ok().filter(|ms| *ms > 0).unwrap_or(default_ms)
    }

    /// When its predecessor's silence is long enough: one interval and its jitter, also since it was last handed something. A copy of its
    /// disk does not know of that, and would run it again.
    pub(super) fn silent_at_ms(&self, default_ms: i64) -> i64 {
        self.last_seen_ms.max(self.handed_ms) + self.interval_ms(default_ms) * 3 / 2
    }

    pub(super) fn become_known(&mut self, identity: Known) {
        self.previous_boot = Some(Box::new(self.identity.boot.clone()));
        if self.identity.journal != identity.journal {
            self.sync_seq = 0;
            self.sync_listed = Vec::new();
        }
        self.identity = identity;
        self.beat_mark = None;
        self.successor = None;
        self.gone = false;
        self.handed_ms = 0;
        self.listed = Vec::new();
        self.synced_ms = None;
    }

    /// Judges who is speaking; only `Same` and `Changed` let the message count as this terminal's.
    pub(super) fn identify(&mut self, identity: &Identity, goodbye: bool, at: (i64, i64), alike: &mut Alike) -> Heard {
        let (now_ms, default_ms) = at;
        let journal = || Some(Box::new(Journal::new(&identity.journal)));
        if self.replace_with_next && !goodbye {
            self.replace_with_next = false;
            self.allowed_journal = journal();
        }
        if let Some(allowed) = &self.allowed_journal
            && **allowed != *identity.journal
        {
            self.rival = journal();
            return Heard::InUse;
        }
        if self.identity.boot == *identity.boot {
            if !goodbye && let Some(successor) = self.successor.take() {
                // Both beat within one interval: two processes under one id.
                self.id_in_use = true;
                self.rival = Some(Box::new(successor.identity.journal));
            }
            return if self.id_in_use { Heard::InUse } else { Heard::Same };
        }
        if goodbye {
            if self.successor.as_ref().is_some_and(|s| s.identity.boot == *identity.boot) {
                self.successor = None;
            }
            return Heard::InUse;
        }
        if self.previous_boot.as_ref().is_some_and(|boot| **boot == *identity.boot) {
            self.id_in_use = true;
        }
        if self.id_in_use {
            self.rival = journal();
            return Heard::InUse;
        }
        if self.gone || !self.heard || now_ms >= self.silent_at_ms(default_ms) {
            self.become_known(Known::new(identity, alike));
            return Heard::Changed;
        }
        let usable_at_ms = self.silent_at_ms(default_ms);
        self.successor = Some(Box::new(Successor { identity: Known::new(identity, alike), usable_at_ms }));
        Heard::MustWait(usable_at_ms)
    }
}

//! One terminal as HQ knows it, and the judgement who is speaking under its id. Pure: time is an argument.

use fanfold_wire::record::ReportCounts;
use fanfold_wire::terminal::{AttemptRef, Identity};

use super::Heard;

/// How far a boot's last messages may lag behind its successor's first ones, at least, in milliseconds.
const LAG_MS_MIN: i64 = 1_000;
/// Boots other than the known one that are told apart; of more, those heard last.
const OTHERS_MAX: usize = 4;
/// Beat intervals after which it does not matter that each of the others was heard for a moment only.
const RESTLESS_BEATS: i64 = 4;

/// When a boot was heard.
#[derive(Debug, Clone)]
struct Other {
    boot: String,
    first_ms: i64,
    last_ms: i64,
}

/// Another boot of the same id, heard of before the known one was surely gone: the last that spoke of those that did.
#[derive(Debug, Clone)]
pub(super) struct Successor {
    pub(super) identity: Identity,
    pub(super) usable_at_ms: i64,
    /// Since when others than the known boot have been heard without a long silence, and their last word.
    since_ms: i64,
    last_ms: i64,
    others: Vec<Other>,
}

impl Successor {
    fn new(identity: &Identity, first_ms: i64, now_ms: i64) -> Self {
        let others = vec![Other { boot: identity.boot.clone(), first_ms, last_ms: now_ms }];
        Self { identity: identity.clone(), usable_at_ms: now_ms, since_ms: first_ms, last_ms: now_ms, others }
    }

    /// One of the others speaks.
    fn hear(&mut self, identity: &Identity, first_ms: i64, now_ms: i64) {
        (self.identity, self.last_ms) = (identity.clone(), now_ms);
        match self.others.iter_mut().find(|o| o.boot == identity.boot) {
            Some(other) => other.last_ms = now_ms,
            None => self.others.push(Other { boot: identity.boot.clone(), first_ms, last_ms: now_ms }),
        }
        if self.others.len() > OTHERS_MAX {
            let quietest = self.others.iter().enumerate().min_by_key(|(_, o)| o.last_ms).map(|(i, _)| i);
            quietest.map(|i| self.others.swap_remove(i));
        }
    }

    /// Whether one of them, or all of them taking turns, live beside the known boot.
    fn lives_beside(&self, known_last_ms: i64, lag_ms: i64, interval_ms: i64) -> bool {
        self.others.iter().any(|o| side_by_side(known_last_ms, o.last_ms, o.first_ms, lag_ms))
            || side_by_side(known_last_ms, self.last_ms, self.since_ms, interval_ms.saturating_mul(RESTLESS_BEATS))
    }

    /// When the one that spoke last was first heard.
    fn first_ms(&self) -> i64 {
        self.others.iter().find(|o| o.boot == self.identity.boot).map_or(self.last_ms, |o| o.first_ms)
    }
}

/// Whether two boots of one id live side by side. What a dead process has sent comes in order of its own, but may come after its
/// successor's first words: by another connection, or from another queue. So one late message proves nothing; both must have been
/// heard for longer than such a lag since both are known. One of them that is never heard again was a restart, or its remains.
pub(super) fn side_by_side(one_last_ms: i64, other_last_ms: i64, both_since_ms: i64, lag_ms: i64) -> bool {
    one_last_ms.min(other_last_ms).saturating_sub(both_since_ms) > lag_ms
}

/// One terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) identity: Identity,
    pub(crate) last_seen_ms: i64,
    pub(super) heard: bool,
    pub(super) gone: bool,
    pub(super) successor: Option<Successor>,
    pub(super) previous_boot: Option<String>,
    pub(crate) id_in_use: bool,
    pub(crate) allowed_journal: Option<String>,
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
    /// When the known boot was first heard.
    boot_first_ms: i64,
    /// When something was last handed out to the known boot.
    pub(super) handed_ms: i64,
    /// Journal of the other process heard under this id.
    pub(super) rival: Option<String>,
    /// Beats and syncs not taken because there were too many.
    pub(super) limited: u64,
    /// Beats and syncs that could not be read.
    pub(super) unreadable: u64,
}

impl Terminal {
    pub(super) fn new(identity: Identity, now_ms: i64) -> Self {
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
            boot_first_ms: now_ms,
            handed_ms: 0,
            rival: None,
            limited: 0,
            unreadable: 0,
        }
    }

    pub(super) fn interval_ms(&self, default_ms: i64) -> i64 {
        interval_ms(&self.identity, default_ms)
    }

    /// When its predecessor's silence is long enough: one interval and its jitter, also since it was last handed something. A copy of its
    /// disk does not know of that, and would run it again.
    pub(super) fn silent_at_ms(&self, default_ms: i64) -> i64 {
        self.last_seen_ms.max(self.handed_ms) + silence_ms(&self.identity, default_ms)
    }

    /// Half an interval: the next beat of one that lives comes later.
    fn lag_ms(&self, default_ms: i64) -> i64 {
        (self.interval_ms(default_ms) / 2).max(LAG_MS_MIN)
    }

    /// The one that waited takes its place.
    pub(super) fn succeed(&mut self, successor: Successor) {
        let first_ms = successor.first_ms();
        self.become_known(successor.identity, first_ms, successor.last_ms);
    }

    fn become_known(&mut self, identity: Identity, first_ms: i64, last_ms: i64) {
        self.previous_boot = Some(std::mem::take(&mut self.identity.boot));
        if self.identity.journal != identity.journal {
            self.sync_seq = 0;
            self.sync_listed = Vec::new();
        }
        self.identity = identity;
        (self.boot_first_ms, self.boot_seen_ms) = (first_ms, last_ms);
        self.successor = None;
        self.gone = false;
        self.handed_ms = 0;
        self.listed = Vec::new();
        self.synced_ms = None;
    }

    /// Judges who is speaking; only `Same` and `Changed` let the message count as this terminal's.
    pub(super) fn identify(&mut self, identity: &Identity, goodbye: bool, now_ms: i64, default_ms: i64) -> Heard {
        if self.replace_with_next && !goodbye {
            self.replace_with_next = false;
            self.allowed_journal = Some(identity.journal.clone());
        }
        if let Some(allowed) = &self.allowed_journal
            && *allowed != identity.journal
        {
            self.rival = Some(identity.journal.clone());
            return Heard::InUse;
        }
        if identity.boot == self.identity.boot {
            return self.known_speaks(goodbye, now_ms, default_ms);
        }
        if goodbye {
            if self.successor.as_ref().is_some_and(|s| s.identity.boot == identity.boot) {
                self.successor = None;
            }
            return Heard::InUse;
        }
        if self.id_in_use { self.twin(identity.journal.clone()) } else { self.other_speaks(identity, now_ms, default_ms) }
    }

    fn known_speaks(&mut self, goodbye: bool, now_ms: i64, default_ms: i64) -> Heard {
        if self.id_in_use {
            return Heard::InUse;
        }
        let (lag_ms, interval_ms) = (self.lag_ms(default_ms), self.interval_ms(default_ms));
        let silent_at_ms = now_ms + silence_ms(&self.identity, default_ms);
        let Some(other) = self.successor.as_mut().filter(|_| !goodbye) else { return Heard::Same };
        if other.lives_beside(now_ms, lag_ms, interval_ms) {
            let rival = other.identity.journal.clone();
            return self.twin(rival);
        }
        if now_ms - other.last_ms >= silence_ms(&other.identity, default_ms) {
            // Whoever it was is not there any more: a start that came to nothing, or the last words of an older boot.
            self.successor = None;
            return Heard::Changed;
        }
        other.usable_at_ms = silent_at_ms;
        Heard::Same
    }

    fn other_speaks(&mut self, identity: &Identity, now_ms: i64, default_ms: i64) -> Heard {
        let lag_ms = self.lag_ms(default_ms);
        let older = self.previous_boot.as_ref() == Some(&identity.boot);
        if older && now_ms - self.boot_first_ms <= lag_ms {
            return Heard::MustWait(self.boot_first_ms + lag_ms + 1);
        }
        let first_ms = if older { self.boot_first_ms } else { now_ms };
        let mut successor = match self.successor.take() {
            Some(mut successor) => {
                successor.hear(identity, first_ms, now_ms);
                successor
            }
            None => Successor::new(identity, first_ms, now_ms),
        };
        if successor.lives_beside(self.boot_seen_ms, lag_ms, self.interval_ms(default_ms)) {
            return self.twin(identity.journal.clone());
        }
        if self.gone || !self.heard || now_ms >= self.silent_at_ms(default_ms) {
            self.succeed(successor);
            return Heard::Changed;
        }
        let usable_at_ms = self.silent_at_ms(default_ms);
        successor.usable_at_ms = usable_at_ms;
        self.successor = Some(successor);
        Heard::MustWait(usable_at_ms)
    }

    /// Two processes under one id: until a person says which of them is meant.
    fn twin(&mut self, rival: String) -> Heard {
        self.id_in_use = true;
        self.rival = Some(rival);
        self.successor = None;
        Heard::InUse
    }
}

fn interval_ms(identity: &Identity, default_ms: i64) -> i64 {
    i64::try_from(identity.beat_interval_ms).ok().filter(|ms| *ms > 0).unwrap_or(default_ms)
}

/// Longer than one that lives is silent: an interval and its jitter.
fn silence_ms(identity: &Identity, default_ms: i64) -> i64 {
    interval_ms(identity, default_ms) * 3 / 2
}

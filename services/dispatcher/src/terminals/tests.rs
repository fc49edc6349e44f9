//! Boots, journals, listings: every way two processes can come to use one id, and what HQ makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fanfold_domain::event::PROTOCOL_VERSION;

use super::*;

const BEAT_MS: i64 = 15_000;
/// One interval and its jitter.
const SILENCE_MS: i64 = BEAT_MS * 3 / 2;

fn id(name: &str) -> TerminalId {
    TerminalId::new(name).unwrap()
}

fn task() -> TaskId {
    TaskId::parse("p.S1.main").unwrap()
}

fn identity(journal: &str, boot: &str) -> Identity {
    Identity {
        protocol_version: PROTOCOL_VERSION,
        version: "1".into(),
        journal: journal.into(),
        boot: boot.into(),
        slots: 1,
        beat_interval_ms: 0,
        labels: Default::default(),
        types: Vec::new(),
    }
}

fn beat(journal: &str, boot: &str) -> Beat {
    Beat { identity: identity(journal, boot), holds: Vec::new(), goodbye: false, journal_unavailable: false }
}

/// Terminals at a moment, one terminal `S1` spoken of.
struct Scene {
    terminals: Terminals,
    now_ms: i64,
}

impl Scene {
    fn new() -> Self {
        Self { terminals: Terminals::new(10), now_ms: 1_000_000 }
    }

    fn after(&mut self, ms: i64) -> &mut Self {
        self.now_ms += ms;
        self
    }

    fn beats(&mut self, journal: &str, boot: &str) -> Heard {
        self.terminals.beat(&id("S1"), beat(journal, boot), self.now_ms, BEAT_MS)
    }

    fn goodbye(&mut self, journal: &str, boot: &str) -> Heard {
        self.terminals.beat(&id("S1"), Beat { goodbye: true, ..beat(journal, boot) }, self.now_ms, BEAT_MS)
    }

    fn syncs(&mut self, journal: &str, boot: &str, listed: Vec<AttemptRef>, known_seq: u64) -> Heard {
        self.terminals.sync(&id("S1"), &identity(journal, boot), listed, known_seq, (self.now_ms, BEAT_MS))
    }

    fn hq(&self) -> Hq {
        Hq { now_ms: self.now_ms, started_ms: 0, connected_ms: 0, caught_up: true, beat_ms: BEAT_MS, cancel_grace_ms: 10_000 }
    }

    fn presence(&self, attempt: Option<&Attempt>) -> Presence {
        self.terminals.presence(&id("S1"), &task(), attempt, &self.hq())
    }

    fn usable(&self) -> bool {
        self.presence(None).usable
    }

    fn sweep(&mut self) -> Vec<TerminalId> {
        let silent = self.terminals.sweep(self.now_ms, BEAT_MS);
        for id in self.terminals.waiting(self.now_ms) {
            self.terminals.promote(&id, self.now_ms);
        }
        silent
    }

    fn boot(&self) -> String {
        self.terminals.known[&id("S1")].identity.boot.to_string()
    }
}

fn attempt(number: u32, journal: &str, started: bool) -> Attempt {
    let mut attempt = Attempt::handed_out(number, id("S1"), journal, 50, 0);
    if started {
        attempt.begin(1);
    }
    attempt
}

fn listing(number: u32) -> AttemptRef {
    AttemptRef { task_id: task(), attempt: number }
}

#[test]
fn a_terminal_never_heard_of_is_neither_usable_nor_seen() {
    let scene = Scene::new();
    let presence = scene.presence(None);
    assert!(!presence.usable && presence.last_seen_ms.is_none() && !presence.is_online(&scene.hq()));
}

#[test]
fn the_first_boot_is_usable_at_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.beats("j", "b1"), Heard::Changed);
    assert!(scene.usable());
    assert_eq!(scene.after(BEAT_MS).beats("j", "b1"), Heard::Same);
}

#[test]
fn the_first_sync_makes_it_usable_too() {
    let mut scene = Scene::new();
    assert_eq!(scene.syncs("j", "b1", Vec::new(), 0), Heard::Changed);
    assert!(scene.usable() && scene.presence(None).synced);
}

#[test]
fn a_new_boot_waits_until_the_previous_one_is_surely_gone() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    let usable_at_ms = scene.now_ms + SILENCE_MS;
    assert_eq!(scene.after(2_000).beats("j", "b2"), Heard::MustWait(usable_at_ms));
    assert!(!scene.usable());
    assert_eq!(scene.presence(None).usable_at_ms, Some(usable_at_ms));
    assert_eq!(scene.syncs("j", "b2", Vec::new(), 0), Heard::MustWait(usable_at_ms), "nothing by sync either");
    scene.now_ms = usable_at_ms - 1;
    scene.sweep();
    assert!(!scene.usable());
    scene.now_ms = usable_at_ms;
    assert_eq!(scene.presence(None).usable_at_ms, None, "a wait that is over is not polled for");
    scene.sweep();
    assert!(scene.usable());
    assert_eq!(scene.boot(), "b2");
    assert!(!scene.presence(None).synced, "what the previous boot said does not count for this one");
}

#[test]
fn a_new_boot_is_usable_at_its_own_beat_after_the_silence() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    assert_eq!(scene.after(SILENCE_MS).beats("j2", "b2"), Heard::Changed);
    assert!(scene.usable());
    assert_eq!(scene.boot(), "b2");
}

#[test]
fn a_goodbye_lets_the_successor_in_at_once() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    assert_eq!(scene.after(100).goodbye("j", "b1"), Heard::Changed);
    assert!(!scene.usable() && scene.presence(None).gone && !scene.presence(None).is_online(&scene.hq()));
    assert_eq!(scene.after(100).beats("j", "b2"), Heard::Changed);
    assert!(scene.usable() && scene.presence(None).is_online(&scene.hq()));
}

#[test]
fn a_successor_that_waits_already_is_let_in_by_the_goodbye_itself() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    assert!(matches!(scene.after(100).beats("j", "b2"), Heard::MustWait(_)));
    assert_eq!(scene.after(100).goodbye("j", "b1"), Heard::Changed);
    assert!(scene.usable(), "the next beat may be fifteen seconds away");
    assert_eq!(scene.boot(), "b2");
    assert_eq!(scene.after(100).goodbye("j", "b1"), Heard::InUse, "a goodbye said twice is nobody's");
    assert!(scene.usable());
}

#[test]
fn a_goodbye_of_the_one_that_waits_leaves_the_known_one_alone() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    scene.after(100).beats("j", "b2");
    scene.after(100).goodbye("j", "b2");
    assert!(scene.usable());
    assert_eq!(scene.after(100).beats("j", "b1"), Heard::Same, "not a twin: the other one has left");
}

#[test]
fn two_boots_beating_in_turns_are_a_twin_until_replaced() {
    let mut scene = Scene::new();
    scene.beats("j1", "b1");
    assert!(matches!(scene.after(1_000).beats("j2", "b2"), Heard::MustWait(_)));
    assert_eq!(scene.after(1_000).beats("j1", "b1"), Heard::InUse);
    assert!(!scene.usable());
    for _ in 0..10 {
        assert_eq!(scene.after(BEAT_MS).beats("j1", "b1"), Heard::InUse);
        scene.sweep();
        assert!(!scene.usable(), "silence of the other does not heal it: only a person does");
    }
    assert_eq!(scene.syncs("j1", "b1", Vec::new(), 0), Heard::InUse);
    assert!(scene.terminals.record(&id("S1")).unwrap().id_in_use);
    assert!(scene.terminals.replace(&id("S1"), Some("j2".into())).is_some());
    assert!(!scene.usable(), "nobody has been heard under the new rule yet");
    assert_eq!(scene.after(1).beats("j1", "b1"), Heard::InUse, "the other journal is ignored");
    assert_eq!(scene.after(1).beats("j2", "b2"), Heard::Changed);
    assert!(scene.usable());
    for _ in 0..3 {
        assert_eq!(scene.after(1_000).beats("j1", "b1"), Heard::InUse);
        assert_eq!(scene.syncs("j1", "b3", Vec::new(), 9), Heard::InUse, "whatever its boot");
        assert!(scene.usable() && !scene.terminals.known[&id("S1")].id_in_use, "and it does not make a twin of it again");
    }
}

#[test]
fn a_previous_boot_that_speaks_again_is_a_twin() {
    let mut scene = Scene::new();
    scene.beats("j1", "b1");
    scene.after(SILENCE_MS).beats("j1", "b2");
    assert_eq!(scene.after(5_000).beats("j1", "b1"), Heard::InUse);
    assert_eq!(scene.after(1_000).beats("j1", "b2"), Heard::InUse);
    assert!(!scene.usable());
}

#[test]
fn replace_without_a_journal_takes_the_next_heard_for_good() {
    let mut scene = Scene::new();
    scene.beats("j1", "b1");
    scene.after(1).beats("j2", "b2");
    scene.after(1).beats("j1", "b1");
    scene.terminals.replace(&id("S1"), None).unwrap();
    assert_eq!(scene.after(1).goodbye("j1", "b1"), Heard::Changed);
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().allowed_journal, None, "one that leaves is not the one meant");
    assert_eq!(scene.after(1).beats("j2", "b2"), Heard::Changed);
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().allowed_journal.as_deref(), Some("j2"));
    assert_eq!(scene.after(1).beats("j1", "b1"), Heard::InUse);
    assert!(scene.usable());
    assert!(scene.terminals.replace(&id("S9"), None).is_none(), "one never heard of can't be replaced");
}

#[test]
fn a_replaced_terminal_is_not_called_offline_for_it() {
    let mut scene = Scene::new();
    scene.beats("j1", "b1");
    scene.after(10).terminals.replace(&id("S1"), Some("j1".into())).unwrap();
    let presence = scene.presence(None);
    assert!(presence.is_online(&scene.hq()) && !presence.usable);
    assert_eq!(scene.after(10).beats("j1", "b1"), Heard::Changed);
    assert!(scene.usable());
}

#[test]
fn three_missing_beats_are_offline_and_one_is_online_again() {
    let mut scene = Scene::new();
    scene.beats("j", "b");
    assert!(scene.after(3 * BEAT_MS - 1).sweep().is_empty());
    assert!(scene.presence(None).is_online(&scene.hq()));
    assert_eq!(scene.after(1).sweep(), [id("S1")]);
    assert!(!scene.presence(None).is_online(&scene.hq()));
    assert!(scene.after(1).sweep().is_empty(), "told once");
    assert_eq!(scene.beats("j", "b"), Heard::Changed);
    assert!(scene.presence(None).is_online(&scene.hq()));
}

#[test]
fn the_terminal_s_own_interval_counts() {
    let mut scene = Scene::new();
    let mut own = beat("j", "b");
    own.identity.beat_interval_ms = 1_000;
    scene.terminals.beat(&id("S1"), own, scene.now_ms, BEAT_MS);
    assert_eq!(scene.after(3_000).sweep(), [id("S1")]);
}

#[test]
fn attempts_are_listed_by_beats_and_syncs_while_they_are_young() {
    let mut scene = Scene::new();
    let running = attempt(3, "j", true);
    scene.terminals.beat(&id("S1"), Beat { holds: vec![listing(3)], ..beat("j", "b") }, scene.now_ms, BEAT_MS);
    assert!(scene.presence(Some(&running)).lists_attempt);
    assert!(!scene.presence(Some(&attempt(2, "j", true))).lists_attempt, "another attempt is another thing");
    scene.after(BEAT_MS).beats("j", "b");
    assert!(!scene.presence(Some(&running)).lists_attempt, "the latest one counts");
    scene.syncs("j", "b", vec![listing(3)], 0);
    assert!(scene.presence(Some(&running)).lists_attempt);
    assert!(scene.presence(Some(&running)).same_journal);
    assert!(!scene.presence(Some(&attempt(3, "old", true))).same_journal);
}

#[test]
fn an_attempt_is_forgotten_only_by_a_sync_that_knew_its_dispatch() {
    let mut scene = Scene::new();
    let running = attempt(3, "j", true);
    scene.syncs("j", "b", Vec::new(), 49);
    assert!(!scene.presence(Some(&running)).forgot_attempt, "it may not have got the command yet");
    scene.syncs("j", "b", vec![listing(3)], 50);
    assert!(!scene.presence(Some(&running)).forgot_attempt);
    scene.syncs("j", "b", Vec::new(), 50);
    assert!(scene.presence(Some(&running)).forgot_attempt);
    assert!(!scene.presence(Some(&attempt(3, "j", false))).forgot_attempt, "one that has not begun is handed out again instead");
    scene.terminals.beat(&id("S1"), Beat { holds: vec![listing(3)], ..beat("j", "b") }, scene.now_ms, BEAT_MS);
    assert!(!scene.presence(Some(&running)).forgot_attempt, "it is listed after all");
}

#[test]
fn a_listing_cut_short_forgets_nothing() {
    let mut scene = Scene::new();
    let many = (0..LISTED_MAX as u32 + 5)
        .map(|n| AttemptRef { task_id: TaskId::parse(&format!("p.T{n}.main")).unwrap(), attempt: 1 })
        .collect();
    scene.syncs("j", "b", many, 99);
    assert!(!scene.presence(Some(&attempt(3, "j", true))).forgot_attempt);
    assert_eq!(scene.terminals.known[&id("S1")].listed.len(), LISTED_MAX);
}

#[test]
fn a_broken_journal_and_other_slots_are_changes() {
    let mut scene = Scene::new();
    scene.beats("j", "b");
    let broken = Beat { journal_unavailable: true, ..beat("j", "b") };
    assert_eq!(scene.terminals.beat(&id("S1"), broken, scene.now_ms, BEAT_MS), Heard::Changed);
    assert!(!scene.usable());
    assert_eq!(scene.beats("j", "b"), Heard::Changed);
    assert!(scene.usable());
    let mut wider = beat("j", "b");
    wider.identity.slots = 4;
    assert_eq!(scene.terminals.beat(&id("S1"), wider, scene.now_ms, BEAT_MS), Heard::Changed);
}

#[test]
fn what_was_known_comes_back_from_the_registry() {
    let mut scene = Scene::new();
    scene.beats("j1", "b1");
    let record = scene.terminals.record(&id("S1")).unwrap();
    let mut later = Scene::new();
    later.after(3_600_000);
    later.terminals.restore(record.clone(), later.now_ms);
    assert!(later.usable() && later.presence(None).is_online(&later.hq()), "online until three beats are missing");
    assert!(matches!(later.after(1).beats("j1", "b2"), Heard::MustWait(_)), "its predecessor may still be there");
    let now_ms = later.now_ms;
    later.terminals.restore(TerminalRecord { online: false, last_seen_ms: Some(77), id_in_use: true, ..record.clone() }, now_ms);
    assert!(!later.usable());
    assert_eq!(later.presence(None).last_seen_ms, Some(77));
    assert_eq!(later.beats("j1", "b1"), Heard::InUse, "a twin stays one over a restart");
    later.terminals.restore(TerminalRecord { allowed_journal: Some("j2".into()), ..record }, now_ms);
    assert_eq!(later.beats("j1", "b1"), Heard::InUse);
}

#[test]
fn the_number_of_terminals_is_bounded_and_counted() {
    let mut terminals = Terminals::new(3);
    let heard: Vec<Heard> = (0..5).map(|n| terminals.beat(&id(&format!("S{n}")), beat("j", "b"), 1, BEAT_MS)).collect();
    assert_eq!(heard, [Heard::Changed, Heard::Changed, Heard::Changed, Heard::Full, Heard::Full]);
    assert_eq!((terminals.known.len(), terminals.turned_away), (3, 2));
    assert_eq!(terminals.beat(&id("S0"), beat("j", "b"), 2, BEAT_MS), Heard::Same, "known ones are heard");
}

#[path = "tests/twins.rs"]
mod twins;

#[test]
fn who_comes_after_a_boot_waits_from_the_last_thing_that_was_handed_to_it() {
    let mut scene = Scene::new();
    assert_eq!(scene.beats("j", "one"), Heard::Changed);
    let handed_ms = scene.after(SILENCE_MS - 10).now_ms;
    scene.terminals.dispatched(&id("S1"), "one", handed_ms);
    scene.terminals.dispatched(&id("S1"), "another", handed_ms + 1_000);
    // A copy of its disk, with the id of the same journal and without what was just begun.
    assert_eq!(scene.after(20).beats("j", "copy"), Heard::MustWait(handed_ms + SILENCE_MS));
    assert_eq!(scene.after(SILENCE_MS - 21).beats("j", "copy"), Heard::MustWait(handed_ms + SILENCE_MS));
    assert_eq!(scene.after(1).beats("j", "copy"), Heard::Changed, "then it was a restart");
}

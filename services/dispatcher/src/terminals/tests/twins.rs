//! What is said of a doubled id, and what of it outlives the dispatcher.

use super::*;

fn twins(scene: &mut Scene) {
    scene.beats("j1", "b1");
    scene.after(1_000).beats("j2", "b2");
    assert_eq!(scene.after(1_000).beats("j1", "b1"), Heard::InUse);
}

fn restarted(scene: &Scene, after_ms: i64) -> Scene {
    let mut later = Scene { terminals: Terminals::new(10), now_ms: scene.now_ms + after_ms };
    later.terminals.restore(scene.terminals.record(&id("S1")).unwrap(), later.now_ms);
    later
}

#[test]
fn a_doubled_id_is_heard_and_not_offline() {
    let mut scene = Scene::new();
    twins(&mut scene);
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().rival_journal.as_deref(), Some("j2"), "both journals can be named");
    for _ in 0..10 {
        scene.after(BEAT_MS).beats("j2", "b2");
        assert!(scene.sweep().is_empty());
        let presence = scene.presence(None);
        assert!(presence.is_online(&scene.hq()) && !presence.usable);
    }
    scene.after(3 * BEAT_MS);
    assert_eq!(scene.sweep(), [id("S1")], "when both are gone it is offline");
    assert!(!scene.presence(None).is_online(&scene.hq()));
    scene.after(1).beats("j1", "b1");
    assert_eq!(std::mem::take(&mut scene.terminals.heard_again), [id("S1")].into(), "its tasks are looked at again");
    assert!(scene.terminals.record(&id("S1")).unwrap().online && !scene.usable());
}

#[test]
fn a_copy_of_the_journal_is_a_twin_too_and_its_listing_is_not_the_known_boots() {
    let mut scene = Scene::new();
    scene.terminals.beat(&id("S1"), Beat { holds: vec![listing(1)], ..beat("j", "b1") }, scene.now_ms, BEAT_MS);
    assert!(matches!(scene.after(1_000).beats("j", "b2"), Heard::MustWait(_)));
    let known = Beat { holds: vec![listing(1)], ..beat("j", "b1") };
    scene.after(1_000);
    assert_eq!(scene.terminals.beat(&id("S1"), known, scene.now_ms, BEAT_MS), Heard::InUse);
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().rival_journal.as_deref(), Some("j"));
    let running = attempt(1, "j", true);
    scene.after(1_000).beats("j", "b2");
    assert!(scene.presence(Some(&running)).lists_attempt, "the copy's empty hands say nothing about the other's");
    for _ in 0..3 {
        scene.after(BEAT_MS).beats("j", "b2");
    }
    let presence = scene.presence(Some(&running));
    assert!(!presence.lists_attempt && presence.is_online(&scene.hq()), "three beats without a word of the one that had it");
}

#[test]
fn one_turned_away_is_named_once_and_forgotten_with_the_next_replace() {
    let mut scene = Scene::new();
    twins(&mut scene);
    scene.terminals.replace(&id("S1"), Some("j2".into())).unwrap();
    scene.after(1).beats("j2", "b2");
    scene.terminals.dirty.clear();
    scene.after(1).beats("j1", "b1");
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().rival_journal.as_deref(), Some("j1"));
    assert_eq!(std::mem::take(&mut scene.terminals.dirty).len(), 1);
    for _ in 0..10 {
        scene.after(BEAT_MS).beats("j1", "b1");
    }
    assert!(scene.terminals.dirty.is_empty(), "nothing new is written about it");
    assert!(scene.usable() || !scene.presence(None).is_online(&scene.hq()), "and it does not keep the right one online");
    scene.terminals.replace(&id("S1"), Some("j1".into())).unwrap();
    assert_eq!(scene.terminals.record(&id("S1")).unwrap().rival_journal, None);
}

#[test]
fn a_replace_without_a_journal_outlives_the_dispatcher() {
    let mut scene = Scene::new();
    twins(&mut scene);
    scene.terminals.replace(&id("S1"), None).unwrap();
    let mut later = restarted(&scene, 5_000);
    assert!(!later.usable(), "nobody was let in yet");
    assert_eq!(later.after(1).beats("j2", "b3"), Heard::Changed);
    assert!(later.usable());
    let record = later.terminals.record(&id("S1")).unwrap();
    assert_eq!((record.allowed_journal.as_deref(), record.replace_with_next), (Some("j2"), false));
    assert_eq!(later.after(1).beats("j1", "b1"), Heard::InUse, "and nobody else from then on");
    let mut last = restarted(&later, 5_000);
    assert_eq!(last.after(1).beats("j1", "b1"), Heard::InUse);
    assert_eq!(last.after(1).beats("j2", "b3"), Heard::Same);
}

#[test]
fn a_journal_that_can_not_be_written_is_known_to_the_next_dispatcher() {
    let mut scene = Scene::new();
    scene.beats("j", "b");
    scene.terminals.dirty.clear();
    let broken = Beat { journal_unavailable: true, ..beat("j", "b") };
    scene.terminals.beat(&id("S1"), broken, scene.now_ms, BEAT_MS);
    assert!(scene.terminals.dirty.contains(&id("S1")), "it is written");
    let mut later = restarted(&scene, 5_000);
    assert!(!later.usable() && later.presence(None).is_online(&later.hq()));
    assert_eq!(later.after(1).beats("j", "b"), Heard::Changed);
    assert!(later.usable());
}

#[test]
fn what_was_not_looked_at_is_counted() {
    let mut scene = Scene::new();
    scene.beats("j", "b");
    for _ in 0..5 {
        scene.terminals.count_limited(&id("S1"));
    }
    scene.terminals.count_unreadable(&id("S1"));
    scene.terminals.count_limited(&id("S9"));
    let record = scene.terminals.record(&id("S1")).unwrap();
    assert_eq!((record.messages_limited, record.messages_unreadable), (5, 1));
    assert_eq!((scene.terminals.turned_away, scene.terminals.known.len()), (1, 1), "a name nobody knows fills nothing");
    assert_eq!(restarted(&scene, 1).terminals.record(&id("S1")).unwrap().messages_limited, 5);
}

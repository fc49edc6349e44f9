//! What is said of a doubled id, what of it outlives the dispatcher, and what is only a quick restart.

use super::*;

fn twins(scene: &mut Scene) {
    scene.beats("j1", "b1");
    scene.after(1_000).beats("j2", "b2");
    scene.after(BEAT_MS).beats("j2", "b2");
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
    scene.after(BEAT_MS).beats("j", "b2");
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

/// Half an interval: how far a boot's last words may lag behind its successor's first ones.
const LAG_MS: i64 = BEAT_MS / 2;

#[test]
fn only_those_heard_side_by_side_for_longer_than_a_lag_are_twins() {
    // One last heard, the other last heard, both known since, and whether they are two.
    let table = [
        (100, 0, 0, false),
        (0, 100, 0, false),
        (LAG_MS, BEAT_MS, 0, false),
        (LAG_MS + 1, BEAT_MS, 0, true),
        (BEAT_MS, LAG_MS + 1, 0, true),
        (BEAT_MS, BEAT_MS, BEAT_MS, false),
        (50, 90, 100, false),
        (i64::MIN, i64::MAX, i64::MAX, false),
    ];
    for (one, other, since, expected) in table {
        assert_eq!(super::super::one::side_by_side(one, other, since, LAG_MS), expected, "{one} {other} {since}");
    }
}

/// What one message is.
#[derive(Debug, Clone, Copy)]
enum Say {
    Beat,
    Sync,
    Goodbye,
}

fn says(scene: &mut Scene, boot: &str, say: Say) -> Heard {
    match say {
        Say::Beat => scene.beats("j", boot),
        Say::Sync => scene.syncs("j", boot, Vec::new(), 0),
        Say::Goodbye => scene.goodbye("j", boot),
    }
}

#[test]
fn the_last_words_of_a_boot_that_was_restarted_make_no_twin_of_it() {
    use Say::{Beat, Goodbye, Sync};
    // When (ms), which boot, what: b1 is heard from the start, and the last boot named beats on from then on.
    type Case = (&'static str, &'static [(i64, &'static str, Say)]);
    let table: [Case; 9] = [
        ("a beat comes after the successor's sync", &[(2_000, "b2", Sync), (2_000, "b1", Beat)]),
        ("a sync comes after the successor's beat", &[(2_000, "b2", Beat), (2_100, "b1", Sync), (2_200, "b2", Sync)]),
        ("several, from two queues", &[(2_000, "b2", Sync), (2_000, "b1", Beat), (2_000, "b2", Beat), (2_000, "b1", Sync)]),
        ("as late as half a beat", &[(2_000, "b2", Sync), (2_000 + LAG_MS, "b1", Beat)]),
        ("after its goodbye", &[(2_000, "b1", Goodbye), (2_000, "b2", Beat), (2_010, "b1", Sync)]),
        ("after its successor was let in", &[(SILENCE_MS, "b2", Beat), (SILENCE_MS + 10, "b1", Beat)]),
        (
            "two restarts",
            &[(2_000, "b2", Beat), (2_500, "b1", Sync), (4_000, "b3", Beat), (4_000, "b2", Sync), (4_001, "b1", Beat)],
        ),
        (
            "a stray of the boot before, then a restart",
            &[
                (SILENCE_MS, "b2", Beat),
                (SILENCE_MS + LAG_MS - 50, "b0", Sync),
                (SILENCE_MS + LAG_MS, "b3", Beat),
                (SILENCE_MS + 2 * LAG_MS - 10, "b2", Beat),
                (SILENCE_MS + 2 * LAG_MS, "b3", Beat),
            ],
        ),
        (
            "two restarts, the oldest last",
            &[(SILENCE_MS, "b2", Beat), (SILENCE_MS * 2, "b3", Beat), (SILENCE_MS * 2 + 9, "b1", Sync)],
        ),
    ];
    for (what, heard) in table {
        let mut scene = Scene::new();
        let start_ms = scene.now_ms;
        scene.beats("j", "b1");
        for (at_ms, boot, say) in heard {
            scene.now_ms = start_ms + at_ms;
            scene.sweep();
            assert!(says(&mut scene, boot, *say) != Heard::InUse || matches!(say, Goodbye), "{what}: {boot} at {at_ms}");
        }
        let boot = heard.iter().map(|h| h.1).max().unwrap();
        for _ in 0..4 {
            scene.after(BEAT_MS).sweep();
            assert_ne!(scene.beats("j", boot), Heard::InUse, "{what}");
        }
        assert!(scene.usable() && scene.boot() == boot, "{what}: {boot} has work again, {} is known", scene.boot());
        let record = scene.terminals.record(&id("S1")).unwrap();
        assert_eq!((record.id_in_use, record.rival_journal), (false, None), "{what}: nobody has to be asked");
    }
}

#[test]
fn two_that_live_are_found_within_one_and_a_half_beats_whatever_their_turns() {
    for journal in ["j", "other"] {
        for after_ms in (100..BEAT_MS).step_by(700) {
            let mut scene = Scene::new();
            let mut next = [scene.now_ms, scene.now_ms + BEAT_MS - after_ms];
            scene.beats("j", "b1");
            next[0] += BEAT_MS;
            let first_ms = next[1];
            let found_ms = loop {
                let who = usize::from(next[1] < next[0]);
                scene.now_ms = next[who];
                next[who] += BEAT_MS;
                scene.sweep();
                let heard = if who == 0 { scene.beats("j", "b1") } else { scene.beats(journal, "b2") };
                assert!(scene.now_ms < first_ms || !scene.usable(), "neither is given anything");
                if heard == Heard::InUse {
                    break scene.now_ms - first_ms;
                }
                assert!(
                    scene.now_ms - first_ms <= 2 * BEAT_MS,
                    "two beat in turns, the known one {after_ms} ms later, and it is not said"
                );
            };
            assert!(found_ms <= SILENCE_MS, "{after_ms}: {found_ms}");
            assert_eq!(scene.terminals.record(&id("S1")).unwrap().rival_journal.as_deref(), Some(journal));
        }
    }
}

#[test]
fn a_start_that_came_to_nothing_is_forgotten() {
    let mut scene = Scene::new();
    scene.beats("j", "b1");
    scene.after(1_000).beats("other", "b2");
    scene.after(BEAT_MS - 1_000);
    assert_eq!(scene.beats("j", "b1"), Heard::Same);
    assert!(!scene.usable(), "the other one may still be there");
    assert_eq!(scene.after(BEAT_MS).beats("j", "b1"), Heard::Changed, "it has missed its beat");
    assert!(scene.usable() && scene.boot() == "b1");
    assert!(!scene.terminals.record(&id("S1")).unwrap().id_in_use);
}

#[test]
fn others_that_come_and_go_beside_one_that_lives_are_said_too() {
    // Three that beat in turns; and one that is started again and again, never for long.
    for restarting in [false, true] {
        let mut scene = Scene::new();
        let mut found = None;
        for turn in 0..40 {
            scene.after(BEAT_MS / 5);
            let boot = match turn % 5 {
                0 => "b1".to_owned(),
                n if restarting => format!("r{turn}-{n}"),
                n => format!("b{}", n + 1),
            };
            if scene.beats("j", &boot) == Heard::InUse {
                found = Some(turn);
                break;
            }
            assert!(turn == 0 || !scene.usable(), "neither is given anything");
        }
        let (at, most) = (found.expect("it is said"), if restarting { 26 } else { 8 });
        assert!(at <= most, "{restarting}: after {at} fifths of a beat");
    }
}

//! `terminal replace` by name: a journal that was heard of, or nothing at all changes.

use fanfold::cmd::terminal::gets_nothing;
use fanfold_domain::ids::TerminalId;
use fanfold_domain::task::TaskState;
use fanfold_wire::api::{Replaced, TerminalList};
use fanfold_wire::record::TerminalRecord;
use serde_json::json;

use fanfold_tests::world::World;
use fanfold_tests::world::terminal::Act;

async fn record(w: &World) -> TerminalRecord {
    let list: TerminalList = w.ask("terminal.list", json!({})).await.unwrap();
    list.terminals.into_iter().find(|t| t.id == TerminalId::new("S1").unwrap()).unwrap()
}

/// One terminal that was heard of, and its journal.
async fn heard() -> (World, String) {
    let mut w = World::new().await;
    w.terminal("S1", |_, _| Act::Succeed(5));
    w.sleep(3_000).await;
    let journal = record(&w).await.journal;
    (w, journal)
}

#[tokio::test(start_paused = true)]
async fn a_journal_nobody_has_locks_nobody_out() {
    let (w, journal) = heard().await;
    for (wanted, force) in [("5f2c", false), (&journal[..3], false), ("", false), ("", true), ("abc", true)] {
        let body = json!({ "terminal": "S1", "journal": wanted, "force": force, "by": "ops" });
        let error = w.ask::<Replaced>("terminal.replace", body).await.unwrap_err();
        assert_eq!(error.code, "UNKNOWN_JOURNAL", "{wanted}");
        assert!(error.message.contains(&journal), "{error}");
    }
    assert_eq!(record(&w).await.allowed_journal, None);
    w.submit("p", &["S1"], json!({})).await;
    w.until_state("p", "S1", TaskState::Succeeded, 10_000).await;
}

#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_known_journal_lets_it_in() {
    let (w, journal) = heard().await;
    let body = json!({ "terminal": "S1", "journal": &journal[..6], "by": "ops" });
    let replaced: Replaced = w.ask("terminal.replace", body).await.unwrap();
    assert_eq!(replaced.journal.as_deref(), Some(journal.as_str()), "the whole of it");
    w.submit("p", &["S1"], json!({})).await;
    w.until_state("p", "S1", TaskState::Succeeded, 10_000).await;
    let found = record(&w).await;
    assert_eq!((found.allowed_journal.as_ref(), gets_nothing(&found)), (Some(&journal), None));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_still_to_come_is_forced_in_and_its_tasks_say_why_they_wait() {
    let (w, journal) = heard().await;
    let body = |journal: &str| json!({ "terminal": "S1", "journal": journal, "force": true, "by": "ops" });
    let _: Replaced = w.ask("terminal.replace", body("0badcafe")).await.unwrap();
    w.submit("p", &["S1"], json!({})).await;
    w.sleep(5_000).await;
    let found = record(&w).await;
    assert_eq!((found.allowed_journal.as_deref(), found.rival_journal.as_ref()), (Some("0badcafe"), Some(&journal)));
    assert_eq!(gets_nothing(&found), Some("replaced: the process heard is turned away, the journal let in is not heard yet"));
    assert_eq!(w.task("p", "S1").unwrap().state, TaskState::Pending);
    // Back again, by the beginning of the one that is turned away.
    let _: Replaced = w.ask("terminal.replace", json!({ "terminal": "S1", "journal": &journal[..4] })).await.unwrap();
    w.until_state("p", "S1", TaskState::Succeeded, 20_000).await;
}

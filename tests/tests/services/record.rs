//! Histories in virtual time, recorded for `tests/corpus`. Nothing is recorded in a normal run: see the README there.

use std::path::Path;
use std::sync::Arc;

use fanfold::verify::offline;
use fanfold_domain::ids::{TaskId, TerminalId};
use fanfold_domain::task::TaskState;
use fanfold_wire::api::Noted;
use serde_json::{Value, json};

use fanfold_tests::world::World;
use fanfold_tests::world::terminal::{Act, Options, event, send};

/// Writes a world's log under the current rules, unless there is such a file.
async fn record(w: &World, name: &str) {
    let rules = format!("rules-{}", fanfold_domain::RULES_VERSION);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(rules);
    let file = folder.join(format!("{name}.jsonl"));
    if file.exists() {
        return;
    }
    std::fs::create_dir_all(&folder).unwrap();
    let text: String = w.log().await.iter().map(|m| offline::line(m).unwrap() + "\n").collect();
    std::fs::write(&file, text).unwrap();
}

/// Stores `S0` to `S7`: quick, slow, silent, failing, busy, and one whose results break the schema; messages come late and twice.
async fn mixed() -> World {
    let mut w = World::new().await;
    for n in 0..8_u64 {
        let mut options = Options::new(move |_, attempt| match (n, attempt) {
            (0 | 1, _) => Act::Succeed(300 + 200 * n),
            (2, 1) => Act::Hang,
            (3, 1) => Act::Fail(200, "NET"),
            (4, _) => Act::Fail(100, "BIZ_NO"),
            (5, 1) => Act::Reject("BUSY"),
            (6, 1..=2) => Act::Garbage(150),
            (7, 1) => Act::Miss,
            _ => Act::Succeed(400),
        });
        options.network = Arc::new(move |k| ((k * 37 + n * 91) % 250, (k + n) % 4 == 0));
        w.terminal_with(&format!("S{n}"), options);
    }
    w
}

const STORES: [&str; 10] = ["S0", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "OFF1", "OFF2"];

async fn submit(w: &World, more: Value) {
    w.submit("p", &STORES, more).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "records logs: see tests/corpus/README.md"]
async fn record_histories() {
    let short = json!({ "deadlineMs": 4_000, "expiresMs": 40_000 });

    let w = mixed().await;
    submit(&w, short.clone()).await;
    w.until_over("p", 80_000).await;
    record(&w, "memory-expiry").await;

    let w = mixed().await;
    submit(&w, json!({ "deadlineMs": 4_000, "limits": { "inFlight": 4 } })).await;
    w.sleep(700).await;
    let _: Noted = w.ask("plan.cancel", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    w.until_over("p", 80_000).await;
    record(&w, "memory-cancel").await;

    let w = mixed().await;
    submit(&w, short.clone()).await;
    w.sleep(9_000).await;
    let selector = json!({ "planId": "p", "selector": { "failed": {} } });
    let _: Noted = w.ask("task.requeue", selector).await.unwrap();
    w.sleep(9_000).await;
    let _: Noted = w.ask("plan.close", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    w.until_over("p", 80_000).await;
    record(&w, "memory-requeue-and-close").await;

    // Steps, repeated, late, of a foreign attempt and by a foreign terminal; then silence for longer than the plan allows.
    let mut w = World::new().await;
    w.terminal("S0", |_, n| if n == 1 { Act::Hang } else { Act::Succeed(200) });
    let watched = json!({ "timeouts": { "deliverMs": 3_000, "runMs": 20_000, "progressMs": 2_000 } });
    w.submit("p", &["S0", "S1"], watched).await;
    w.until_state("p", "S0", TaskState::Running, 5_000).await;
    let task = TaskId::parse("p.S0.main").unwrap();
    let step = |attempt: u32, k: u32| {
        event(&task, "attempt.progressed", &json!({ "attempt": attempt, "k": k, "step": format!("step-{k}"), "ms": 10 * k }))
    };
    let (own, other) = (TerminalId::new("S0").unwrap(), TerminalId::new("S1").unwrap());
    for k in [0, 1, 1] {
        send(&w.ledger, &own, &[step(1, k)]).await.unwrap();
        w.sleep(300).await;
    }
    send(&w.ledger, &other, &[step(1, 2)]).await;
    w.until_state("p", "S0", TaskState::Succeeded, 20_000).await;
    send(&w.ledger, &own, &[step(1, 3)]).await;
    let _: Noted = w.ask("plan.close", json!({ "planId": "p", "by": "ops" })).await.unwrap();
    w.until_over("p", 80_000).await;
    record(&w, "memory-progress").await;

    let mut w = mixed().await;
    submit(&w, short).await;
    w.sleep(350).await;
    for store in ["S0", "S2"] {
        let terminal = w.terminals.get_mut(store).unwrap();
        terminal.kill();
        terminal.lose_journal();
        terminal.start();
    }
    w.ledger.set_down(true);
    w.sleep(2_000).await;
    w.ledger.set_down(false);
    w.until_over("p", 80_000).await;
    record(&w, "memory-lost-journals-and-an-outage").await;
}

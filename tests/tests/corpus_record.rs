//! Real runs, recorded for `tests/corpus`. Nothing is recorded in a normal run: see the README there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use fanfold_domain::plan::SummaryKind;
use fanfold_terminal::host::{Fault, Moment};
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{collect_log, noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

/// Writes a plan's events under the current rules, unless there is such a file.
async fn record(stack: &Stack, plan: &str, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("rules-{}", fanfold_domain::RULES_VERSION));
    let file = folder.join(format!("{name}.jsonl"));
    if file.exists() {
        return;
    }
    std::fs::create_dir_all(&folder).unwrap();
    stack.hq.summary(plan, SummaryKind::Final, SOON * 4).await;
    stack.hq.assert_true(plan).await;
    let said = stack.cli().run(&["events", "--plan", plan, "--json"]).await.exits(0);
    std::fs::write(&file, said.stdout).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "records logs: see tests/corpus/README.md"]
async fn record_real_runs() {
    let stack = Stack::together(BIN).await;
    let east = stack
        .fleet("east", &ids(1, 16))
        .collecting_logs()
        .fault("S_002", Fault::Slow)
        .fault("S_003", Fault::Flaky)
        .fault("S_004", Fault::Garbage)
        .fault("S_005", Fault::Hang)
        .fault("S_006", Fault::Duplicate)
        .fault("S_007", Fault::Offline)
        .fault("S_008", Fault::Offline);
    let mut east = east.start().await;
    stack.hq.online(14).await;
    let short = json!({ "deadlineMs": 3_000, "expiresMs": 14_000, "timeouts": { "deliverMs": 3_000, "runMs": 1_500 } });
    stack.hq.submit(&with(collect_log("demo", &ids(1, 18)), short)).await;
    stack.hq.summary("demo", SummaryKind::Partial, SOON).await;
    east.back().await;
    record(&stack, "demo", "real-collect-log-with-faults").await;

    let west = stack.fleet("west", &ids(21, 28)).work_ms(1_500, 2_500).start().await;
    until("the west is there", SOON, async || {
        (stack.hq.terminals().await.iter().filter(|t| t.online).count() >= 20).then_some(())
    })
    .await;
    stack.hq.submit(&with(noop("cancelled", &ids(21, 30)), json!({ "limits": { "inFlight": 5 } }))).await;
    until("some run", SOON, async || (west.account().seen(Moment::Begin) >= 4).then_some(())).await;
    stack.cli().run(&["plan", "cancel", "cancelled"]).await.exits(0);
    record(&stack, "cancelled", "real-cancel").await;

    // A twin takes over in the middle, is noticed, and a person lets one in.
    let mut west = west;
    let begun = west.account().seen(Moment::Begin);
    stack.hq.submit(&with(noop("twin", &ids(21, 26)), json!({ "limits": { "inFlight": 6 }, "expiresMs": 60_000 }))).await;
    until("they run", SOON, async || (west.account().seen(Moment::Begin) >= begun + 6).then_some(())).await;
    let twin = stack.fleet("twin", &ids(21, 22)).start().await;
    until("it is noticed", SOON, async || stack.hq.terminal("S_021").await.filter(|t| t.id_in_use).map(drop)).await;
    west.kill();
    for store in ids(21, 22) {
        stack.cli().run(&["terminal", "replace", &store]).await.exits(0);
    }
    west.restart().await;
    until("it ends or hangs", SOON * 2, async || (stack.hq.succeeded("twin").await >= 4).then_some(())).await;
    drop(twin);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let _ = stack.cli().run(&["plan", "close", "twin"]).await;
    record(&stack, "twin", "real-twin").await;

    let bad = stack.fleet("bad", &ids(31, 34)).fault("S_032", Fault::Hang).fault("S_033", Fault::Flaky).start().await;
    let twice = json!({
        "retry": { "maxAttempts": 2, "backoffMs": [100] }, "deadlineMs": 2_000, "timeouts": { "deliverMs": 3_000, "runMs": 700 },
    });
    stack.hq.submit(&with(noop("people", &ids(31, 36)), twice)).await;
    let tried = async |n| (bad.account().attempts_of("people.S_032.main").len() >= n).then_some(());
    until("it has been tried twice", SOON, async || tried(2).await).await;
    until("it has failed", SOON, async || {
        (stack.hq.task("people.S_032.main").await.status == fanfold_domain::task::TaskState::Failed).then_some(())
    })
    .await;
    stack.cli().run(&["task", "requeue", "people", "--failed"]).await.exits(0);
    until("it is tried again", SOON, async || tried(3).await).await;
    stack.cli().run(&["plan", "close", "people"]).await.exits(0);
    record(&stack, "people", "real-requeue-and-close").await;
}

//! What the log can't give any more: everything goes on behind it, it is named with a way out, and nobody waits for what never comes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use fanfold_domain::plan::SummaryKind;
use fanfold_domain::summary::PlanVerdict;
use fanfold_ledger::conformance::files::{flip, flip_subject};
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{noop, with};
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use fanfold_wire::record::PlanStatus;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");
const LOG: &str = "FANFOLD";

/// Everything is ended in good order, so that the server believes its index afterwards and goes on counting what it can't give; its files
/// are damaged, and everything is started again.
async fn damaged(stack: &mut Stack, damage: impl FnOnce(&Path)) {
    stack.kill("all");
    kill_process(Pid::from_raw(stack.nats.pid().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    stack.nats.exited().await;
    damage(stack.nats.data_dir());
    stack.nats.restart().await.unwrap();
    stack.serve("all", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_word_of_everything_is_lost_and_all_goes_on() {
    let mut stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 8)).start().await;
    stack.hq.online(8).await;
    stack.hq.submit(&with(noop("late", &ids(1, 9)), json!({ "deadlineMs": 2_000 }))).await;
    stack.hq.summary("late", SummaryKind::Partial, SOON).await;
    let words = [ids(1, 8), ids(10, 10)].concat();
    let quick = json!({ "timeouts": { "deliverMs": 2_000, "runMs": 60_000 } });
    stack.hq.submit(&with(noop("words", &words), quick)).await;
    stack.hq.event("words", "one is known to be offline", |e| e.name == "task.deferred").await;
    let slow = stack.fleet("slow", &ids(10, 10)).work_ms(6_000, 6_000).start().await;
    stack.hq.event("words", "it has begun", |e| e.is("attempt.started", "words.S_010.main")).await;
    damaged(&mut stack, |folder| {
        // One whose subject is damaged counts as another's, any other as nobody's.
        flip_subject(folder, LOG, "ff.fence.dispatcher").unwrap();
        for last in ["convergence/", "late/summarised/", "words.S_010.main/task.dispatched/"] {
            flip(folder, LOG, last.as_bytes()).unwrap();
        }
    })
    .await;

    stack.hq.submit(&noop("after", &ids(1, 8))).await;
    stack.hq.summary("after", SummaryKind::Final, SOON).await;
    stack.hq.assert_true("after").await;

    // The summary that was lost is written again, and what is asked for after it is done.
    let again = stack.hq.summary("late", SummaryKind::Partial, SOON).await;
    assert_eq!((again.this.revision, again.counts.succeeded, again.verdict), (1, 8, PlanVerdict::Reserved), "{again:?}");
    stack.cli().run(&["plan", "cancel", "late"]).await.exits(0);
    let last = stack.hq.summary("late", SummaryKind::Final, SOON).await;
    assert_eq!((last.counts.succeeded, last.counts.cancelled), (8, 1), "{last:?}");

    // The hand-out that was lost is made again under the same number; what had run is not run again as that one.
    let last = stack.hq.summary("words", SummaryKind::Final, SOON * 3).await;
    assert_eq!((last.counts.succeeded, last.verdict), (9, PlanVerdict::Reserved), "{last:?}\n{}", stack.hq.told("words").await);
    let ran = slow.account().attempts_of("words.S_010.main");
    assert!(ran.windows(2).all(|two| two[0] < two[1]), "an attempt ran twice: {ran:?}\n{}", stack.hq.told("words").await);
    for plan in ["late", "words"] {
        let holes = stack.hq.plan(plan).await.holes.unwrap_or_else(|| panic!("{plan} tells of none"));
        assert!(holes.count >= 1, "{plan}: {holes:?}");
        let said = stack.cli().run(&["replay", "--plan", plan, "--verify"]).await.exits(1);
        assert!(said.stderr.contains("VERIFY_FAILED") && said.stderr.contains("the log has lost"), "{said:?}");
    }
    stack.cli().run(&["doctor", "--deep"]).await.exits(1).shows(&["and 1 more ranges", "with all of their targets"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_has_lost_its_list_is_named_with_the_way_out_and_nobody_waits_for_its_account() {
    let mut stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 4)).start().await;
    stack.hq.online(4).await;
    for (plan, wanted) in [("sealless", 4), ("short", 4), ("headless", 4), ("whole", 4)] {
        stack.hq.submit(&noop(plan, &ids(1, 5))).await;
        until("all but one are in", SOON, async || (stack.hq.succeeded(plan).await == wanted).then_some(())).await;
    }
    let short = stack.hq.submit(&with(noop("summed", &ids(1, 5)), json!({ "deadlineMs": 1_500 }))).await;
    assert!(short.created);
    stack.hq.summary("summed", SummaryKind::Partial, SOON).await;
    stack.hq.projected(SOON).await;
    damaged(&mut stack, |folder| {
        for lost in ["ff.plan.sealless.sealed", "ff.plan.short.targets", "ff.plan.headless.submitted", "ff.plan.summed.targets"] {
            flip_subject(folder, LOG, lost).unwrap();
        }
    })
    .await;

    let cli = stack.cli();
    cli.run(&["doctor"]).await.exits(1).shows(&[
        "3 damaged, the log has lost part of each: sealless (its seal), short (some of its targets), summed (some of its targets)",
        "fanfold plan close PLAN",
        "the log has lost the beginning of headless",
    ]);
    // Nothing under those ids begins anew, and it is said why.
    for (plan, code, exit) in [("sealless", "PLAN_DAMAGED", 6), ("headless", "PLAN_DAMAGED", 6)] {
        let file = stack.folder().join(format!("{plan}.json"));
        std::fs::write(&file, noop(plan, &ids(1, 5)).to_string()).unwrap();
        let said = cli.run(&["plan", "submit", &file.to_string_lossy(), "--json"]).await.exits(exit);
        assert_eq!(said.error_code(), code, "{said:?}");
    }
    for verb in ["show", "cancel", "close"] {
        let said = cli.run(&["plan", verb, "headless", "--json"]).await.exits(5);
        assert_eq!(said.error_code(), "PLAN_LOST", "{said:?}");
    }
    assert_eq!(cli.run(&["plan", "show", "nobody", "--json"]).await.exits(5).error_code(), "UNKNOWN_PLAN");

    // Nobody waits: not while it is open, and not when it is over.
    let watches = async |state: &str| {
        for plan in ["sealless", "short", "summed"] {
            let said = cli.run(&["plan", "watch", plan, "--json"]).await.exits(1);
            let last = said.stdout.lines().last().unwrap_or_default();
            assert!(last.contains("NO_ACCOUNT") && last.contains("the log has lost"), "{state}: {said:?}");
            let until_partial = cli.run(&["plan", "watch", plan, "--until", "partial"]).await;
            let code = if plan == "summed" { 0 } else { 1 };
            assert_eq!(until_partial.code, Some(code), "{state}: {until_partial:?}");
        }
    };
    watches("open").await;
    for plan in ["sealless", "short"] {
        let said = cli.run(&["summary", plan, "--json"]).await.exits(5);
        assert!(said.error_code() == "SUMMARY_LOST" && said.stdout.contains("plan close"), "{said:?}");
    }
    for plan in ["sealless", "short", "summed"] {
        cli.run(&["plan", "close", plan]).await.exits(0);
        until("it is over", SOON, async || (stack.hq.plan(plan).await.status == PlanStatus::Closed).then_some(())).await;
    }
    watches("closed").await;
    cli.run(&["plan", "show", "short"]).await.exits(0).shows(&["damaged", "closed without a final summary"]);
    cli.run(&["plan", "watch", "summed", "--until", "partial"]).await.exits(0);

    // What was whole ends as ever, but for what it tells of the holes.
    let _late = stack.fleet("late", &ids(5, 5)).start().await;
    let last = stack.hq.summary("whole", SummaryKind::Final, SOON).await;
    assert_eq!(last.counts.succeeded, 5, "{last:?}");
    let said = cli.run(&["doctor"]).await.exits(1);
    assert!(said.stdout.contains("0 open, with all of their targets"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_type_that_can_not_be_read_is_named_and_registered_again() {
    let mut stack = Stack::together(BIN).await;
    let _east = stack.fleet("east", &ids(1, 3)).start().await;
    stack.hq.online(3).await;
    let document = |version: u32| {
        let any = json!({ "type": "object" });
        json!({ "type": "noop", "version": version, "title": format!("version {version}"), "inputSchema": any, "outputSchema": any })
    };
    let file = |version: u32| stack.folder().join(format!("noop{version}.json"));
    let files = [7, 8].map(|version| (version, file(version)));
    for (version, path) in &files {
        std::fs::write(path, document(*version).to_string()).unwrap();
        stack.cli().run(&["type", "register", &path.to_string_lossy()]).await.exits(0);
    }
    // What terminals can run.
    stack.hq.submit(&with(noop("before", &ids(1, 4)), json!({ "type": "noop@1" }))).await;
    until("all but one are in", SOON, async || (stack.hq.succeeded("before").await == 3).then_some(())).await;
    damaged(&mut stack, |folder| {
        flip(folder, "FANFOLD_TYPES", b"version 8").unwrap();
    })
    .await;

    let cli = stack.cli();
    let ls = cli.run(&["type", "ls"]).await.exits(0);
    assert!(ls.stderr.contains("noop@8 can't be read") && ls.stdout.contains("version 7"), "{ls:?}");
    assert_eq!(cli.run(&["type", "ls", "--json"]).await.exits(0).json()["lost"], json!(["noop@8"]));
    for name in ["noop", "noop@8"] {
        assert_eq!(cli.run(&["type", "show", name, "--json"]).await.exits(1).error_code(), "TYPE_DAMAGED", "{name}");
    }
    cli.run(&["type", "show", "noop@7"]).await.exits(0);
    cli.run(&["doctor"]).await.exits(1).shows(&["noop@8 can't be read any more", "type register"]);
    // Neither the newest nor that one is quietly another one.
    for kind in ["noop", "noop@8"] {
        let plan = stack.folder().join("plan.json");
        std::fs::write(&plan, with(noop("during", &ids(1, 3)), json!({ "type": kind })).to_string()).unwrap();
        let said = cli.run(&["plan", "submit", &plan.to_string_lossy(), "--json"]).await.exits(4);
        assert!(said.error_code() == "TYPE_DAMAGED" && said.stdout.contains("type register"), "{kind}: {said:?}");
    }
    stack.hq.submit(&with(noop("older", &ids(1, 3)), json!({ "type": "noop@7" }))).await;
    assert_eq!(stack.hq.plan("older").await.kind, "noop@7");

    // The plan from before has its own copy; the type is there again once it is registered again.
    let _late = stack.fleet("late", &ids(4, 4)).start().await;
    stack.hq.summary("before", SummaryKind::Final, SOON).await;
    stack.hq.assert_true("before").await;
    let again = cli.run(&["type", "register", &files[1].1.to_string_lossy(), "--json"]).await.exits(0).json();
    assert_eq!(again["created"], true, "{again}");
    assert_eq!(cli.run(&["type", "register", &files[1].1.to_string_lossy(), "--json"]).await.exits(0).json()["created"], false);
    stack.hq.submit(&noop("after", &ids(1, 3))).await;
    assert_eq!(stack.hq.plan("after").await.kind, "noop@8");
    cli.run(&["type", "ls"]).await.exits(0).shows(&["version 8"]);
}

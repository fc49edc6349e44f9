//! What is refused at the command line: the code, the words, the exit code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;

use fanfold_process::embedded::{LocateOptions, locate};
use fanfold_tests::cli::{Cli, Said};
use fanfold_tests::fleet::ids;
use fanfold_tests::plans::{collect_log, noop, with};
use fanfold_tests::process::Proc;
use fanfold_tests::stack::Stack;
use fanfold_tests::wait::{SOON, until};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_fanfold-under-test");

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_no_service_and_wrong_credentials_are_told_apart() {
    let nowhere = Cli::new(BIN, &format!("nats://127.0.0.1:{}", free_port()));
    let said = nowhere.run(&["plan", "ls", "--json"]).await.exits(4);
    assert_eq!(said.error_code(), "UNAVAILABLE");
    let said = nowhere.run(&["plan", "ls"]).await.exits(4);
    assert!(said.stderr.contains("error UNAVAILABLE") && said.stderr.contains("fanfold up"), "{}", said.stderr);
    assert!(said.stdout.is_empty());
    // The doctor's finding has the form of every other one, and no advice to ask the doctor.
    let said = nowhere.run(&["doctor", "--json"]).await.exits(4).json();
    let checks: Vec<(&str, &str)> =
        said["checks"].as_array().unwrap().iter().map(|c| (c["what"].as_str().unwrap(), c["health"].as_str().unwrap())).collect();
    assert_eq!(checks, [("server", "bad")]);
    let said = nowhere.run(&["doctor"]).await.exits(4);
    assert!(said.stdout.contains("UNAVAILABLE") && said.stdout.contains("fanfold up"), "{}", said.stdout);
    assert!(!said.stdout.contains("tried again") && !said.stderr.contains("doctor"), "{}{}", said.stdout, said.stderr);

    let stack = Stack::bare(BIN).await;
    let said = stack.cli().run(&["plan", "ls", "--json"]).await.exits(4);
    assert_eq!(said.error_code(), "NO_SERVICE");
    stack.cli().run(&["doctor", "--wait", "100ms"]).await.exits(1).shows(&["bad", "fanfold serve"]);
    // With a log and without services each one that is missing is named by its role.
    let mut left = Stack::together(BIN).await;
    left.kill("all");
    let said = left.cli().run(&["doctor", "--wait", "100ms"]).await.exits(1);
    for role in ["api", "recorder", "dispatcher", "convergence", "projector"] {
        let (mut lines, begin) = (said.stdout.lines(), format!("bad   {role} "));
        let found = lines.find(|l| l.starts_with(&begin)).unwrap_or_else(|| panic!("{role}:\n{}", said.stdout));
        let advice = lines.next().unwrap_or_default();
        let named = [found, advice].concat();
        assert!(advice.contains(&format!("--role {role}")), "{role}:\n{}", said.stdout);
        assert!(role == "api" || !named.contains("--role api"), "{role}:\n{}", said.stdout);
    }
    // What a command can't use is not passed over.
    for args in [vec!["demo"], vec!["up", "--data", "/nonexistent/never-made"]] {
        let given = nowhere.run(&args).await.exits(2);
        assert!(given.stderr.contains("does not use --nats"), "{}", given.stderr);
    }
    let shares = nowhere.run(&["demo", "--offline", "0.9", "--slow", "0.5"]).await.exits(2);
    assert!(shares.stderr.contains("--offline 0.9") && !shares.stderr.contains("nats-server"), "{}", shares.stderr);

    let garbage = stack.folder().join("garbage.creds");
    std::fs::write(&garbage, "no credentials at all").unwrap();
    for creds in [garbage.to_str().unwrap(), "/nonexistent.creds"] {
        let said = stack.cli().run(&["plan", "ls", "--json", "--creds", creds]).await.exits(4);
        assert_eq!(said.error_code(), "UNAUTHORIZED");
        assert!(said.stdout.contains("--creds"), "{}", said.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_password_is_not_a_server_that_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let binary = tokio::task::spawn_blocking(|| locate(&LocateOptions::from_env(), &|_: &str| ())).await.unwrap().unwrap().path;
    let (port, config) = (free_port(), folder.path().join("server.conf"));
    std::fs::write(&config, format!("host: 127.0.0.1\nport: {port}\nauthorization {{ user: hq, password: secret }}\n")).unwrap();
    let binary = binary.to_string_lossy().into_owned();
    let _server = Proc::start("locked", &binary, &["--config", config.to_str().unwrap()], folder.path(), &[]);
    until("the server listens", SOON, async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    for url in [format!("nats://127.0.0.1:{port}"), format!("nats://hq:wrong@127.0.0.1:{port}")] {
        let said = Cli::new(BIN, &url).run(&["plan", "ls", "--json"]).await.exits(4);
        assert_eq!(said.error_code(), "UNAUTHORIZED", "{}", said.stdout);
        let shown = format!("{}{}", said.stdout, said.stderr);
        assert!(!shown.contains("wrong@"), "the password is shown: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_to_be_not_there() {
    let stack = Stack::together(BIN).await;
    let cli = stack.cli();
    let cases: [(&[&str], &str, i32); 9] = [
        (&["plan", "show", "nope"], "UNKNOWN_PLAN", 5),
        (&["plan", "cancel", "nope"], "UNKNOWN_PLAN", 5),
        (&["plan", "close", "nope"], "UNKNOWN_PLAN", 5),
        (&["summary", "nope"], "UNKNOWN_PLAN", 5),
        (&["task", "ls", "nope"], "UNKNOWN_PLAN", 5),
        (&["task", "show", "nope.S_1.main"], "UNKNOWN_PLAN", 5),
        (&["task", "requeue", "nope", "--failed"], "UNKNOWN_PLAN", 5),
        (&["replay", "--plan", "nope", "--verify"], "UNKNOWN_PLAN", 5),
        (&["terminal", "replace", "S_1"], "UNKNOWN_TERMINAL", 5),
    ];
    for (args, code, exit) in cases {
        let said = cli.run(&[args, &["--json"]].concat()).await.exits(exit);
        assert_eq!(said.error_code(), code, "{}", said.command);
    }
    stack.hq.submit(&noop("here", &ids(1, 2))).await;
    let said = cli.run(&["task", "show", "here.S_9.main", "--json"]).await.exits(5);
    assert_eq!(said.error_code(), "UNKNOWN_TASK");
    let said = cli.run(&["summary", "here", "--json"]).await.exits(5);
    assert_eq!(said.error_code(), "NO_SUMMARY");
    let said = cli.run(&["task", "requeue", "here", "--task", "S_1", "--task", "S_001", "--json"]).await;
    assert_eq!((said.code, said.error_code().as_str()), (Some(5), "UNKNOWN_TASK"), "{}", said.stdout);
    let said = cli.run(&["task", "requeue", "here", "--task", "S_001", "--json"]).await.exits(6);
    assert_eq!(said.error_code(), "NOT_FAILED");
    for args in [&["plan", "show"][..], &["frobnicate"], &["plan", "show", "not.an.id"], &["summary", "x", "--format", "xml"]] {
        cli.run(args).await.exits(2);
    }
}

async fn submit(stack: &Stack, plan: &str) -> Said {
    let file = stack.folder().join("plan.json");
    std::fs::write(&file, plan).unwrap();
    stack.cli().run(&["plan", "submit", file.to_str().unwrap(), "--json"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_plan_is_refused_with_everything_that_is_wrong_with_it() {
    let stack = Stack::together(BIN).await;
    let good = || noop("bad", &ids(1, 2));
    let without = |name: &str| {
        let mut plan = good();
        plan.as_object_mut().unwrap().remove(name);
        plan
    };
    let cases: Vec<(Value, &str, i32)> = vec![
        (with(good(), json!({ "deadlinMs": 5 })), "UNKNOWN_FIELD", 3),
        (without("targets"), "MISSING_FIELD", 3),
        (with(good(), json!({ "planId": "a b" })), "BAD_ID", 3),
        (with(good(), json!({ "targets": { "stores": ["S_1", "S.2"] } })), "BAD_TARGET", 3),
        (with(good(), json!({ "targets": { "stores": ["S_1", "S_1"] } })), "DUPLICATE_TARGET", 3),
        (with(good(), json!({ "limits": { "inFlight": 0 } })), "LIMIT_OUT_OF_RANGE", 3),
        (with(without("deadlineMs"), json!({ "deadlineAt": "2020-01-01T00:00:00Z" })), "DEADLINE_PAST", 3),
        (with(good(), json!({ "expiresMs": 10 })), "EXPIRY_BEFORE_DEADLINE", 3),
        (with(good(), json!({ "type": "no_such_type" })), "UNKNOWN_TYPE", 5),
        (with(collect_log("bad", &ids(1, 2)), json!({ "input": { "date": 7 } })), "INPUT_INVALID", 3),
    ];
    let mut wrong = Vec::new();
    for (plan, code, exit) in cases {
        let said = submit(&stack, &plan.to_string()).await;
        let found = said.json().pointer("/error/code").and_then(Value::as_str).map(ToOwned::to_owned);
        if found.as_deref() != Some(code) || said.code != Some(exit) {
            wrong.push(format!("{code} {exit}: {:?} {}", said.code, said.stdout));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let said = submit(&stack, "{ not json").await.exits(3);
    assert_eq!(said.error_code(), "NOT_JSON");

    let several = with(good(), json!({ "planId": "a b", "deadlinMs": 5, "limits": { "inFlight": 0 } }));
    let problems = submit(&stack, &several.to_string()).await.exits(3).json()["error"]["problems"].clone();
    let mut codes: Vec<&str> = problems.as_array().unwrap().iter().filter_map(|p| p["code"].as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["BAD_ID", "LIMIT_OUT_OF_RANGE", "UNKNOWN_FIELD"], "{problems:#}");
    assert!(stack.hq.read(&["ff.plan.>"]).await.is_empty(), "nothing of it is in the log");
}

//! Plan documents: the example of the README is accepted, and what is wrong with others is said with a code, a path and in full.

use std::time::Instant;

use fanfold_domain::plan::{Below, Moment, PlanSpec};
use fanfold_domain::retry::Backoff;
use fanfold_wire::api::Problem;
use fanfold_wire::document::PlanDocument;
use fanfold_wire::types::TypeDocument;
use serde_json::{Value, json};

use crate::support::{assert_valid, goldens, read, schema};

/// 17 September 2026, 18:00 UTC, epoch ms.
const NOW_MS: i64 = 1_789_668_000_000;

fn collect_log() -> TypeDocument {
    let text = |file: &str| read(&format!("types/collect_log/1/{file}.json"));
    TypeDocument::parse(&TypeDocument::assemble(&text("type"), &text("input"), &text("output")).unwrap()).unwrap()
}

fn resolve(bytes: &[u8]) -> Result<(PlanSpec, Vec<String>), Vec<Problem>> {
    let (spec, targets) = PlanDocument::parse(bytes)?.resolve(&collect_log(), NOW_MS, None)?;
    Ok((spec, targets.iter().map(ToString::to_string).collect()))
}

fn golden(variant: &str) -> Value {
    goldens("plan").into_iter().find(|g| g.variant == variant).unwrap().value
}

fn codes_and_paths(problems: &[Problem]) -> Vec<(&str, &str)> {
    problems.iter().map(|p| (p.code.as_str(), p.path.as_str())).collect()
}

/// The example with one value changed, or removed with `None`.
fn changed(pointer: &str, to: Option<Value>) -> Vec<u8> {
    let mut plan = golden("example");
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = plan.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match to {
        Some(value) => parent.insert(name.to_owned(), value),
        None => parent.remove(name),
    };
    serde_json::to_vec(&plan).unwrap()
}

#[test]
fn goldens_are_accepted() {
    for golden in goldens("plan") {
        assert_valid(&schema("plan"), &golden.variant, &golden.value);
        resolve(&golden.bytes()).unwrap_or_else(|problems| panic!("{}: {problems:?}", golden.variant));
    }
}

/// The document that README and `up` point at: whoever hands it out today or in ten years gets a plan.
#[test]
fn the_plan_of_the_docs_can_be_handed_out_at_any_time() {
    let text = read("../docs/examples/plan.json");
    let mut value: Value = serde_json::from_str(&text).unwrap();
    assert!(value.get("planId").is_none(), "a second submission would be the same plan");
    // As `plan submit` does where there is none.
    value["planId"] = json!("plan_1");
    assert_valid(&schema("plan"), "docs/examples/plan.json", &value);
    let text = value.to_string();
    for year in [0, 10, 50] {
        let now_ms = NOW_MS + year * 366 * 86_400_000;
        let plan = PlanDocument::parse(text.as_bytes()).unwrap();
        let (spec, targets) = plan.resolve(&collect_log(), now_ms, None).unwrap();
        assert_eq!((spec.deadline, spec.expires), (Moment::AfterSealMs(120_000), Moment::AfterSealMs(3_600_000)));
        assert_eq!(targets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["SH_0312", "SH_0313"], "the README's stores");
    }
}

#[test]
fn the_example_means_what_it_says() {
    let (spec, targets) = resolve(&serde_json::to_vec(&golden("example")).unwrap()).unwrap();
    assert_eq!(targets, ["SH_0312", "SH_0313"]);
    assert_eq!((spec.kind.name.as_str(), spec.kind.version), ("collect_log", 1));
    assert_eq!((spec.deadline, spec.expires), (Moment::AfterSealMs(120_000), Moment::AfterSealMs(86_400_000)));
    assert_eq!((spec.limits.in_flight, spec.converge.min_success, spec.converge.below), (100, 0.9, Below::Reserved));
    assert_eq!((spec.retry.max_attempts, &spec.retry.backoff_ms), (3, &Backoff::List(vec![300, 600])));
    assert_eq!((spec.timeouts.deliver_ms, spec.timeouts.run_ms, spec.timeouts.progress_ms), (10_000, 300_000, None));
    assert_eq!(spec.input.get(), r#"{"date":"2026-09-17"}"#);
    assert_eq!(spec.aggregates.len(), 5);
    assert_eq!((spec.title.as_deref(), spec.business_key.as_deref()), (Some("Logs of 17 September"), Some("ops-2026-09-17")));
}

#[test]
fn content_is_told_apart_by_everything_but_the_id_and_the_order_of_members() {
    let digest = |bytes: &[u8]| PlanDocument::parse(bytes).unwrap().content_sha256;
    let example = digest(&serde_json::to_vec(&golden("example")).unwrap());
    assert_eq!(example, digest(serde_json::to_string_pretty(&golden("example")).unwrap().as_bytes()));
    assert_eq!(example, digest(&changed("/planId", Some(json!("another")))));
    assert_ne!(example, digest(&changed("/title", Some(json!("another")))));
    assert_ne!(example, digest(&changed("/targets/stores", Some(json!(["SH_0313", "SH_0312"])))));
    // A stored plan is compared by this digest for ever.
    assert_eq!(example, "8ea903615bd05e11ff940ce5dd7b512174cc47c4258fb5f5f0fc6a589ca7abea");
}

#[test]
fn what_is_wrong_is_said_with_a_code_and_a_path() {
    let cases: Vec<(&str, Option<Value>, &str)> = vec![
        ("/tittle", Some(json!("x")), "UNKNOWN_FIELD /tittle"),
        ("/retry/maxTries", Some(json!(3)), "UNKNOWN_FIELD /retry/maxTries"),
        ("/targets/regions", Some(json!(["NL"])), "UNKNOWN_FIELD /targets/regions"),
        ("/type", None, "MISSING_FIELD /type"),
        ("/planId", None, "MISSING_FIELD /planId"),
        ("/input", None, "MISSING_FIELD /input"),
        ("/targets", None, "MISSING_FIELD /targets"),
        ("/targets", Some(json!({})), "MISSING_FIELD /targets/stores"),
        ("/retry/backoffMs", Some(json!({"baseMs": 1, "factor": 2})), "MISSING_FIELD /retry/backoffMs/maxMs"),
        ("/targets/stores", Some(json!([])), "NO_TARGETS /targets/stores"),
        ("/targets/stores", Some(json!("SH_0312")), "INVALID_PLAN /targets/stores"),
        ("/planId", Some(json!("plan 7788")), "BAD_ID /planId"),
        ("/planId", Some(json!("")), "BAD_ID /planId"),
        ("/type", Some(json!("collect.log")), "BAD_ID /type"),
        ("/type", Some(json!("collect_log@zero")), "UNKNOWN_TYPE /type"),
        ("/title", Some(json!(7)), "INVALID_PLAN /title"),
        ("/title", Some(json!("x".repeat(201))), "LIMIT_OUT_OF_RANGE /title"),
        ("/deadlineMs", Some(json!("soon")), "INVALID_PLAN /deadlineMs"),
        ("/converge/below", Some(json!("ignore")), "INVALID_PLAN /converge/below"),
        ("/deadlineMs", Some(json!(0)), "LIMIT_OUT_OF_RANGE /deadlineMs"),
        ("/deadlineMs", Some(json!(i64::MAX)), "LIMIT_OUT_OF_RANGE /deadlineMs"),
        ("/limits/inFlight", Some(json!(-1)), "LIMIT_OUT_OF_RANGE /limits/inFlight"),
        ("/limits/inFlight", Some(json!(0)), "LIMIT_OUT_OF_RANGE /limits/inFlight"),
        ("/limits/inFlight", Some(json!(4_294_967_296_u64)), "LIMIT_OUT_OF_RANGE /limits/inFlight"),
        ("/limits/inFlight", Some(json!(1.0e300)), "LIMIT_OUT_OF_RANGE /limits/inFlight"),
        ("/limits/inFlight", Some(json!(1.5)), "INVALID_PLAN /limits/inFlight"),
        // A whole number to JSON Schema, no integer to whoever reads it.
        ("/deadlineMs", Some(json!(1.0)), "INVALID_PLAN /deadlineMs"),
        ("/retry/backoffMs", Some(json!([300, 600.0])), "INVALID_PLAN /retry/backoffMs/1"),
        ("/converge/minSuccess", Some(json!(1.1)), "LIMIT_OUT_OF_RANGE /converge/minSuccess"),
        ("/retry/maxAttempts", Some(json!(0)), "LIMIT_OUT_OF_RANGE /retry/maxAttempts"),
        ("/retry/maxAttempts", Some(json!(1000)), "LIMIT_OUT_OF_RANGE /retry/maxAttempts"),
        ("/retry/jitter", Some(json!(-0.1)), "LIMIT_OUT_OF_RANGE /retry/jitter"),
        ("/retry/backoffMs", Some(json!([300, -600])), "LIMIT_OUT_OF_RANGE /retry/backoffMs/1"),
        ("/retry/backoffMs", Some(json!(300)), "INVALID_PLAN /retry/backoffMs"),
        ("/timeouts/runMs", Some(json!(1)), "LIMIT_OUT_OF_RANGE /timeouts/runMs"),
        ("/deadlineAt", Some(json!("2026-09-18T00:00:00Z")), "INVALID_PLAN /deadlineAt"),
        ("/input", Some(json!({"date": "2026-09-17", "pad": "x".repeat(65_536)})), "TOO_LARGE /input"),
    ];
    for (pointer, to, wanted) in cases {
        let problems = PlanDocument::parse(&changed(pointer, to)).unwrap_err();
        let [problem] = problems.as_slice() else { panic!("{wanted}: {problems:?}") };
        assert_eq!(format!("{} {}", problem.code, problem.path), wanted, "{problem}");
        assert!(!problem.message.is_empty());
    }
}

#[test]
fn what_is_no_plan_at_all_is_refused() {
    for text in ["", "nonsense", "{\"planId\":", "{\"planId\":1}}", "\u{0}"] {
        let problems = PlanDocument::parse(text.as_bytes()).unwrap_err();
        assert_eq!(codes_and_paths(&problems), [("NOT_JSON", "")], "{text}");
    }
    assert_eq!(PlanDocument::parse(b"\xff\xfe").unwrap_err()[0].code, "NOT_JSON");
    assert_eq!(codes_and_paths(&PlanDocument::parse(b"[]").unwrap_err()), [("INVALID_PLAN", "")]);
    let missing = PlanDocument::parse(b"{}").unwrap_err();
    let mut paths = codes_and_paths(&missing);
    paths.sort();
    let wanted = ["/input", "/planId", "/targets", "/type"].map(|path| ("MISSING_FIELD", path));
    assert_eq!(paths, wanted);
}

#[test]
fn a_member_that_is_written_twice_is_said_with_its_path() {
    let text = String::from_utf8(serde_json::to_vec(&golden("minimal")).unwrap()).unwrap();
    for (more, path) in [
        (r#","title":"a","title":"b"}"#, "/title"),
        (r#","limits":{"inFlight":1,"inFlight":2}}"#, "/limits/inFlight"),
        (r#","timeouts":{"runMs":1000},"timeouts":{"runMs":2000}}"#, "/timeouts"),
    ] {
        let text = format!("{}{more}", text.strip_suffix('}').unwrap());
        let problems = PlanDocument::parse(text.as_bytes()).unwrap_err();
        assert_eq!(codes_and_paths(&problems), [("DUPLICATE_KEY", path)], "{text}");
    }
}

#[test]
fn inputs_are_checked_against_the_type() {
    for (input, path) in [(json!({"date": "17/9"}), "/date"), (json!({"date": "2026-09-17", "maxBytes": 0}), "/maxBytes")] {
        let problems = resolve(&changed("/input", Some(input))).unwrap_err();
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!(problem.code, "INPUT_INVALID");
        assert!(problem.path.starts_with("/input"), "{problem}");
        assert!(problem.to_string().contains(path), "{problem}");
        assert!(problem.message.contains("collect_log@1"), "{problem}");
    }
    let problems = resolve(&changed("/input", Some(json!({"dat": 1})))).unwrap_err();
    assert_eq!(problems.len(), 2, "the misspelt field and the missing one: {problems:?}");
}

#[test]
fn every_bad_target_is_listed() {
    let mut stores: Vec<Value> = (0..50).map(|i| json!(format!("SH_{i:04}"))).collect();
    stores[3] = json!("SH 0003");
    stores[7] = json!("SH_0001");
    stores[20] = json!("");
    stores[41] = json!("SH.0041");
    stores[49] = json!("SH_0001");
    let problems = PlanDocument::parse(&changed("/targets/stores", Some(json!(stores)))).unwrap_err();
    assert_eq!(
        codes_and_paths(&problems),
        [
            ("BAD_TARGET", "/targets/stores/3"),
            ("DUPLICATE_TARGET", "/targets/stores/7"),
            ("BAD_TARGET", "/targets/stores/20"),
            ("BAD_TARGET", "/targets/stores/41"),
            ("DUPLICATE_TARGET", "/targets/stores/49"),
        ]
    );
    assert_eq!(problems[1].value, "SH_0001");
}

#[test]
fn problems_of_different_kinds_come_together() {
    let mut plan = golden("example");
    plan["targets"]["stores"] = json!(["SH_0001", "SH_0001", "?"]);
    plan["limits"]["inFlight"] = json!(0);
    plan["color"] = json!("red");
    plan["planId"] = json!("-");
    let problems = PlanDocument::parse(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
    let mut codes: Vec<&str> = problems.iter().map(|p| p.code.as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["BAD_ID", "BAD_TARGET", "DUPLICATE_TARGET", "LIMIT_OUT_OF_RANGE", "UNKNOWN_FIELD"]);
}

#[test]
fn what_is_said_about_a_huge_value_is_short() {
    let huge = "x".repeat(1_000_000);
    let stores: Vec<&str> = vec![&huge];
    let documents = [
        changed("/planId", Some(json!(huge))),
        changed("/targets/stores", Some(json!(stores))),
        changed("/title", Some(json!(huge))),
        changed("/type", Some(json!(huge))),
        changed("/deadlineAt", Some(json!(huge))),
        changed(&format!("/{huge}"), Some(json!(1))),
    ];
    for (i, document) in documents.iter().enumerate() {
        let problems = PlanDocument::parse(document).unwrap_err();
        let said: usize = problems.iter().map(|p| p.to_string().len()).sum();
        assert!(said < 1_500, "document {i}: {said} bytes");
    }
    let mut plan = golden("example");
    (0..10_000).for_each(|i| plan[format!("field{i}")] = json!(i));
    assert!(PlanDocument::parse(&serde_json::to_vec(&plan).unwrap()).unwrap_err().len() <= 16, "a bounded list");
}

#[test]
fn the_largest_plan_is_read_in_reasonable_time_and_a_larger_one_refused() {
    let plan = |count: usize| {
        let stores: Vec<String> = (0..count).map(|i| format!("SH_{i:07}")).collect();
        changed("/targets/stores", Some(json!(stores)))
    };
    let (begun, document) = (Instant::now(), plan(100_000));
    assert_eq!(PlanDocument::parse(&document).unwrap().targets.len(), 100_000);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let problems = PlanDocument::parse(&plan(1_000_001)).unwrap_err();
    assert_eq!(codes_and_paths(&problems), [("LIMIT_OUT_OF_RANGE", "/targets/stores")]);
}

#[test]
fn moments_must_lie_ahead_and_in_order() {
    let mut plan = golden("absolute-moments");
    plan["deadlineAt"] = json!("2026-09-17T17:59:59Z");
    let problems = resolve(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
    assert_eq!(codes_and_paths(&problems), [("DEADLINE_PAST", "/deadlineAt")]);
    assert!(problems[0].value.contains("17:59:59"), "{}", problems[0]);
    plan["deadlineAt"] = json!("2026-09-19T00:00:00Z");
    let problems = resolve(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
    assert_eq!(codes_and_paths(&problems), [("EXPIRY_BEFORE_DEADLINE", "/expiresAt")]);
    let problems = resolve(&changed("/expiresMs", Some(json!(1)))).unwrap_err();
    assert_eq!(problems[0].code, "EXPIRY_BEFORE_DEADLINE");
    let mut far = golden("absolute-moments");
    far["deadlineAt"] = json!("2027-09-20T00:00:00Z");
    far["expiresAt"] = json!("2127-01-01T00:00:00Z");
    let problems = resolve(&serde_json::to_vec(&far).unwrap()).unwrap_err();
    assert_eq!(codes_and_paths(&problems), [("LIMIT_OUT_OF_RANGE", "/deadlineAt"), ("LIMIT_OUT_OF_RANGE", "/expiresAt")]);
    plan["deadlineAt"] = json!("next week");
    let problems = PlanDocument::parse(&serde_json::to_vec(&plan).unwrap()).unwrap_err();
    assert_eq!(codes_and_paths(&problems), [("INVALID_PLAN", "/deadlineAt")]);
}

#[test]
fn a_plan_that_is_silent_gets_the_defaults_of_its_type_and_then_ours() {
    let (spec, _) = resolve(&serde_json::to_vec(&golden("minimal")).unwrap()).unwrap();
    assert_eq!(spec.retry.business, ["NO_SUCH_DATE", "BAD_INPUT"]);
    assert_eq!((spec.limits.in_flight, spec.converge.min_success), (1_000, 1.0));
    assert_eq!((spec.deadline, spec.expires), (Moment::AfterSealMs(120_000), Moment::AfterSealMs(86_400_000)));
    let (spec, _) = resolve(&serde_json::to_vec(&golden("absolute-moments")).unwrap()).unwrap();
    assert_eq!(spec.deadline, Moment::AtMs(NOW_MS + 2 * 3_600_000));
    assert_eq!(spec.retry.backoff_ms, Backoff::Exponential { base_ms: 1_000, factor: 2, max_ms: 60_000 });
    // A far deadline pulls the default expiry along.
    let far: Vec<u8> = {
        let mut plan = golden("minimal");
        plan["deadlineMs"] = json!(31_000_000_000_i64);
        serde_json::to_vec(&plan).unwrap()
    };
    assert_eq!(resolve(&far).unwrap().0.expires, Moment::AfterSealMs(62_000_000_000));
}

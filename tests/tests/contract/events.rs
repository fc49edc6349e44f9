//! Events of the log: each name has a schema and goldens, and each encoder writes what its schema says.

use std::collections::BTreeSet;

use fanfold_domain::event::{TaskEvent, Writer};
use fanfold_domain::ids::{PlanId, TaskId, TerminalId};
use fanfold_domain::plan::PlanEvent;
use fanfold_wire::event::{
    Envelope, Header, LogEvent, decision_id, decode, encode, plan_data, plan_event_id, report_id, same_content, targets_id,
    task_data,
};
use fanfold_wire::subjects;
use serde_json::Value;

use crate::samples::{self, FENCE, plan_events, plan_variant, task_events, task_variant};
use crate::support::{assert_valid, bad, check_kind, folders, goldens, schema, stems};

/// Every event name there is, as in the CloudEvents type.
fn names() -> BTreeSet<String> {
    let tasks = task_events();
    let places: BTreeSet<usize> = tasks.iter().map(|e| task_variant(e).0).collect();
    assert_eq!(places.len(), task_variant(&tasks[0]).1, "samples of every task event");
    let plans = plan_events();
    let places: BTreeSet<usize> = plans.iter().map(|e| plan_variant(e).0).collect();
    assert_eq!(places.len(), plan_variant(&plans[0]).1, "samples of every plan event");
    let names = tasks.iter().map(|e| e.name().to_owned()).chain(plans.iter().map(|e| format!("plan.{}", e.name())));
    names.chain([FENCE.to_owned()]).collect()
}

fn file_of(name: &str) -> String {
    name.replace('.', "_")
}

/// The subject of the log an event's envelope belongs to, and the name the envelope gives it.
fn subject_of(bytes: &[u8]) -> Result<(String, String), String> {
    let envelope = Envelope::parse(bytes).map_err(|e| e.to_string())?;
    let name = envelope.name().map_err(|e| e.to_string())?.to_owned();
    let about = envelope.subject.as_deref().ok_or("no subject")?;
    let task = || TaskId::parse(about).map_err(|e| e.to_string());
    let subject = match name.split_once('.') {
        Some(("plan", event)) => subjects::plan_event(&PlanId::new(about).map_err(|e| e.to_string())?, event),
        Some(("task", _)) => subjects::task_decision(&task()?, None),
        Some(("attempt", _)) => {
            let by = envelope.id.as_deref().and_then(|id| id.split('/').nth(2)).ok_or("no terminal in the id")?;
            subjects::task_report(&task()?, &TerminalId::new(by).map_err(|e| e.to_string())?)
        }
        _ => subjects::fence(about),
    };
    Ok((subject, name))
}

/// Reads a stored event as every service does and writes it again under its own header.
fn rewrite(bytes: &[u8]) -> Result<Value, String> {
    let (subject, name) = subject_of(bytes)?;
    let envelope = Envelope::parse(bytes).map_err(|e| e.to_string())?;
    let event = decode(77, 1_789_000_000_000, &subject, bytes).map_err(|e| e.to_string())?;
    let data = match &event {
        LogEvent::Plan(_, logged) => plan_data(&logged.event),
        LogEvent::Task(_, logged) => task_data(&logged.event),
        LogEvent::Fence(_) => Ok(envelope.data.to_owned()),
    };
    let header = Header {
        id: envelope.id.as_deref().unwrap_or(""),
        source: envelope.source.as_deref().unwrap_or(""),
        subject: envelope.subject.as_deref().unwrap_or(""),
        time_ms: envelope.time.as_deref().and_then(fanfold_wire::timestamp::from_rfc3339),
        traceparent: envelope.traceparent.as_deref(),
    };
    let written = encode(&name, &data.map_err(|e| e.to_string())?, header).map_err(|e| e.to_string())?;
    serde_json::from_slice(&written).map_err(|e| e.to_string())
}

#[test]
fn every_event_has_a_schema_and_goldens_and_nothing_else_has() {
    let wanted: Vec<String> = names().iter().map(|name| file_of(name)).collect();
    let schemas: Vec<String> = stems("event").iter().map(|stem| stem.trim_end_matches(".v1").to_owned()).collect();
    let mut sorted = wanted.clone();
    sorted.sort();
    assert_eq!(schemas, sorted, "schemas/event");
    assert_eq!(folders("golden/event"), sorted, "schemas/golden/event");
    for kind in folders("golden/bad/event") {
        assert!(wanted.contains(&kind), "golden/bad/event/{kind} is about no event");
        assert!(!bad(&format!("event/{kind}")).is_empty());
    }
}

#[test]
fn goldens_are_read_and_written_again_and_bad_ones_refused() {
    for name in names() {
        check_kind(&format!("event/{}", file_of(&name)), rewrite);
    }
}

#[test]
fn ids_of_goldens_are_what_the_code_computes() {
    for name in names() {
        for golden in goldens(&format!("event/{}", file_of(&name))).iter().filter(|g| g.is_canonical()) {
            let bytes = golden.bytes();
            let stated = golden.value["id"].as_str().unwrap().to_owned();
            let (subject, _) = subject_of(&bytes).unwrap();
            let position = |i: usize| stated.split('/').nth(i).unwrap().parse::<u64>().unwrap();
            let computed = match decode(1, 0, &subject, &bytes).unwrap() {
                LogEvent::Plan(plan, logged) if matches!(logged.event, PlanEvent::Targets { .. }) => {
                    targets_id(&plan, usize::try_from(position(2)).unwrap())
                }
                LogEvent::Plan(plan, logged) => {
                    plan_event_id(&plan, &logged.event, position(2), &plan_data(&logged.event).unwrap())
                }
                LogEvent::Task(task, logged) => match &logged.writer {
                    Writer::Hq => decision_id(&task, &logged.event, position(2)),
                    Writer::Terminal(by) => report_id(&task, by, &logged.event),
                },
                LogEvent::Fence(role) => {
                    assert_eq!(golden.value["data"]["role"], role.as_str());
                    format!("{role}/{}/{}", golden.value["data"]["incarnation"].as_str().unwrap(), golden.value["data"]["number"])
                }
            };
            assert_eq!(computed, stated, "{name}/{}", golden.variant);
        }
    }
}

fn header<'a>(id: &'a str, subject: &'a str, full: bool) -> Header<'a> {
    let traceparent = full.then_some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    Header { id, source: "/fanfold/test", subject, time_ms: full.then_some(1_789_000_000_123), traceparent }
}

#[test]
fn what_the_encoders_write_satisfies_the_schemas() {
    let (task, by, plan) = (samples::task_id("SH_0312"), samples::terminal("SH_0312"), samples::plan_id());
    let check = |name: &str, id: &str, about: &str, data: &serde_json::value::RawValue, subject: &str| {
        for full in [true, false] {
            let bytes = encode(name, data, header(id, about, full)).unwrap();
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_valid(&schema(&format!("event/{}", file_of(name))), name, &value);
            assert_eq!(rewrite(&bytes).unwrap(), value, "{name} on {subject}");
            assert_eq!(subject_of(&bytes).unwrap().0, subject);
            assert!(same_content(&bytes, &encode(name, data, header(id, about, !full)).unwrap()), "the header is not content");
        }
    };
    for event in task_events() {
        let data = task_data(&event).unwrap();
        let (id, subject) = if event.is_decision() {
            (decision_id(&task, &event, 12), subjects::task_decision(&task, None))
        } else {
            (report_id(&task, &by, &event), subjects::task_report(&task, &by))
        };
        check(event.name(), &id, &task.to_string(), &data, &subject);
    }
    for event in plan_events() {
        let data = plan_data(&event).unwrap();
        let id = match event {
            PlanEvent::Targets { .. } => targets_id(&plan, 3),
            _ => plan_event_id(&plan, &event, 12, &data),
        };
        check(&format!("plan.{}", event.name()), &id, plan.as_str(), &data, &subjects::plan_event(&plan, event.name()));
    }
}

#[test]
fn schemas_refuse_an_event_of_another_type() {
    let names: Vec<String> = names().into_iter().collect();
    for (i, name) in names.iter().enumerate() {
        let other = &names[(i + 1) % names.len()];
        let golden = goldens(&format!("event/{}", file_of(name))).remove(0);
        assert!(!schema(&format!("event/{}", file_of(other))).check(&golden.value).is_empty(), "{other} accepts {name}");
    }
}

#[test]
fn identity_comes_from_the_subject_and_not_from_the_envelope() {
    let golden = goldens("event/attempt_started").remove(0);
    let event = decode(5, 0, "ff.task.other.SH_9999.main.by.SH_9999", &golden.bytes()).unwrap();
    let LogEvent::Task(task, logged) = event else { panic!("a task event") };
    assert_eq!(task.to_string(), "other.SH_9999.main");
    assert_eq!(logged.writer, Writer::Terminal(samples::terminal("SH_9999")));
    assert!(matches!(logged.event, TaskEvent::Started { attempt: 1 }));
}

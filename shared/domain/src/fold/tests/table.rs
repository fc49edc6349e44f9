//! Every situation against every kind of event, with an expectation written down by hand from the table, not from the code.

use crate::event::TimeoutKind::{Delivery, Progress, Run};
use crate::fold::Effect;
use crate::plan::PlanEvent;
use crate::task::TaskState;
use crate::testing::{By, Said, Story, by, hq};

/// Kinds of events, about attempt n; the columns of [`EXPECTED`].
fn events(n: u32) -> Vec<(&'static str, Said)> {
    let foreign = (By::Other, by::succeeded(n).1);
    vec![
        ("dispatched n+1", hq::dispatched(n + 1)),
        ("deferred", hq::deferred(None)),
        ("released", hq::released()),
        ("timed out delivery", hq::timed_out(n, Delivery)),
        ("timed out run", hq::timed_out(n, Run)),
        ("timed out progress", hq::timed_out(n, Progress)),
        ("lost", hq::lost(n)),
        ("stop requested", hq::stop(n)),
        ("cancel requested", hq::cancel(n)),
        ("cancelled", hq::cancelled()),
        ("expired", hq::expired(n)),
        ("requeued", hq::requeued(1)),
        ("started", by::started(n)),
        ("progressed", by::progressed(n, 0)),
        ("succeeded valid", by::succeeded(n)),
        ("succeeded invalid", by::invalid(n)),
        ("failed retryable", by::failed(n, "NET_1")),
        ("failed business", by::failed(n, "BIZ_1")),
        ("rejected busy", by::rejected(n, "BUSY")),
        ("rejected other", by::rejected(n, "BAD_INPUT")),
        ("stopped", by::stopped(n)),
        ("succeeded n+1", by::succeeded(n + 1)),
        ("succeeded, another terminal", foreign),
    ]
}

/// Situations by name: their history and n.
fn situation(name: &str) -> (Story, u32) {
    let mut story = Story::new(1);
    let run = |n| [hq::dispatched(n), by::started(n)];
    let history: Vec<Said> = match name {
        "pending" => vec![],
        "pending offline" => vec![hq::deferred(None)],
        "pending undelivered" => vec![hq::dispatched(1), hq::timed_out(1, Delivery)],
        "pending timed out" => [&run(1)[..], &[hq::timed_out(1, Run)]].concat(),
        "pending lost" => vec![hq::dispatched(1), hq::lost(1)],
        "pending failed" => [&run(1)[..], &[by::failed(1, "NET_1")]].concat(),
        "pending busy" => vec![hq::dispatched(1), by::rejected(1, "BUSY")],
        "pending requeued" => [&run(1)[..], &[by::failed(1, "BIZ_1"), hq::requeued(1)]].concat(),
        "dispatched" => vec![hq::dispatched(1)],
        "running" => run(1).to_vec(),
        "dispatched cancelling" => vec![hq::dispatched(1), hq::cancel(1)],
        "running cancelling" => [&run(1)[..], &[hq::cancel(1)]].concat(),
        "succeeded" => [&run(1)[..], &[by::succeeded(1)]].concat(),
        "failed business" => [&run(1)[..], &[by::failed(1, "BIZ_1")]].concat(),
        "failed exhausted" | "failed exhausted closed" => {
            (1..=3).flat_map(|n| [&run(n)[..], &[hq::timed_out(n, Run)]].concat()).collect()
        }
        "failed expired" | "failed expired closed" => [&run(1)[..], &[hq::expired(1)]].concat(),
        "failed expired pending" => vec![hq::expired(0)],
        "cancelled" => vec![hq::dispatched(1), hq::cancel(1), hq::cancelled()],
        "cancelled pending" => vec![hq::cancel(0)],
        other => panic!("no situation {other}"),
    };
    story.all(0, &history);
    if name.ends_with("closed") {
        story.plan(PlanEvent::Closed);
    }
    let n = story.task(0).attempt.max(1);
    (story, n)
}

/// A cell is the state after it (P D R S F C) and what became of the event: A applied, d duplicate, s stale, l late, f foreign, i ignored.
const EXPECTED: &[(&str, &str)] = &[
    // columns:                 disp def rel  toD toR toP lost stop canc cd  exp req  sta pro  val inv  fr  fb  busy rej stop n+1 other
    ("pending", "Pi PA PA  Pi Pi Pi Pi Pi CA Pi FA Pi  Pf Pf  Pf Pf  Pf Pf Pf Pf Pf Pf Pf"),
    ("pending offline", "Pi PA PA  Pi Pi Pi Pi Pi CA Pi FA Pi  Pf Pf  Pf Pf  Pf Pf Pf Pf Pf Pf Pf"),
    ("pending undelivered", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  RA RA  SA Ps  Ps FA Ps Ps Ps Pf Pf"),
    ("pending timed out", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  Pd Ps  SA Ps  Ps FA Ps Ps Ps Pf Pf"),
    ("pending lost", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  Ps Ps  SA Ps  Ps FA Ps Ps Ps Pf Pf"),
    ("pending failed", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  Pd Ps  SA Ps  Pd Pd Ps Ps Ps Pf Pf"),
    ("pending busy", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  Ps Ps  SA Ps  Ps Ps Pd Pd Ps Pf Pf"),
    ("pending requeued", "DA PA PA  Pi Pi Pi Pi PA CA Pi FA Pi  Pd Ps  SA Ps  Pd Pd Ps Ps Ps Pf Pf"),
    ("dispatched", "DA Di Di  PA PA PA PA DA DA Di FA Di  RA RA  SA PA  PA FA PA PA PA Df Df"),
    ("running", "RA Ri Ri  Ri PA PA PA RA RA Ri FA Ri  Rd RA  SA PA  PA FA Rs Rs PA Rf Rf"),
    ("dispatched cancelling", "DA Di Di  CA CA CA CA Di Di CA FA Di  RA RA  SA CA  CA CA CA CA CA Df Df"),
    ("running cancelling", "RA Ri Ri  Ri CA CA CA Ri Ri CA FA Ri  Rd RA  SA CA  CA CA Rs Rs CA Rf Rf"),
    ("succeeded", "SA Si Si  Si Si Si Si SA Si Si Si Si  Sd Sl  Sd Sl  Sl Sl Sl Sl Sl Sf Sf"),
    ("failed business", "FA Fi Fi  Fi Fi Fi Fi FA Fi Fi Fi PA  Fd Fl  Fl Fl  Fd Fd Fl Fl Fl Ff Ff"),
    ("failed exhausted", "FA Fi Fi  Fi Fi Fi Fi FA Fi Fi Fi PA  Fd Fl  SA Fl  Fl Fl Fl Fl Fl Ff Ff"),
    ("failed exhausted closed", "FA Fi Fi  Fi Fi Fi Fi FA Fi Fi Fi Fi  Fd Fl  Fl Fl  Fl Fl Fl Fl Fl Ff Ff"),
    ("failed expired", "FA Fi Fi  Fi Fi Fi Fi Fi Fi Fi Fi PA  Fd Fl  SA Fl  Fl Fl Fl Fl Fl Ff Ff"),
    ("failed expired closed", "FA Fi Fi  Fi Fi Fi Fi Fi Fi Fi Fi Fi  Fd Fl  Fl Fl  Fl Fl Fl Fl Fl Ff Ff"),
    ("failed expired pending", "Fi Fi Fi  Fi Fi Fi Fi Fi Fi Fi Fi PA  Ff Ff  Ff Ff  Ff Ff Ff Ff Ff Ff Ff"),
    ("cancelled", "CA Ci Ci  Ci Ci Ci Ci Ci Ci Ci Ci Ci  Cl Cl  Cl Cl  Cl Cl Cl Cl Cl Cf Cf"),
    ("cancelled pending", "Ci Ci Ci  Ci Ci Ci Ci Ci Ci Ci Ci Ci  Cf Cf  Cf Cf  Cf Cf Cf Cf Cf Cf Cf"),
];

fn cell(state: TaskState, effect: Effect) -> String {
    let state = match state {
        TaskState::Pending => 'P',
        TaskState::Dispatched => 'D',
        TaskState::Running => 'R',
        TaskState::Succeeded => 'S',
        TaskState::Failed => 'F',
        TaskState::Cancelled => 'C',
    };
    let effect = match effect {
        Effect::Applied => 'A',
        Effect::Duplicate => 'd',
        Effect::Stale => 's',
        Effect::Late => 'l',
        Effect::Foreign => 'f',
        Effect::Ignored => 'i',
        Effect::Repeated => 'r',
    };
    format!("{state}{effect}")
}

#[test]
fn every_situation_answers_every_event_as_the_table_says() {
    let mut wrong = Vec::new();
    for (name, cells) in EXPECTED {
        let (story, n) = situation(name);
        let expected: Vec<&str> = cells.split_whitespace().collect();
        let columns = events(n);
        assert_eq!(expected.len(), columns.len(), "{name}");
        for ((column, said), expected) in columns.into_iter().zip(expected) {
            let when = story.clone().when(said);
            let found = cell(when.story.task(0).state, when.effect);
            if found != expected {
                wrong.push(format!("{name} on {column}: {found}, should be {expected}"));
            } else if when.effect != Effect::Applied {
                when.absorbed(when.effect);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

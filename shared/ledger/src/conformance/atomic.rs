//! All or nothing.

use serde_json::json;

use super::{Bench, Outcome, ensure, equal, event, stored_seq, text};
use crate::port::Appended;

pub(super) async fn all_or_nothing(bench: Bench) -> Outcome {
    stored_seq(&bench.append_one(bench.decision(7, 0)).await?)?;
    let mut rival = bench.decision(7, 0);
    rival.id = bench.id("rival");
    let mut events: Vec<_> = (0..20).map(|n| bench.report(n)).collect();
    events.insert(10, rival);
    equal("one bad of many", bench.one.append_atomic(events).await.map_err(text)?, Appended::Conflict)?;
    equal("messages", bench.stored_tasks().await?.len(), 1)?;
    let events: Vec<_> = (0..20).map(|n| bench.report(n)).collect();
    let last = stored_seq(&bench.one.append_atomic(events).await.map_err(text)?)?;
    let stored = bench.stored_tasks().await?;
    equal("messages", stored.len(), 21)?;
    equal("the answer names the last", stored.last().map(|message| message.seq), Some(last))?;
    let seqs: Vec<u64> = stored.iter().skip(1).map(|message| message.seq).collect();
    equal("one behind the other", seqs, (last - 19..=last).collect())
}

pub(super) async fn a_repeated_batch_is_a_duplicate(bench: Bench) -> Outcome {
    let batch = |data: &str| {
        let mut events =
            vec![bench.plan_event("submitted", Some(0)), bench.plan_event("targets", None), bench.plan_event("sealed", None)];
        let id = events[1].id.clone();
        events[1].payload = event(&id, json!({ "targets": data }));
        events
    };
    let seq = stored_seq(&bench.one.append_atomic(batch("a")).await.map_err(text)?)?;
    for handle in [&bench.one, &bench.other] {
        equal("the same", handle.append_atomic(batch("a")).await.map_err(text)?, Appended::Duplicate { seq })?;
        let other = handle.append_atomic(batch("b")).await.map_err(text)?;
        equal("same ids, other content", other, Appended::Conflicting { seq: seq - 1 })?;
    }
    let mut rival = batch("a");
    for event in &mut rival {
        event.id.push_str("-rival");
    }
    equal("another plan of that name", bench.other.append_atomic(rival).await.map_err(text)?, Appended::Conflict)?;
    equal("messages", bench.stored(format!("ff.plan.{}.*", bench.tag)).await?.len(), 3)
}

pub(super) async fn an_atomic_batch_has_limits(bench: Bench) -> Outcome {
    let refused = |answer: &Appended| matches!(answer, Appended::Refused { code: "MALFORMED", .. });
    let too_many = (0..1_001).map(|n| bench.report(n)).collect();
    ensure("1,001 are too many", refused(&bench.one.append_atomic(too_many).await.map_err(text)?))?;
    ensure("none are too few", refused(&bench.one.append_atomic(Vec::new()).await.map_err(text)?))?;
    let twice = vec![bench.report(1), bench.report(1)];
    ensure("no id twice", refused(&bench.one.append_atomic(twice).await.map_err(text)?))?;
    let mut second = bench.decision(1, 0);
    second.id = bench.id("second");
    let same_expectation = vec![bench.decision(1, 0), second];
    ensure("no expectation twice", refused(&bench.one.append_atomic(same_expectation).await.map_err(text)?))?;
    stored_seq(&bench.one.append_atomic((0..1_000).map(|n| bench.report(n)).collect()).await.map_err(text)?)?;
    equal("messages", bench.stored_tasks().await?.len(), 1_000)
}

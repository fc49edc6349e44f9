//! Appending events that stand alone.

use bytes::Bytes;
use serde_json::json;

use super::{Bench, Outcome, ensure, equal, event, stored_seq, text};
use crate::port::Appended;

pub(super) async fn events_are_stored_in_order(bench: Bench) -> Outcome {
    let events: Vec<_> = (0..20).map(|n| bench.report(n)).collect();
    let answers = bench.one.append(events.clone()).await.map_err(text)?;
    let stored = bench.stored_tasks().await?;
    equal("messages", stored.len(), 20)?;
    for ((event, answer), message) in events.iter().zip(&answers).zip(&stored) {
        equal("sequence", message.seq, stored_seq(answer)?)?;
        equal("subject", &message.subject, &event.subject)?;
        equal("id", &message.id, &event.id)?;
        equal("payload", &message.payload, &event.payload)?;
        ensure("the log's time is this century's", message.time_ms > 1_500_000_000_000 || message.time_ms < 100_000_000_000)?;
    }
    ensure(
        "sequences and times ascend",
        stored.windows(2).all(|pair| pair[0].seq < pair[1].seq && pair[0].time_ms <= pair[1].time_ms),
    )
}

pub(super) async fn repetitions_are_told_by_content(bench: Bench) -> Outcome {
    let first = bench.report(1);
    let seq = stored_seq(&bench.append_one(first.clone()).await?)?;
    let mut changed = first.clone();
    changed.payload = event(&first.id, json!({ "n": "something else" }));
    let mut retold = first.clone();
    let text_of = String::from_utf8_lossy(&first.payload).replace("2026-01-01", "2026-02-02");
    retold.payload = Bytes::from(text_of);
    for handle in [&bench.one, &bench.other] {
        let events = vec![first.clone(), retold.clone(), changed.clone()];
        for (event, wanted) in
            events.into_iter().zip([Appended::Duplicate { seq }, Appended::Duplicate { seq }, Appended::Conflicting { seq }])
        {
            equal("answer", handle.append(vec![event]).await.map_err(text)?, vec![wanted])?;
        }
    }
    equal("messages", bench.stored_tasks().await?.len(), 1)
}

pub(super) async fn equal_ids_in_one_call_are_stored_once(bench: Bench) -> Outcome {
    let first = bench.report(1);
    let mut changed = first.clone();
    changed.payload = event(&first.id, json!({ "n": "something else" }));
    let answers = bench.one.append(vec![first.clone(), bench.report(2), first, changed]).await.map_err(text)?;
    let seq = stored_seq(answers.first().ok_or("no answer")?)?;
    equal("the equal one", answers.get(2), Some(&Appended::Duplicate { seq }))?;
    equal("the other one", answers.get(3), Some(&Appended::Conflicting { seq }))?;
    equal("messages", bench.stored_tasks().await?.len(), 2)
}

pub(super) async fn zero_means_none_yet(bench: Bench) -> Outcome {
    stored_seq(&bench.append_one(bench.decision(1, 0)).await?)?;
    let mut rival = bench.decision(1, 0);
    rival.id = bench.id("rival");
    equal("a second first", bench.append_one(rival).await?, Appended::Conflict)?;
    equal("messages", bench.stored_tasks().await?.len(), 1)
}

pub(super) async fn an_expectation_covers_its_filter(bench: Bench) -> Outcome {
    let first = stored_seq(&bench.append_one(bench.decision(1, 0)).await?)?;
    // Reports stand outside the filter and must not disturb.
    stored_seq(&bench.append_one(bench.report(1)).await?)?;
    let mut second = bench.decision(1, first);
    second.subject = format!("ff.task.{}.t1.main.hq.T2", bench.tag);
    let second = stored_seq(&bench.append_one(second).await?)?;
    let mut late = bench.decision(1, first);
    late.id = bench.id("late");
    equal("an expectation that is behind", bench.append_one(late).await?, Appended::Conflict)?;
    let mut early = bench.decision(1, second + 1_000);
    early.id = bench.id("early");
    equal("an expectation that is ahead", bench.append_one(early).await?, Appended::Conflict)?;
    stored_seq(&bench.append_one(bench.decision(1, second)).await?).map(drop)
}

pub(super) async fn repeated_decisions_are_no_conflict(bench: Bench) -> Outcome {
    let decision = bench.decision(1, 0);
    let seq = stored_seq(&bench.append_one(decision.clone()).await?)?;
    stored_seq(&bench.append_one(bench.decision(1, seq)).await?)?;
    let mut changed = decision.clone();
    changed.payload = event(&decision.id, json!({ "n": "something else" }));
    let answers = bench.other.append(vec![decision]).await.map_err(text)?;
    equal("the same decision", answers, vec![Appended::Duplicate { seq }])?;
    equal("another decision", bench.other.append(vec![changed]).await.map_err(text)?, vec![Appended::Conflicting { seq }])
}

pub(super) async fn decisions_of_one_task_in_one_call_are_judged_in_order(bench: Bench) -> Outcome {
    let mut rival = bench.decision(1, 0);
    rival.id = bench.id("rival");
    let answers = bench.one.append(vec![bench.decision(1, 0), rival, bench.decision(2, 0)]).await.map_err(text)?;
    stored_seq(answers.first().ok_or("no answer")?)?;
    equal("the second of one task", answers.get(1), Some(&Appended::Conflict))?;
    stored_seq(answers.get(2).ok_or("no answer")?).map(drop)
}

pub(super) async fn one_known_member_spoils_nothing(bench: Bench) -> Outcome {
    let known = stored_seq(&bench.append_one(bench.report(50)).await?)?;
    // The other handle does not remember it, so its batch is refused as a whole first.
    let answers = bench.other.append((0..100).map(|n| bench.report(n)).collect()).await.map_err(text)?;
    equal("the known one", answers.get(50), Some(&Appended::Duplicate { seq: known }))?;
    let stored = answers.iter().filter(|answer| matches!(answer, Appended::Stored { .. })).count();
    equal("the others", stored, 99)?;
    equal("messages", bench.stored_tasks().await?.len(), 100)
}

pub(super) async fn many_events_in_one_call(bench: Bench) -> Outcome {
    let answers = bench.one.append((0..2_500).map(|n| bench.report(n)).collect()).await.map_err(text)?;
    equal("answers", answers.len(), 2_500)?;
    let seqs: Vec<u64> = answers.iter().map(stored_seq).collect::<Result<_, _>>()?;
    ensure("sequences ascend", seqs.is_sorted())?;
    let stored: Vec<u64> = bench.stored_tasks().await?.iter().map(|message| message.seq).collect();
    equal("stored", stored, seqs)
}

pub(super) async fn what_is_too_large_is_refused_first(bench: Bench) -> Outcome {
    let mut large = bench.report(2);
    large.payload = Bytes::from(vec![b'x'; bench.one.max_payload() + 1]);
    let answers = bench.one.append(vec![bench.report(1), large.clone(), bench.report(3)]).await.map_err(text)?;
    let is_too_large = |answer: &Appended| matches!(answer, Appended::Refused { code: "TOO_LARGE", .. });
    stored_seq(answers.first().ok_or("no answer")?)?;
    ensure("the large one is refused", answers.get(1).is_some_and(is_too_large))?;
    stored_seq(answers.get(2).ok_or("no answer")?)?;
    let answer = bench.one.append_atomic(vec![bench.report(4), large]).await.map_err(text)?;
    ensure("so is a batch with it", is_too_large(&answer))?;
    equal("messages", bench.stored_tasks().await?.len(), 2)
}

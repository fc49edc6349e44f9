//! Appending behind a fence.

use std::collections::BTreeSet;

use super::{Bench, Outcome, ensure, equal, stored_seq, text};
use crate::port::{Appended, FencedError};

impl Bench {
    /// A role of this check's own.
    fn role(&self) -> String {
        format!("role-{}", self.tag)
    }

    async fn fences(&self) -> Result<Vec<crate::port::Stored>, String> {
        self.stored(format!("ff.fence.{}", self.role())).await
    }
}

pub(super) async fn decisions_follow_their_fence(bench: Bench) -> Outcome {
    let mut fence = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let events = vec![bench.decision(1, 0), bench.decision(2, 0), bench.decision(3, 0)];
    let answers = bench.one.append_fenced(&mut fence, events).await.map_err(text)?;
    let seqs: Vec<u64> = answers.iter().map(stored_seq).collect::<Result<_, _>>()?;
    equal("the members follow the fence", seqs, (fence.last_seq + 1..=fence.last_seq + 3).collect())?;
    let fences = bench.fences().await?;
    equal("the fence is the last one", fences.last().map(|stored| stored.seq), Some(fence.last_seq))?;
    equal("fences", fences.len(), 2)?;
    ensure(
        "its id names role and incarnation",
        fences.iter().all(|stored| stored.id.starts_with(&format!("{}/i1/", bench.role()))),
    )
}

pub(super) async fn an_empty_call_renews_the_lead(bench: Bench) -> Outcome {
    let mut fence = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let before = fence.last_seq;
    equal("answers", bench.one.append_fenced(&mut fence, Vec::new()).await.map_err(text)?.len(), 0)?;
    ensure("a new fence", fence.last_seq > before)?;
    equal("fences", bench.fences().await?.len(), 2)
}

pub(super) async fn the_overtaken_append_nothing(bench: Bench) -> Outcome {
    let mut old = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let mut new = bench.other.acquire_fence(&bench.role(), "i2").await.map_err(text)?;
    for events in [vec![bench.decision(1, 0)], (1..40).map(|n| bench.decision(n, 0)).collect(), Vec::new()] {
        let outcome = bench.one.append_fenced(&mut old, events).await;
        ensure("the old leader is told", matches!(outcome, Err(FencedError::Overtaken(_))))?;
    }
    equal("messages", bench.stored_tasks().await?.len(), 0)?;
    let answers = bench.other.append_fenced(&mut new, vec![bench.decision(1, 0)]).await.map_err(text)?;
    stored_seq(answers.first().ok_or("no answer")?).map(drop)
}

pub(super) async fn one_conflict_of_many_is_found(bench: Bench) -> Outcome {
    stored_seq(&bench.append_one(bench.decision(177, 0)).await?)?;
    let mut fence = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let mut events: Vec<_> = (0..300).map(|n| bench.decision(n, 0)).collect();
    events[177].id = bench.id("rival");
    let answers = bench.one.append_fenced(&mut fence, events).await.map_err(text)?;
    for (n, answer) in answers.iter().enumerate() {
        match n {
            177 => equal("the rival", answer, &Appended::Conflict)?,
            _ => stored_seq(answer).map(drop)?,
        }
    }
    let seqs: Vec<u64> = answers.iter().filter_map(Appended::stored_seq).collect();
    let stored: BTreeSet<u64> = bench.stored_tasks().await?.iter().map(|message| message.seq).collect();
    equal("messages", stored.len(), 300)?;
    ensure("the answers name them", seqs.iter().all(|seq| stored.contains(seq)))?;
    let answers = bench.one.append_fenced(&mut fence, vec![bench.decision(400, 0)]).await.map_err(text)?;
    stored_seq(answers.first().ok_or("no answer")?).map(drop)
}

pub(super) async fn a_stored_decision_is_a_duplicate(bench: Bench) -> Outcome {
    let known = stored_seq(&bench.append_one(bench.decision(1, 0)).await?)?;
    let mut fence = bench.other.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let events = vec![bench.decision(0, 0), bench.decision(1, 0), bench.decision(2, 0)];
    let answers = bench.other.append_fenced(&mut fence, events).await.map_err(text)?;
    equal("the known one", answers.get(1), Some(&Appended::Duplicate { seq: known }))?;
    equal("messages", bench.stored_tasks().await?.len(), 3)
}

pub(super) async fn fence_ids_are_never_reused(bench: Bench) -> Outcome {
    stored_seq(&bench.append_one(bench.decision(3, 0)).await?)?;
    let mut fence = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    for round in 0..3 {
        let mut events: Vec<_> = (0..8).map(|n| bench.decision(round * 10 + n, 0)).collect();
        events[3].id = bench.id(format!("rival-{round}"));
        bench.one.append_fenced(&mut fence, events).await.map_err(text)?;
    }
    let fences = bench.fences().await?;
    let ids: BTreeSet<&str> = fences.iter().map(|stored| stored.id.as_str()).collect();
    equal("distinct ids", ids.len(), fences.len())?;
    ensure("several fences", fences.len() >= 4)
}

pub(super) async fn more_decisions_than_a_batch_holds(bench: Bench) -> Outcome {
    let mut fence = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let answers = bench.one.append_fenced(&mut fence, (0..2_100).map(|n| bench.decision(n, 0)).collect()).await.map_err(text)?;
    let seqs: Vec<u64> = answers.iter().map(stored_seq).collect::<Result<_, _>>()?;
    let stored: Vec<u64> = bench.stored_tasks().await?.iter().map(|message| message.seq).collect();
    equal("stored", stored, seqs)
}

pub(super) async fn the_lead_can_be_taken_again(bench: Bench) -> Outcome {
    let first = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    let rival = bench.other.acquire_fence(&bench.role(), "i2").await.map_err(text)?;
    let mut again = bench.one.acquire_fence(&bench.role(), "i1").await.map_err(text)?;
    ensure("each later", first.last_seq < rival.last_seq && rival.last_seq < again.last_seq)?;
    let answers = bench.one.append_fenced(&mut again, vec![bench.decision(1, 0)]).await.map_err(text)?;
    stored_seq(answers.first().ok_or("no answer")?).map(drop)
}

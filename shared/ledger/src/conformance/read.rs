//! Reading: bounded, the last one, and the endless tail.

use futures::StreamExt;

use super::{Bench, Outcome, ensure, equal, next, stored_seq, text};
use crate::port::{BoxStream, LedgerError, Stored, TailItem};

async fn seqs(messages: Result<BoxStream<Result<Stored, LedgerError>>, LedgerError>) -> Result<Vec<u64>, String> {
    let messages: Vec<_> = super::within(messages.map_err(text)?.collect()).await?;
    messages.into_iter().map(|message| message.map(|stored| stored.seq).map_err(text)).collect()
}

pub(super) async fn ranges_and_filters(bench: Bench) -> Outcome {
    let log = &bench.one;
    let events = vec![bench.report(0), bench.report(1), bench.plan_event("paused", None), bench.report(2), bench.report(3)];
    let answers = log.append(events).await.map_err(text)?;
    let at: Vec<u64> = answers.iter().map(stored_seq).collect::<Result<_, _>>()?;
    let (tasks, plan) = (bench.tasks(), format!("ff.plan.{}.*", bench.tag));
    equal("a range", seqs(log.read(vec![tasks.clone()], at[1], at[3]).await).await?, vec![at[1], at[3]])?;
    equal("two filters", seqs(log.read(vec![tasks.clone(), plan.clone()], 1, u64::MAX).await).await?, at.clone())?;
    equal("one message", seqs(log.read(vec![tasks.clone()], at[0], at[0]).await).await?, vec![at[0]])?;
    equal("beyond the end", seqs(log.read(vec![tasks.clone()], at[4] + 1, u64::MAX).await).await?, vec![])?;
    equal("backwards", seqs(log.read(vec![tasks.clone()], at[4], at[0]).await).await?, vec![])?;
    equal("no filter", seqs(log.read(Vec::new(), 1, u64::MAX).await).await?, vec![])?;
    equal("nothing there", seqs(log.read(vec!["ff.task.nobody.>".into()], 0, u64::MAX).await).await?, vec![])
}

pub(super) async fn overlapping_filters_yield_a_message_once(bench: Bench) -> Outcome {
    let answers = bench.one.append(vec![bench.report(0), bench.report(1)]).await.map_err(text)?;
    let at: Vec<u64> = answers.iter().map(stored_seq).collect::<Result<_, _>>()?;
    let filters = vec![bench.tasks(), bench.report(1).subject, bench.tasks()];
    equal("messages", seqs(bench.one.read(filters, 1, u64::MAX).await).await?, at)
}

pub(super) async fn the_last_under_a_filter(bench: Bench) -> Outcome {
    let last = bench.one.last_under(&bench.tasks()).await.map_err(text)?;
    ensure("none yet", last.is_none())?;
    let answers = bench.one.append(vec![bench.report(0), bench.report(1)]).await.map_err(text)?;
    let last = bench.other.last_under(&bench.tasks()).await.map_err(text)?.ok_or("nothing")?;
    equal("sequence", Some(last.seq), answers.last().and_then(crate::port::Appended::stored_seq))?;
    equal("id", last.id, bench.report(1).id)?;
    equal("payload", last.payload, bench.report(1).payload)?;
    equal("the log's end", bench.other.last_seq().await.map_err(text)?, last.seq)
}

/// Collects the tail up to a sequence; gaps and disorder are failures.
async fn follow(tail: &mut BoxStream<TailItem>, from: u64, to: u64) -> Result<Vec<Stored>, String> {
    let mut messages: Vec<Stored> = Vec::new();
    while from + (messages.len() as u64) <= to {
        match next(tail).await? {
            TailItem::Messages(batch) => messages.extend(batch),
            TailItem::Reconnected => {}
            TailItem::Hole { from, to } => return Err(format!("a hole {from}..{to}")),
        }
    }
    let found: Vec<u64> = messages.iter().map(|message| message.seq).collect();
    equal("sequences", found, (from..=to).collect())?;
    Ok(messages)
}

pub(super) async fn a_tail_goes_on_live(bench: Bench) -> Outcome {
    let answers = bench.one.append((0..50).map(|n| bench.report(n)).collect()).await.map_err(text)?;
    let from = stored_seq(&answers[25])?;
    let mut tail = bench.one.tail(from).await.map_err(text)?;
    let messages = follow(&mut tail, from, from + 24).await?;
    equal("first", messages.first().map(|message| message.id.clone()), Some(bench.report(25).id))?;
    for n in 50..60 {
        let answers = bench.other.append(vec![bench.report(n)]).await.map_err(text)?;
        let seq = stored_seq(&answers[0])?;
        let messages = follow(&mut tail, seq, seq).await?;
        equal("payload", &messages[0].payload, &bench.report(n).payload)?;
    }
    Ok(())
}

pub(super) async fn a_tail_may_begin_at_the_end(bench: Bench) -> Outcome {
    let end = bench.one.last_seq().await.map_err(text)?;
    let mut tail = bench.one.tail(end + 1).await.map_err(text)?;
    stored_seq(&bench.append_one(bench.report(1)).await?)?;
    let messages = follow(&mut tail, end + 1, end + 1).await?;
    equal("id", messages[0].id.clone(), bench.report(1).id)
}

//! Plain messaging, and commands republished by the log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use super::{Bench, Outcome, ensure, equal, next, stored_seq, text};
use crate::port::{Appended, RequestError};

pub(super) async fn only_stored_decisions_become_commands(bench: Bench) -> Outcome {
    let mut commands = bench.other.subscribe(&format!("ff.cmd.*.{}.>", bench.tag), None).await.map_err(text)?;
    let first = bench.decision(1, 0);
    let at = stored_seq(&bench.append_one(first.clone()).await?)?;
    let mut refused = bench.decision(1, 0);
    refused.id = bench.id("rival");
    equal("refused", bench.append_one(refused).await?, Appended::Conflict)?;
    let repeated = bench.other.append(vec![first.clone()]).await.map_err(text)?;
    equal("repeated", repeated, vec![Appended::Duplicate { seq: at }])?;
    stored_seq(&bench.append_one(bench.report(1)).await?)?;
    let mut fence = bench.one.acquire_fence(&format!("role-{}", bench.tag), "i1").await.map_err(text)?;
    let answers = bench.one.append_fenced(&mut fence, vec![bench.decision(2, 0)]).await.map_err(text)?;
    let wanted = [(1, at, first.payload), (2, stored_seq(&answers[0])?, bench.decision(2, 0).payload)];
    for (n, seq, payload) in wanted {
        let command = next(&mut commands).await?;
        equal("subject", command.subject, format!("ff.cmd.T1.{}.t{n}.main", bench.tag))?;
        equal("sequence", command.seq, Some(seq))?;
        equal("payload", command.payload, payload)?;
    }
    Ok(())
}

pub(super) async fn queue_groups_share_and_subscribers_do_not(bench: Bench) -> Outcome {
    let subject = format!("ff.beat.{}", bench.tag);
    let group = Some("workers");
    let mut members = futures::stream::select(
        bench.one.subscribe(&subject, group).await.map_err(text)?.map(|message| (1, message)),
        bench.other.subscribe(&subject, group).await.map_err(text)?.map(|message| (2, message)),
    );
    let mut watcher = bench.one.subscribe("ff.beat.*", None).await.map_err(text)?;
    let mut met = BTreeSet::new();
    while met.len() < 2 {
        bench.one.publish(&subject, Bytes::new()).await.map_err(text)?;
        met.insert(next(&mut members).await?.0);
        next(&mut watcher).await?;
    }
    for n in 0..200 {
        bench.one.publish(&subject, Bytes::from(n.to_string())).await.map_err(text)?;
    }
    let mut shares: BTreeMap<i32, usize> = BTreeMap::new();
    let mut bodies = Vec::new();
    for n in 0..200 {
        let (member, message) = next(&mut members).await?;
        *shares.entry(member).or_default() += 1;
        bodies.push(message.payload);
        equal("everybody's copy", next(&mut watcher).await?.payload, Bytes::from(n.to_string()))?;
    }
    bodies.sort();
    bodies.dedup();
    equal("each once", bodies.len(), 200)?;
    ensure("both had work", shares.len() == 2)
}

/// A request, repeated while nobody is there: in a cluster, word of a new listener takes a moment to get around.
async fn ask(bench: &Bench, subject: &str, payload: Bytes) -> Result<Bytes, RequestError> {
    for _ in 0..1_000 {
        match bench.one.request(subject, payload.clone(), Duration::from_secs(10)).await {
            Err(RequestError::NoResponders(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            answer => return answer,
        }
    }
    Err(RequestError::NoResponders(subject.to_owned()))
}

pub(super) async fn requests_are_answered_or_say_why(bench: Bench) -> Outcome {
    let subject = format!("ff.api.{}", bench.tag);
    let nobody = bench.one.request(&subject, Bytes::new(), Duration::from_secs(5)).await;
    equal("nobody there", nobody, Err(RequestError::NoResponders(subject.clone())))?;
    let mut requests = bench.other.subscribe(&subject, Some("api")).await.map_err(text)?;
    let asked = ask(&bench, &subject, Bytes::from_static(b"question"));
    let answered = async {
        let request = next(&mut requests).await?;
        let reply = request.reply.ok_or("no reply subject")?;
        equal("request", request.payload, Bytes::from_static(b"question"))?;
        bench.other.publish(&reply, Bytes::from_static(b"answer")).await.map_err(text)
    };
    let (answer, served) = futures::join!(asked, answered);
    served?;
    equal("answer", answer, Ok(Bytes::from_static(b"answer")))?;
    let silent = bench.one.request(&subject, Bytes::new(), Duration::from_millis(50)).await;
    equal("silence", silent, Err(RequestError::Timeout { subject, timeout_ms: 50 }))
}

pub(super) async fn a_service_is_served(bench: Bench) -> Outcome {
    let subject = |noun: &str| format!("ff.api.{}.{noun}", bench.tag);
    let endpoints = vec![("plan-list".to_owned(), subject("plan")), ("task-list".to_owned(), subject("task"))];
    let mut requests = bench.other.serve("fanfold", "0.1.0", endpoints).await.map_err(text)?;
    for noun in ["task", "plan"] {
        let subject = subject(noun);
        let asked = ask(&bench, &subject, Bytes::from(noun));
        let answered = async {
            let request = next(&mut requests).await?;
            equal("subject", &request.subject, &subject)?;
            bench.other.publish(&request.reply.ok_or("no reply subject")?, request.payload).await.map_err(text)
        };
        let (answer, served) = futures::join!(asked, answered);
        served?;
        equal("answer", answer, Ok(Bytes::from(noun)))?;
    }
    Ok(())
}

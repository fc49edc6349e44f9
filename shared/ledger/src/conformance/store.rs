//! Buckets, types and objects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::StreamExt;

use super::{Bench, Outcome, ensure, equal, text, within};
use crate::port::{BoxStream, Bucket, Entry, LedgerError, Source};

async fn listed(entries: Result<BoxStream<Result<Entry, LedgerError>>, LedgerError>) -> Result<BTreeMap<String, Bytes>, String> {
    let entries: Vec<_> = within(entries.map_err(text)?.collect()).await?;
    entries.into_iter().map(|entry| entry.map(|entry| (entry.key, entry.value)).map_err(text)).collect()
}

pub(super) async fn records_are_put_read_and_listed(bench: Bench) -> Outcome {
    let key = |n: usize| format!("task.{}.t{n}.main", bench.tag);
    let record = |n: usize| (key(n), Bytes::from(format!("record {n}")));
    ensure("none yet", bench.one.get_state(&key(1)).await.map_err(text)?.is_none())?;
    bench.one.put_state((0..3_000).map(record).collect()).await.map_err(text)?;
    let twice = vec![(key(1), Bytes::from_static(b"old")), (key(1), Bytes::from_static(b"new"))];
    let before = bench.one.get_state(&key(1)).await.map_err(text)?.ok_or("no record")?;
    bench.one.put_state(twice).await.map_err(text)?;
    let after = bench.other.get_state(&key(1)).await.map_err(text)?.ok_or("no record")?;
    equal("the later of a key wins", after.value, Bytes::from_static(b"new"))?;
    ensure("revisions rise", after.revision > before.revision)?;
    let all = listed(bench.other.list_state(&format!("task.{}.>", bench.tag)).await).await?;
    equal("records", all.len(), 3_000)?;
    equal("one of them", all.get(&key(2)), Some(&Bytes::from_static(b"record 2")))?;
    equal("the rewritten one", all.get(&key(1)), Some(&Bytes::from_static(b"new")))?;
    let since = listed(bench.other.list_since(Bucket::State, &format!("task.{}.>", bench.tag), before.revision).await).await?;
    equal("rewritten since", since.get(&key(1)), Some(&Bytes::from_static(b"new")))?;
    ensure("not all of what is older", since.len() < 3_000)?;
    let keys: Vec<String> = [7, 5_000, 1].into_iter().chain(10..1_210).map(key).collect();
    let page = bench.other.get_many(Bucket::State, &keys).await.map_err(text)?;
    let expected: Vec<&String> = keys.iter().filter(|k| **k != key(5_000)).collect();
    equal("a page, in its order, without what is not there", page.iter().map(|e| &e.key).collect::<Vec<_>>(), expected)?;
    ensure("its values", page.iter().any(|e| e.key == key(1) && e.value == Bytes::from_static(b"new")))?;
    let keys = bench.other.keys(Bucket::State, &format!("task.{}.>", bench.tag)).await.map_err(text)?;
    equal("keys", keys.into_iter().collect::<BTreeSet<_>>().len(), 3_000)?;
    equal("nothing asked for", bench.one.get_many(Bucket::State, &[]).await.map_err(text)?.len(), 0)?;
    let none = listed(bench.one.list_state(&format!("plan.{}", bench.tag)).await).await?;
    equal("nothing there", none.len(), 0)
}

pub(super) async fn the_checkpoint_knows_its_last_writer(bench: Bench) -> Outcome {
    let put = |value: &'static str, expect| bench.one.put_checkpoint(Bytes::from_static(value.as_bytes()), expect);
    let now = bench.one.get_checkpoint().await.map_err(text)?.map_or(0, |entry| entry.revision);
    let first = put("one", now).await.map_err(text)?.ok_or("refused")?;
    equal("who is behind", put("two", now).await.map_err(text)?, None)?;
    equal("who is ahead", put("two", first + 100).await.map_err(text)?, None)?;
    let second = put("two", first).await.map_err(text)?.ok_or("refused")?;
    ensure("revisions rise", second > first)?;
    let entry = bench.other.get_checkpoint().await.map_err(text)?.ok_or("no checkpoint")?;
    equal("checkpoint", (entry.revision, entry.value), (second, Bytes::from_static(b"two")))
}

pub(super) async fn a_record_is_replaced_only_as_it_was_seen(bench: Bench) -> Outcome {
    let key = format!("task.{}.cas.main", bench.tag);
    let put = |value: &'static str, expect| bench.one.put_state_if(&key, Bytes::from_static(value.as_bytes()), expect);
    let first = put("one", 0).await.map_err(text)?.ok_or("refused")?;
    equal("there is one", put("two", 0).await.map_err(text)?, None)?;
    equal("who is ahead", put("two", first + 100).await.map_err(text)?, None)?;
    let before = bench.other.state_extent().await.map_err(text)?;
    let deleted = put("", first).await.map_err(text)?.ok_or("refused")?;
    ensure("an empty one is deleted", bench.other.get_state(&key).await.map_err(text)?.is_none())?;
    ensure("not listed", listed(bench.other.list_state(&key).await).await?.is_empty())?;
    equal("the record that was", put("two", first).await.map_err(text)?, None)?;
    let again = put("two", 0).await.map_err(text)?.ok_or("refused over a deletion mark")?;
    ensure("revisions rise", first < deleted && deleted < again)?;
    let after = bench.other.state_extent().await.map_err(text)?;
    equal("the same bucket", &after.bucket, &before.bucket)?;
    ensure("its last revision", after.last_revision >= again && before.last_revision < after.last_revision)?;
    ensure("records are counted", after.records > 0)?;
    ensure("the log lacks nothing", bench.one.gaps().await.map_err(text)?.is_empty())
}

pub(super) async fn terminals_are_records_too(bench: Bench) -> Outcome {
    let key = format!("store.{}", bench.tag);
    ensure("none yet", bench.one.get_terminal(&key).await.map_err(text)?.is_none())?;
    bench.one.put_terminals(vec![(key.clone(), Bytes::from_static(b"{}"))]).await.map_err(text)?;
    let entry = bench.other.get_terminal(&key).await.map_err(text)?.ok_or("no record")?;
    equal("record", &entry.value, &Bytes::from_static(b"{}"))?;
    let found = bench.other.get_many(Bucket::Terminals, &[key.clone(), format!("{key}-none")]).await.map_err(text)?;
    equal("one of two", found.into_iter().map(|e| e.key).collect::<Vec<_>>(), vec![key.clone()])?;
    let extent = bench.other.extent(Bucket::Terminals).await.map_err(text)?;
    ensure("how it stands", extent.last_revision >= entry.revision && extent.records > 0)?;
    let all = listed(bench.other.list_terminals("store.*").await).await?;
    ensure("it is listed", all.contains_key(&key))?;
    ensure("not in the other bucket", bench.one.get_state(&key).await.map_err(text)?.is_none())
}

pub(super) async fn types_never_change(bench: Bench) -> Outcome {
    let (one, two) = (Bytes::from_static(b"{\"v\":1}"), Bytes::from_static(b"{\"v\":2}"));
    ensure("none yet", bench.one.get_type(&bench.tag, 1).await.map_err(text)?.is_none())?;
    equal("created", bench.one.create_type(&bench.tag, 1, one.clone()).await.map_err(text)?, None)?;
    let again = bench.other.create_type(&bench.tag, 1, two.clone()).await.map_err(text)?;
    equal("there already", again, Some(one.clone()))?;
    equal("unchanged", bench.other.get_type(&bench.tag, 1).await.map_err(text)?, Some(one.clone()))?;
    for version in [10, 2] {
        equal("created", bench.one.create_type(&bench.tag, version, two.clone()).await.map_err(text)?, None)?;
    }
    let all = bench.one.list_types().await.map_err(text)?;
    let ours: Vec<_> = all.into_iter().filter(|(name, ..)| *name == bench.tag).map(|(_, version, _)| version).collect();
    equal("versions", ours, vec![1, 2, 10])
}

pub(super) async fn objects_come_back(bench: Bench) -> Outcome {
    let bytes = Bytes::from((0..2_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let name = format!("{}.bin", bench.tag);
    ensure("none yet", bench.one.get_object(&name).await.map_err(text)?.is_none())?;
    for _ in 0..2 {
        bench.one.put_object(&name, bytes.clone()).await.map_err(text)?;
        let found = bench.other.get_object(&name).await.map_err(text)?.ok_or("no object")?;
        ensure("the same bytes", found == bytes)?;
    }
    let (name, pieces) = (format!("{}.pieces", bench.tag), Pieces(bytes.clone()));
    for _ in 0..2 {
        bench.one.put_object_from(&name, &pieces).await.map_err(text)?;
        let found = bench.other.get_object(&name).await.map_err(text)?.ok_or("no object")?;
        ensure("the same bytes, piece by piece", found == bytes)?;
    }
    bench.one.put_object(&name, Bytes::from_static(b"another")).await.map_err(text)?;
    let found = bench.other.get_object(&name).await.map_err(text)?.ok_or("no object")?;
    ensure("what was put last", found == "another".as_bytes())?;
    let empty = format!("{}.empty", bench.tag);
    bench.one.put_object_from(&empty, &Pieces(Bytes::new())).await.map_err(text)?;
    let found = bench.other.get_object(&empty).await.map_err(text)?.ok_or("no object")?;
    ensure("nothing is an object, too", found.is_empty())
}

/// Bytes given in uneven pieces, some of them empty or larger than a chunk.
struct Pieces(Bytes);

impl Source for Pieces {
    fn pieces(&self) -> Box<dyn Iterator<Item = Bytes> + Send + '_> {
        let (mut rest, mut sizes) = (self.0.clone(), [1, 0, 700_000, 30_000, 262_144].into_iter().cycle());
        Box::new(std::iter::from_fn(move || (!rest.is_empty()).then(|| rest.split_to(sizes.next().unwrap_or(1).min(rest.len())))))
    }
}

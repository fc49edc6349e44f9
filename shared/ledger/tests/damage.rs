//! What the server counts and can't give: nobody waits for it, and everybody is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::time::Duration;

use fanfold_ledger::conformance::files::{blocks, flip, flip_subject};
use fanfold_ledger::jetstream::{JetStreamLedger, ProvisionOpts};
use fanfold_ledger::lead::Candidate;
use fanfold_ledger::port::{Append, Appended, Expect, Fence, FencedError, Log, TailItem};
use fanfold_process::embedded::{EmbeddedConfig, EmbeddedServer};
use futures::StreamExt;

use support::{decision, report};

const LOG: &str = "FANFOLD";
/// Beyond this something waits for ever.
const BOUND: Duration = Duration::from_secs(90);

/// A damaged log, and what keeps it there.
struct Damaged {
    server: EmbeddedServer,
    _folder: tempfile::TempDir,
}

impl Damaged {
    /// Another process's view of it, which knows nothing yet.
    async fn fresh(&self) -> JetStreamLedger {
        support::connect(&self.server).await
    }
}

/// A log of so many reports, damaged while its server was down.
async fn damaged(reports: usize, size: usize, damage: impl FnOnce(&Path)) -> (Damaged, JetStreamLedger) {
    let written = async |ledger: &JetStreamLedger| fill(ledger, 0..reports, size).await;
    let (log, ledger, ()) = damaged_after(written, damage).await;
    assert_eq!(ledger.last_seq().await.unwrap(), reports as u64, "the server still counts them all");
    (log, ledger)
}

/// A log with what is written into it, damaged while its server was down.
async fn damaged_after<T>(
    write: impl AsyncFnOnce(&JetStreamLedger) -> T,
    damage: impl FnOnce(&Path),
) -> (Damaged, JetStreamLedger, T) {
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(support::server_binary().await, folder.path().join("nats"));
    let server = EmbeddedServer::start(config.clone()).await.unwrap();
    let ledger = support::connect(&server).await;
    ledger.provision(&ProvisionOpts::default()).await.unwrap();
    let written = write(&ledger).await;
    drop(ledger);
    // In good order, so that the server believes its index afterwards.
    server.stop().await;
    damage(server.data_dir());
    let damaged = Damaged { server: EmbeddedServer::start(config).await.unwrap(), _folder: folder };
    let ledger = damaged.fresh().await;
    (damaged, ledger, written)
}

async fn fill(ledger: &JetStreamLedger, reports: std::ops::Range<usize>, size: usize) {
    for first in reports.clone().step_by(100) {
        let stored = ledger.append((first..reports.end.min(first + 100)).map(|n| report(n, size)).collect()).await.unwrap();
        assert!(stored.iter().all(|answer| answer.stored_seq().is_some()), "{stored:?}");
    }
}

/// Damages a packed block between the first and the last.
fn spoil_second_block(folder: &Path) {
    let blocks = blocks(folder, LOG).unwrap();
    assert!(blocks.len() >= 4, "{blocks:?}");
    let mut bytes = std::fs::read(&blocks[1]).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x41;
    std::fs::write(&blocks[1], &bytes).unwrap();
}

async fn seqs(ledger: &JetStreamLedger, filter: &str, from: u64, to: u64) -> Vec<u64> {
    let read = async {
        let messages = ledger.read(vec![filter.to_owned()], from, to).await.unwrap();
        messages.map(|message| message.unwrap().seq).collect().await
    };
    tokio::time::timeout(BOUND, read).await.unwrap_or_else(|_| panic!("reading {filter} from #{from} to #{to} does not end"))
}

/// What the tail gives up to a sequence: the sequences that came, and the holes, first and last.
async fn tailed(ledger: &JetStreamLedger, from: u64, to: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let follow = async {
        let mut tail = ledger.tail(from).await.unwrap();
        let (mut came, mut holes, mut next) = (Vec::new(), Vec::new(), from);
        while next <= to {
            match tail.next().await.unwrap() {
                TailItem::Messages(messages) => came.extend(messages.iter().map(|message| message.seq)),
                TailItem::Hole { from, to } => holes.push((from, to - 1)),
                TailItem::Reconnected => {}
            }
            next = came.iter().copied().chain(holes.iter().map(|hole| hole.1)).max().unwrap_or(0) + 1;
        }
        (came, holes)
    };
    tokio::time::timeout(BOUND, follow).await.expect("the tail stands still")
}

fn all_but(last: u64, from: u64, to: u64) -> Vec<u64> {
    (1..=last).filter(|seq| !(from..=to).contains(seq)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_can_not_be_read_is_passed_over_and_told() {
    for lost in [0, 20, 39] {
        let (log, ledger) =
            damaged(40, 300, |folder| flip(folder, LOG, format!("ff.task.p.t{lost}.main.by.T1").as_bytes()).unwrap()).await;
        let seq = lost as u64 + 1;
        let own = format!("ff.task.p.t{lost}.>");
        assert_eq!(seqs(&ledger, &own, 1, 40).await, [] as [u64; 0], "t{lost}");
        assert_eq!(ledger.gaps().await.unwrap(), [(seq, seq)], "a read of one subject that comes short finds it, t{lost}");
        let fresh = log.fresh().await;
        assert_eq!(fresh.gaps().await.unwrap(), [], "the server itself knows of nothing, t{lost}");
        assert_eq!(tailed(&fresh, 1, 40).await, (all_but(40, seq, seq), vec![(seq, seq)]), "t{lost}");
        assert_eq!(fresh.gaps().await.unwrap(), [(seq, seq)], "t{lost}");
        let fresh = log.fresh().await;
        assert_eq!(seqs(&fresh, "ff.>", 1, 40).await, all_but(40, seq, seq), "t{lost}");
        assert_eq!(fresh.gaps().await.unwrap(), [(seq, seq)], "t{lost}");
        // It goes on behind it.
        let stored = fresh.append(vec![report(40, 300)]).await.unwrap();
        assert_eq!(stored[0].stored_seq(), Some(41), "{stored:?}");
        assert_eq!(seqs(&fresh, "ff.*.p.>", 30, 41).await, (30..=41).filter(|s| *s != seq).collect::<Vec<_>>(), "t{lost}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_can_not_be_unpacked_is_passed_over_and_told() {
    let (log, ledger) = damaged(1_200, 30_000, spoil_second_block).await;
    let came = seqs(&ledger, "ff.>", 1, 1_200).await;
    let gaps = ledger.gaps().await.unwrap();
    let [(from, to)] = gaps[..] else { panic!("{gaps:?}") };
    assert!(from > 1 && to < 1_200 && to - from > 10, "{gaps:?}");
    assert_eq!(came, all_but(1_200, from, to));
    let fresh = log.fresh().await;
    assert_eq!(seqs(&fresh, "ff.*.p.>", 1, 1_200).await, came, "through a filter");
    assert_eq!(fresh.gaps().await.unwrap(), gaps);
    assert_eq!(seqs(&fresh, "ff.*.p.>", from + 1, to - 1).await, [] as [u64; 0], "within it");
    let fresh = log.fresh().await;
    assert_eq!(tailed(&fresh, 1, 1_200).await, (came, gaps), "the tail");
}

/// Where a record is that can't be read afterwards.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    /// In a block of which everything else can be read.
    Alone,
    /// As well, and it counts under another subject.
    Renamed,
    /// In a packed block of which nothing can be read.
    Packed,
    /// In a block that is gone.
    Gone,
}

impl Where {
    /// What stands in the log before what is damaged, and behind it.
    async fn fill(self, ledger: &JetStreamLedger, before: bool) {
        match (self, before) {
            (Where::Alone | Where::Renamed, true) => {}
            (Where::Alone | Where::Renamed, false) => fill(ledger, 1_000..1_010, 300).await,
            (Where::Packed | Where::Gone, true) => fill(ledger, 1_000..1_400, 30_000).await,
            (Where::Packed | Where::Gone, false) => fill(ledger, 2_000..2_800, 30_000).await,
        }
    }

    fn damage(self, folder: &Path, subject: &str) {
        match self {
            Where::Alone => flip(
                folder,
                LOG,
                format!("Msg-Id: {}", if subject.contains("fence") { "dispatcher/new/" } else { "p.t7.main/dispatched/3" })
                    .as_bytes(),
            )
            .unwrap(),
            Where::Renamed => flip_subject(folder, LOG, subject).unwrap(),
            Where::Packed => spoil_second_block(folder),
            Where::Gone => std::fs::remove_file(&blocks(folder, LOG).unwrap()[1]).unwrap(),
        }
    }
}

fn is_overtaken<T>(outcome: &Result<T, FencedError>) -> bool {
    matches!(outcome, Err(FencedError::Overtaken(role)) if role == "dispatcher")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lead_is_taken_behind_a_fence_that_can_not_be_read_and_who_was_overtaken_appends_nothing() {
    for place in [Where::Alone, Where::Renamed, Where::Packed, Where::Gone] {
        let write = async |ledger: &JetStreamLedger| {
            let old = ledger.acquire_fence("dispatcher", "old").await.unwrap();
            place.fill(ledger, true).await;
            let mut new = ledger.acquire_fence("dispatcher", "new").await.unwrap();
            // As `Candidate` does, so that one record that is lost does not undo who was overtaken.
            ledger.append_fenced(&mut new, Vec::new()).await.unwrap();
            place.fill(ledger, false).await;
            (old, new)
        };
        let (log, ledger, (mut old, mut new)) = damaged_after(write, |folder| place.damage(folder, "ff.fence.dispatcher")).await;
        for events in [vec![decision(1)], (0..20).map(decision).collect(), Vec::new()] {
            let outcome = ledger.append_fenced(&mut old, events).await;
            assert!(is_overtaken(&outcome), "{place:?} {old:?}: {outcome:?}");
        }
        assert_eq!(support::ids(&ledger, "ff.task.*.*.*.hq.*").await, [], "{place:?}");
        // Who led goes on only where a fence of its own is the last that there is.
        let outcome = ledger.append_fenced(&mut new, Vec::new()).await;
        assert_eq!(is_overtaken(&outcome), place != Where::Renamed, "{place:?}: {outcome:?}");

        let began = std::time::Instant::now();
        let third = log.fresh().await;
        let candidate = Candidate::new(support::shared(&third), "dispatcher", Duration::from_secs(1));
        let (mut fence, _keeper) = candidate.win("next".into()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{place:?}: {:?}", began.elapsed());
        let answers = third.append_fenced(&mut fence, vec![decision(1)]).await.unwrap();
        assert!(matches!(answers[..], [Appended::Stored { .. }]), "{place:?}: {answers:?}");
        for fence in [&mut old, &mut new] {
            assert!(is_overtaken(&ledger.append_fenced(fence, vec![decision(2)]).await), "{place:?} {fence:?}");
        }
        assert_eq!(support::ids(&ledger, "ff.task.*.*.*.hq.*").await.len(), 1, "{place:?}");
        // Who comes next finds the fences that can be read.
        let last = ledger.acquire_fence("dispatcher", "last").await.unwrap();
        assert!(is_overtaken(&third.append_fenced(&mut fence, Vec::new()).await), "{place:?}: behind {last:?}");
    }
}

/// The next decision about target 7, expecting this one as the last.
fn next_decision(number: u64, last_seq: u64) -> Append {
    let mut event = decision(7);
    event.subject = format!("ff.task.p.t7.main.hq.T{number}");
    event.payload =
        bytes::Bytes::from(String::from_utf8_lossy(&event.payload).replace("dispatched/0", &format!("dispatched/{number}")));
    event.id = format!("p.t7.main/dispatched/{number}");
    event.expect = Some(Expect { filter: "ff.task.p.t7.main.hq.*".into(), last_seq });
    event
}

async fn appended(ledger: &JetStreamLedger, fence: Option<&mut Fence>, event: Append) -> Appended {
    let answers = match fence {
        Some(fence) => ledger.append_fenced(fence, vec![decision(100 + event.id.len()), event]).await.unwrap(),
        None => ledger.append(vec![event]).await.unwrap(),
    };
    answers.into_iter().next_back().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_record_that_can_not_be_read_is_stored_by_whoever_has_seen_all_that_can_be() {
    for (place, fenced, saw_it) in [
        (Where::Alone, false, false),
        (Where::Alone, true, true),
        (Where::Renamed, true, false),
        (Where::Renamed, true, true),
        (Where::Renamed, false, true),
        (Where::Packed, true, false),
        (Where::Packed, false, true),
        (Where::Gone, true, false),
        (Where::Gone, true, true),
    ] {
        let told = format!("{place:?}, fenced {fenced}, seen {saw_it}");
        let write = async |ledger: &JetStreamLedger| {
            let first = appended(ledger, None, next_decision(1, 0)).await.stored_seq().unwrap();
            let second = appended(ledger, None, next_decision(2, first)).await.stored_seq().unwrap();
            place.fill(ledger, true).await;
            let third = appended(ledger, None, next_decision(3, second)).await.stored_seq().unwrap();
            place.fill(ledger, false).await;
            (first, second, third)
        };
        let (_log, ledger, (first, second, third)) =
            damaged_after(write, |folder| place.damage(folder, "ff.task.p.t7.main.hq.T3")).await;
        let mut fence = if fenced { Some(ledger.acquire_fence("dispatcher", "i1").await.unwrap()) } else { None };
        let filter = "ff.task.p.t7.main.hq.*";
        assert_eq!(ledger.last_under(filter).await.unwrap().map(|m| m.seq), Some(second), "{told}");
        // Something that can be read stands behind what this one has seen.
        assert_eq!(appended(&ledger, fence.as_mut(), next_decision(4, first)).await, Appended::Conflict, "{told}");
        let seen = if saw_it { third } else { second };
        let answer = appended(&ledger, fence.as_mut(), next_decision(5, seen)).await;
        let Appended::Stored { seq: fifth } = answer else { panic!("{told}: {answer:?}") };
        // Now there is a last one that can be read, and it is the only expectation that holds.
        for late in [first, second, third] {
            let answer = appended(&ledger, fence.as_mut(), next_decision(6, late)).await;
            assert_eq!(answer, Appended::Conflict, "{told}: expecting #{late}");
        }
        assert_eq!(appended(&ledger, fence.as_mut(), next_decision(5, seen)).await, Appended::Duplicate { seq: fifth }, "{told}");
        assert!(appended(&ledger, fence.as_mut(), next_decision(7, fifth)).await.stored_seq().is_some(), "{told}");
        let kept: Vec<u64> = support::ids(&ledger, filter).await.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(kept[..3], [first, second, fifth], "{told}");
    }
}

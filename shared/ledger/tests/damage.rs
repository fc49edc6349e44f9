//! What the server counts and can't give: nobody waits for it, and everybody is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::time::Duration;

use fanfold_ledger::conformance::files::{blocks, flip};
use fanfold_ledger::jetstream::{JetStreamLedger, ProvisionOpts};
use fanfold_ledger::port::{Log, TailItem};
use fanfold_process::embedded::{EmbeddedConfig, EmbeddedServer};
use futures::StreamExt;

use support::report;

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
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(support::server_binary().await, folder.path().join("nats"));
    let server = EmbeddedServer::start(config.clone()).await.unwrap();
    let ledger = support::connect(&server).await;
    ledger.provision(&ProvisionOpts::default()).await.unwrap();
    for first in (0..reports).step_by(100) {
        let stored = ledger.append((first..reports.min(first + 100)).map(|n| report(n, size)).collect()).await.unwrap();
        assert!(stored.iter().all(|answer| answer.stored_seq().is_some()), "{stored:?}");
    }
    drop(ledger);
    // In good order, so that the server believes its index afterwards.
    server.stop().await;
    damage(server.data_dir());
    let damaged = Damaged { server: EmbeddedServer::start(config).await.unwrap(), _folder: folder };
    let ledger = damaged.fresh().await;
    assert_eq!(ledger.last_seq().await.unwrap(), reports as u64, "the server still counts them all");
    (damaged, ledger)
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
    let in_the_middle = |folder: &Path| {
        let blocks = blocks(folder, LOG).unwrap();
        assert!(blocks.len() >= 4, "{blocks:?}");
        let mut bytes = std::fs::read(&blocks[1]).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 0x41;
        std::fs::write(&blocks[1], &bytes).unwrap();
    };
    let (log, ledger) = damaged(1_200, 30_000, in_the_middle).await;
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

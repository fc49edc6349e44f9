//! Both journals against the same contract, and the file against what happens to files.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use super::*;

fn terminal(name: &str) -> TerminalId {
    TerminalId::new(name).unwrap()
}

fn task(name: &str) -> TaskId {
    TaskId::parse(&format!("{name}.S1.main")).unwrap()
}

fn begun() -> Record {
    Record::Begun { traceparent: Some("00-1-2-01".into()) }
}

fn finished(text: &str) -> Record {
    Record::Finished { end: EndKind::Succeeded, report: Bytes::copy_from_slice(text.as_bytes()) }
}

fn put(name: &str, attempt: u32, record: Record) -> Op {
    Op::Put { task: task(name), attempt, record }
}

fn open(path: &Path) -> Result<DiskJournal, JournalError> {
    DiskJournal::open(DiskOptions { path: path.to_owned(), move_damaged_aside: false })
}

fn failed(path: &Path) -> JournalError {
    match open(path) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

async fn rows(journal: &dyn Journal, name: &str) -> Vec<(String, u32, Option<Record>)> {
    let loaded = journal.load(&terminal(name)).await.unwrap();
    loaded.rows.into_iter().map(|r| (r.task.plan.to_string(), r.attempt, r.record)).collect()
}

/// What every journal must do; `reopen` gives the same journal as after a restart.
async fn conforms(mut journal: Arc<dyn Journal>, reopen: impl Fn(Arc<dyn Journal>) -> Arc<dyn Journal>) {
    let (a, b) = (terminal("A"), terminal("B"));
    let id = journal.load(&a).await.unwrap().journal_id;
    assert_eq!(journal.load(&a).await.unwrap().journal_id, id, "made once");
    assert_ne!(journal.load(&b).await.unwrap().journal_id, id, "one each");
    assert_eq!(journal.load(&terminal("AA")).await.unwrap().rows, []);

    journal.write(&a, vec![put("p", 1, begun()), put("q", 1, begun())]).await.unwrap();
    journal.write(&b, vec![put("p", 9, begun())]).await.unwrap();
    journal.write(&a, vec![put("p", 1, finished("{\"r\":1}")), put("p", 2, begun())]).await.unwrap();
    journal.write(&a, Vec::new()).await.unwrap();
    journal = reopen(journal);
    let expected = vec![
        ("p".to_owned(), 1, Some(finished("{\"r\":1}"))),
        ("p".to_owned(), 2, Some(begun())),
        ("q".to_owned(), 1, Some(begun())),
    ];
    assert_eq!(rows(journal.as_ref(), "A").await, expected);
    assert_eq!(rows(journal.as_ref(), "B").await.len(), 1, "terminals don't see each other's rows");
    assert_eq!(journal.load(&a).await.unwrap().journal_id, id, "the id survives");

    let settled = Record::Settled { end: EndKind::Succeeded, seq: 42, valid: true, code: None };
    journal.write_lazily(&a, vec![put("p", 1, settled.clone())]);
    journal.write_lazily(&a, vec![Op::Reduce { task: task("p"), attempt: 2 }]);
    journal.write_lazily(&a, vec![Op::Reduce { task: task("q"), attempt: 1 }, Op::Forget { task: task("q") }]);
    // Reading comes after what was written before it.
    let expected = vec![("p".to_owned(), 1, Some(settled)), ("p".to_owned(), 2, None)];
    let mut got = rows(journal.as_ref(), "A").await;
    got.sort_by_key(|row| row.1);
    assert_eq!(got, expected);
    assert_eq!(journal.load(&a).await.unwrap().known_seq, 0, "nothing was said of the log");
    journal.write_lazily(&a, vec![Op::Reduce { task: task("p"), attempt: 1 }, Op::Known { seq: u64::MAX }]);
    journal.write_lazily(&a, vec![Op::Known { seq: 41 }]);
    journal = reopen(journal);
    assert_eq!(journal.load(&a).await.unwrap().known_seq, 41, "the last word, also a lower one");
    assert_eq!(journal.load(&b).await.unwrap().known_seq, 0, "one each");
    assert_eq!(rows(journal.as_ref(), "A").await, [("p".to_owned(), 2, None)], "the highest number stays, lazily written or not");
}

#[tokio::test]
async fn the_memory_journal_conforms() {
    let journal = MemoryJournal::new();
    conforms(Arc::new(journal.clone()), |_| Arc::new(journal.clone())).await;
    journal.set_failing(true);
    assert_eq!(journal.write(&terminal("A"), Vec::new()).await.unwrap_err().code(), "JOURNAL_UNAVAILABLE");
}

#[tokio::test]
async fn the_disk_journal_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    conforms(Arc::new(open(&path).unwrap()), |old| {
        drop(old);
        Arc::new(open(&path).unwrap())
    })
    .await;
}

#[tokio::test]
async fn a_journal_in_use_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let first = open(&path).unwrap();
    assert_eq!(failed(&path).code(), "JOURNAL_LOCKED");
    drop(first);
    assert!(open(&path).is_ok(), "free once the first is gone");
}

#[tokio::test]
async fn a_file_cut_off_in_the_middle_of_writing_holds_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("journal.redb"), folder.path().join("copy.redb"));
    let journal = Arc::new(open(&path).unwrap());
    let id = journal.load(&terminal("A")).await.unwrap().journal_id;
    journal.write(&terminal("A"), vec![put("p", 1, begun())]).await.unwrap();
    // Writes go on while the file is copied: the copy is what a power cut leaves behind.
    let writing = tokio::spawn({
        let journal = journal.clone();
        async move {
            for n in 2..60 {
                journal.write(&terminal("A"), vec![put("p", n, finished(&"x".repeat(2000)))]).await.unwrap();
            }
        }
    });
    journal.write(&terminal("A"), Vec::new()).await.unwrap();
    std::fs::copy(&path, &copy).unwrap();
    writing.await.unwrap();
    let copied = open(&copy);
    match copied {
        Ok(copied) => {
            let loaded = copied.load(&terminal("A")).await.unwrap();
            assert_eq!(loaded.journal_id, id);
            assert_eq!(loaded.rows[0].record, Some(begun()));
        }
        // A copy isn't a snapshot: pages of two commits may meet in it. Then it must say so.
        Err(error) => assert_eq!(error.code(), "JOURNAL_DAMAGED"),
    }
    drop(journal);
    // Quiet, but never closed: exactly what a killed process leaves.
    let journal = open(&path).unwrap();
    journal.write(&terminal("A"), vec![put("q", 1, begun())]).await.unwrap();
    std::fs::copy(&path, &copy).unwrap();
    let copied = open(&copy).unwrap();
    assert_eq!(copied.load(&terminal("A")).await.unwrap().rows.len(), 60);
}

#[tokio::test]
async fn damage_is_named_and_moved_aside_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let journal = open(&path).unwrap();
    let id = journal.load(&terminal("A")).await.unwrap().journal_id;
    for n in 1..20 {
        journal.write(&terminal("A"), vec![put("p", n, finished(&"y".repeat(9000)))]).await.unwrap();
    }
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let position = whole.windows(64).position(|w| w == [b'y'; 64]).unwrap();
    let mut flipped = whole.clone();
    // Every stored body is hit, so that the damage can't be in a page that is no longer used.
    for byte in flipped.iter_mut().skip(position).filter(|b| **b == b'y') {
        *byte = b'z';
    }
    let cases = [("flipped", flipped), ("no database", vec![7_u8; 8192]), ("cut", whole[..whole.len() / 3].to_vec())];
    for (what, bytes) in cases {
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(failed(&path).code(), "JOURNAL_DAMAGED", "{what}");
        assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len(), "{what}: it is left as it is");
    }
    let fresh = DiskJournal::open(DiskOptions { path: path.clone(), move_damaged_aside: true }).unwrap();
    let loaded = fresh.load(&terminal("A")).await.unwrap();
    assert!(loaded.rows.is_empty() && loaded.journal_id != id, "a new journal id: HQ concludes the rest as lost");
    let kept = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(".damaged-"))
        .count();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn many_writers_share_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(&folder.path().join("journal.redb")).unwrap());
    let started = std::time::Instant::now();
    let writes = (0..500).map(|i| {
        let journal = journal.clone();
        async move {
            let name = terminal(&format!("T{i}"));
            journal.load(&name).await.unwrap();
            journal.write(&name, vec![put("p", 1, begun())]).await.unwrap();
            journal.write(&name, vec![put("p", 1, finished("{}"))]).await.unwrap();
        }
    });
    futures::future::join_all(writes).await;
    tracing::info!(ms = started.elapsed().as_millis(), "500 terminals");
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(rows(journal.as_ref(), "T499").await.len(), 1);
}

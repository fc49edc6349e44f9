//! Folders that appear at once or not at all, and backups that are not what they say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::manifest::{MANIFEST, SUMS, file_of};
use super::restore::compared;
use super::*;
use fanfold_ledger::jetstream::{CARRIED, StreamState};
use fanfold_wire::digest::sha256_hex;
use serde_json::{Map, json};

fn stream(name: &str, content: &[u8]) -> StreamFile {
    StreamFile {
        name: name.to_owned(),
        file: file_of(name),
        bytes: content.len() as u64,
        sha256: sha256_hex(content),
        messages: 1,
        first_seq: 1,
        last_seq: 1,
        config: Map::new(),
        state: json!({}),
    }
}

/// Writes a backup whose manifest may be changed, with digests that fit it.
fn written(dir: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::new("2026-11-30T00:00:00.000Z".into(), "me".into(), "2.15.1".into());
    for name in CARRIED {
        std::fs::write(dir.join(file_of(name)), name).unwrap();
        manifest.streams.push(stream(name, name.as_bytes()));
    }
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    std::fs::write(dir.join(MANIFEST), &text).unwrap();
    let mut sums: String = manifest.streams.iter().map(|s| format!("{}  {}\n", s.sha256, s.file)).collect();
    sums.push_str(&format!("{}  {MANIFEST}\n", sha256_hex(&text)));
    std::fs::write(dir.join(SUMS), sums).unwrap();
}

fn code_of(change: impl FnOnce(&mut Manifest)) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), change);
    match check(dir.path()) {
        Ok(_) => ("OK".to_owned(), String::new()),
        Err(error) => (error.code().to_owned(), error.message()),
    }
}

#[test]
fn a_manifest_can_name_these_files_only() {
    assert_eq!(code_of(|_| ()).0, "OK");
    type Case = (fn(&mut Manifest), &'static str, &'static str);
    let cases: [Case; 6] = [
        (|m| m.version = 2, "BACKUP_UNSUPPORTED", "version 2"),
        (|m| m.format = "other".into(), "BACKUP_DAMAGED", "`other`"),
        (|m| m.streams[1].file = "../FANFOLD_TYPES.snapshot".into(), "BACKUP_DAMAGED", "names"),
        (|m| m.streams[0].name = "SOMETHING".into(), "BACKUP_DAMAGED", "SOMETHING"),
        (|m| m.streams.swap(0, 1), "BACKUP_DAMAGED", "not FANFOLD, FANFOLD_TYPES"),
        (|m| drop(m.streams.pop()), "BACKUP_DAMAGED", "names"),
    ];
    for (change, code, part) in cases {
        let (found, message) = code_of(change);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_is_no_file_of_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), |_| ());
    let (file, elsewhere) = (dir.path().join(file_of("FANFOLD")), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(elsewhere.path(), "FANFOLD").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &file).unwrap();
    assert_eq!(check(dir.path()).unwrap_err().code(), "BACKUP_DAMAGED");
}

#[test]
fn a_folder_appears_at_once_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a").join("b");
    refuse_used(&dir).unwrap();
    let made = beside(&dir).unwrap();
    std::fs::write(made.path().join("x"), "1").unwrap();
    assert!(!dir.exists());
    drop(made);
    assert_eq!(std::fs::read_dir(dir.parent().unwrap()).unwrap().count(), 0, "given up, it leaves nothing");
    let made = beside(&dir).unwrap();
    std::fs::write(made.path().join("x"), "1").unwrap();
    settle(made, &dir).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("x")).unwrap(), "1");
    assert_eq!(refuse_used(&dir).unwrap_err().code(), NOT_EMPTY);
    assert_eq!(std::fs::read_dir(dir.parent().unwrap()).unwrap().count(), 1);
    // An empty folder that is there may be taken.
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    settle(beside(&empty).unwrap(), &empty).unwrap();
}

#[test]
fn sizes_are_told_in_words() {
    assert_eq!([0, 9_999, 10_000, 9_999_999, 12_345_678].map(size), ["0 bytes", "9999 bytes", "10 kB", "9999 kB", "12 MB"]);
}

#[test]
fn a_log_comes_back_whole_and_a_bucket_may_have_been_written_to() {
    let state = |messages, first_seq, last_seq| StreamState { messages, first_seq, last_seq };
    let had = |name: &str| StreamFile { messages: 100, first_seq: 1, last_seq: 100, ..stream(name, b"") };
    let code = |name: &str, state: &StreamState, lacks: &Lacks| match compared(&had(name), state, lacks) {
        Ok(fewer) => fewer.map_or("OK".to_owned(), |f| format!("{} of {}", f.came, f.had)),
        Err(error) => error.message(),
    };
    let (nothing, lost) = (Lacks::default(), Lacks { events: 3, holes: vec![(1, 1), (7, 8)], ..Lacks::default() });
    let cases = [
        ("FANFOLD", state(100, 1, 100), &nothing, "OK"),
        ("FANFOLD", state(120, 1, 120), &nothing, "OK"),
        ("FANFOLD", state(99, 1, 100), &nothing, "99 messages came back, #1 to #100; the backup has 100, #1 to #100"),
        ("FANFOLD", state(100, 2, 101), &nothing, "#2 to #101"),
        ("FANFOLD", state(97, 2, 100), &lost, "OK"),
        ("FANFOLD", state(96, 2, 100), &lost, "96 messages came back"),
        ("KV_fanfold-terminals", state(60, 30, 130), &nothing, "60 of 100"),
        ("KV_fanfold-terminals", state(100, 1, 99), &nothing, "#1 to #99"),
        ("OBJ_fanfold-artifacts", state(0, 101, 100), &nothing, "0 messages came back"),
    ];
    for (name, came, lacks, expected) in cases {
        let found = code(name, &came, lacks);
        assert!(found == expected || (expected != "OK" && found.contains(expected)), "{name} {came:?}: {found}");
    }
}

#[test]
fn what_is_lacking_is_told_in_numbers() {
    assert!(Lacks::default().is_nothing() && Lacks::default().lines().is_empty());
    let lacks = Lacks { events: 9, holes: (1..=9).map(|n| (n * 10, n * 10)).collect(), ..Lacks::default() };
    let all = "HOLES: the log has lost 9 events: #10, #20, #30, #40, #50, and more";
    assert_eq!(lacks.lines(), [all]);
    let lacks = Lacks { events: 3, holes: vec![(4, 6)], ..Lacks::default() };
    assert_eq!(lacks.lines(), ["HOLES: the log has lost 3 events: #4 to #6"]);
    let lacks = Lacks { types: 2, ..Lacks::default() };
    assert!(!lacks.is_nothing() && lacks.lines()[0].starts_with("TYPES: 2 task types can't be read"), "{:?}", lacks.lines());
}

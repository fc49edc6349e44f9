//! Folders that appear at once or not at all, and backups that are not what they say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::manifest::{MANIFEST, SUMS, file_of};
use super::*;
use fanfold_ledger::jetstream::CARRIED;
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

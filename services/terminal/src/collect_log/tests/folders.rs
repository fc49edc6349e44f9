//! What is read of a folder, what isn't, and what the answer says about it.

use std::cell::Cell;
use std::fs;

use super::super::{LOG_FILES_MAX, Levels};
use super::{CollectLogInput, NOW, collect, collect_day, collect_log, gzip, sha256, store, zone};

const DAY: &str = "2026-09-17";
const LINE: &[u8] = b"2026-09-17 10:00:00 ERROR x\n";

fn names(output: &super::CollectLogOutput) -> Vec<&str> {
    output.files.iter().map(|file| file.name.as_str()).collect()
}

fn unreadable(output: &super::CollectLogOutput) -> Vec<&str> {
    output.unreadable.iter().map(|entry| entry.name.as_str()).collect()
}

#[test]
fn only_lines_of_the_day_count_and_lines_without_a_stamp_follow_the_one_before() {
    let before = b"no stamp yet ERROR\n2026-09-16 23:59:59 ERROR old\n\tat old trace\n".as_slice();
    let of_the_day =
        b"2026-09-17 00:00:00 ERROR pay\r\n\tat ERROR trace\n\n2026-09-17 10:00:00 WARN \xff\xfe\n2026-09-17 11:00:00 INFO ok\n"
            .as_slice();
    let after = b"2026-09-18 00:00:00 INFO new\n\tat new trace\n".as_slice();
    // A late line of the day behind another day's, and no line end at the very end.
    let late = b"2026-09-17 23:59:59 odd".as_slice();
    let root = store(&[("app.log", &[before, of_the_day, after, late].concat())]);
    let output = collect_day(root.path(), DAY).unwrap();
    let expected = [of_the_day, late].concat();
    assert_eq!(output.files.len(), 1);
    assert_eq!(output.files[0].lines, 6);
    assert_eq!(output.files[0].bytes, expected.len() as u64);
    assert_eq!(output.files[0].sha256, sha256(&expected));
    assert_eq!(output.levels, Levels { error: 1, warn: 1, info: 1, other: 3 });
    assert!(output.unreadable.is_empty(), "{:?}", output.unreadable);
}

#[test]
fn rotated_and_compressed_logs_are_read_and_other_files_are_not() {
    let packed = gzip(LINE);
    let two_members = [gzip(LINE), gzip(b"2026-09-17 12:00:00 INFO y\n")].concat();
    let root = store(&[
        ("app.log", LINE),
        ("app.log.1", LINE),
        ("app.log.2.gz", &packed),
        ("app.log-20260917.gz", &two_members),
        ("app.log.9", b"2026-09-10 10:00:00 INFO old\n"),
        ("notes.txt", LINE),
        ("app.log.bak", LINE),
    ]);
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(names(&output), ["app.log", "app.log-20260917.gz", "app.log.1", "app.log.2.gz"]);
    assert_eq!(output.files.iter().map(|file| file.lines).collect::<Vec<_>>(), [1, 2, 1, 1]);
    assert_eq!(output.files[3].sha256, sha256(LINE));
}

#[test]
fn lines_longer_than_any_buffer_are_hashed_whole() {
    let mut long = b"2026-09-17 10:00:00 ERROR ".to_vec();
    long.extend(std::iter::repeat_n(b'x', 200_000));
    long.push(b'\n');
    let stampless = [vec![b'y'; 150_000], b"\n".to_vec()].concat();
    let old = [b"2026-09-16 10:00:00 ERROR ".to_vec(), vec![b'z'; 70_000], b"\n".to_vec()].concat();
    let root = store(&[("app.log", &[LINE, &long, &stampless, &old, LINE].concat())]);
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(output.files[0].lines, 4);
    assert_eq!(output.files[0].sha256, sha256(&[LINE, &long, &stampless, LINE].concat()));
    assert_eq!(output.levels, Levels { error: 3, other: 1, ..Levels::default() });
}

#[test]
fn the_account_does_not_depend_on_where_a_chunk_ends() {
    // 65,536 is the chunk: shift a stamped line over its edge byte by byte.
    for shift in 65_536 - 40..=65_536 + 2 {
        let filler = [b"2026-09-16 10:00:00 INFO ".to_vec(), vec![b'f'; shift - 26], b"\n".to_vec()].concat();
        let root = store(&[("app.log", &[&filler, LINE, &filler].concat())]);
        let output = collect_day(root.path(), DAY).unwrap();
        assert_eq!((output.files[0].lines, output.levels.error), (1, 1), "{shift}");
        assert_eq!(output.files[0].sha256, sha256(LINE), "{shift}");
    }
}

#[test]
fn a_corrupt_or_cut_archive_is_named_and_nothing_of_it_counts() {
    let many = LINE.repeat(5_000);
    let packed = gzip(&many);
    let cut = &packed[..packed.len() - 9];
    let mut flipped = packed.clone();
    let crc_at = packed.len() - 8;
    flipped[crc_at] ^= 0xff;
    let root = store(&[
        ("app.log", LINE),
        ("cut.log.1.gz", cut),
        ("crc.log.1.gz", &flipped),
        ("plain.log.gz", LINE),
        ("whole.log.gz", &packed),
    ]);
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(names(&output), ["app.log", "whole.log.gz"]);
    assert_eq!(unreadable(&output), ["crc.log.1.gz", "cut.log.1.gz", "plain.log.gz"]);
    assert_eq!(output.levels.error, 5_001);
    assert!(output.unreadable.iter().all(|entry| !entry.reason.is_empty()));
}

#[test]
fn max_bytes_leaves_whole_files_out_and_never_cuts_one() {
    let packed = gzip(&LINE.repeat(5_000));
    let root = store(&[("a.log.1.gz", &packed), ("b.log", &LINE.repeat(3)), ("c.log", LINE), ("z.log.2.gz", &gzip(LINE))]);
    let line_bytes = LINE.len() as u64;
    let bounded = |max_bytes| collect(root.path(), &CollectLogInput { date: DAY.to_owned(), max_bytes });

    // b is too large by its size and unread; c fits; the archives don't.
    let output = bounded(2 * line_bytes).unwrap();
    assert_eq!(names(&output), ["c.log"]);
    assert_eq!(unreadable(&output), ["a.log.1.gz", "b.log", "z.log.2.gz"]);
    assert!(output.unreadable[0].reason.contains(&format!("maxBytes {}", 2 * line_bytes)), "{:?}", output.unreadable[0]);

    // Exactly enough is enough, one byte less is not.
    let all = 5_005 * line_bytes;
    assert!(bounded(all).unwrap().unreadable.is_empty());
    assert_eq!(unreadable(&bounded(all - 1).unwrap()), ["z.log.2.gz"]);

    let error = bounded(1).unwrap_err();
    assert_eq!(error.code(), "NO_SUCH_DATE");
    assert!(error.to_string().contains("4 more could not be read (first: a.log.1.gz: would go past maxBytes 1"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_the_store_only_and_pipes_are_not_opened() {
    use std::os::unix::fs::symlink;

    let outside = store(&[("secret.log", LINE)]);
    let root = store(&[("app.log", LINE), ("config/real.json", br#"{"appVersion":"1"}"#)]);
    let logs = root.path().join("logs");
    fs::create_dir(root.path().join("archive")).unwrap();
    fs::write(root.path().join("archive/moved.log"), LINE).unwrap();
    symlink("../archive/moved.log", logs.join("inside.log")).unwrap();
    symlink(outside.path().join("logs/secret.log"), logs.join("escape.log")).unwrap();
    symlink("nowhere.log", logs.join("dangling.log")).unwrap();
    symlink("loop.log", logs.join("loop.log")).unwrap();
    fs::create_dir(logs.join("folder.log")).unwrap();
    symlink(outside.path().join("logs/secret.log"), root.path().join("config/escape.ini")).unwrap();
    // Bound but never listened to: a file that is none.
    let _socket = std::os::unix::net::UnixListener::bind(logs.join("socket.log")).unwrap();

    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(names(&output), ["app.log", "inside.log"]);
    assert_eq!(unreadable(&output), ["config/escape.ini", "dangling.log", "escape.log", "folder.log", "loop.log", "socket.log"]);
    let reason = |name: &str| output.unreadable.iter().find(|entry| entry.name == name).unwrap().reason.clone();
    assert_eq!(reason("escape.log"), "a link out of the store folder is not followed");
    assert_eq!(reason("folder.log"), "not a regular file");
    assert_eq!(output.config.app_version.as_deref(), Some("1"));

    // The same for the log folder itself.
    fs::rename(&logs, root.path().join("logs.old")).unwrap();
    symlink(outside.path().join("logs"), &logs).unwrap();
    assert_eq!(collect_day(root.path(), DAY).unwrap_err().code(), "NO_LOGS");
}

#[test]
fn a_folder_with_too_many_files_is_read_up_to_the_limit_and_says_so() {
    let root = store(&[]);
    for number in 0..LOG_FILES_MAX + 5 {
        fs::write(root.path().join(format!("logs/app.log.{number}")), LINE).unwrap();
    }
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(output.files.len(), LOG_FILES_MAX);
    assert_eq!(unreadable(&output), ["*"]);
    assert!(output.unreadable[0].reason.starts_with("5 more log files"), "{:?}", output.unreadable);
}

#[test]
fn cancelling_stops_before_a_file_and_in_the_middle_of_one() {
    let root = store(&[("app.log", &LINE.repeat(100_000))]);
    for stop_at in [0, 1, 5] {
        let asked = Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() > stop_at
        };
        let input = CollectLogInput::for_date(DAY);
        let error = collect_log(root.path(), &input, &zone("Asia/Shanghai"), NOW.parse().unwrap(), &cancelled).unwrap_err();
        assert_eq!(error.code(), "CANCELLED");
        assert_eq!(asked.get(), stop_at + 1, "nothing is read once cancelled");
    }
}

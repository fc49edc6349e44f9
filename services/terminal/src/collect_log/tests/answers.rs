//! The input's edges, the errors' codes, and what the configuration says.

use std::fs;

use super::super::MAX_BYTES_LIMIT;
use super::{CollectLogInput, collect, collect_day, collect_log, sha256, store, zone};

const DAY: &str = "2026-09-17";
const LINE: &[u8] = b"2026-09-17 10:00:00 ERROR x\n";

#[test]
fn errors_have_codes_and_name_what_was_wrong() {
    let root = store(&[("app.log", b"2026-09-16 10:00:00 INFO x\n")]);
    let code = |input: CollectLogInput| {
        let error = collect(root.path(), &input).unwrap_err();
        (error.code(), error.to_string())
    };
    let (found, message) = code(CollectLogInput::for_date(DAY));
    assert_eq!((found, message.as_str()), ("NO_SUCH_DATE", "no line of 2026-09-17 in 1 log files, 0 more could not be read"));
    for date in ["", "today", "2026-02-29", "17.09.2026", "9999-12-31"] {
        let (found, message) = code(CollectLogInput::for_date(date));
        assert_eq!(found, "BAD_INPUT", "{date}");
        assert!(message.contains(&format!("{date:?}")) && message.contains("YYYY-MM-DD"), "{message}");
    }
    for max_bytes in [0, MAX_BYTES_LIMIT + 1] {
        let (found, message) = code(CollectLogInput { date: DAY.to_owned(), max_bytes });
        assert_eq!(found, "BAD_INPUT");
        assert!(message.starts_with(&format!("maxBytes is {max_bytes}")), "{message}");
    }
    let empty = tempfile::tempdir().unwrap();
    let error = collect_day(empty.path(), DAY).unwrap_err();
    assert_eq!(error.code(), "NO_LOGS");
    assert!(error.to_string().contains("logs"), "{error}");
    assert_eq!(collect_day(&empty.path().join("gone"), DAY).unwrap_err().code(), "NO_LOGS");
    // An empty mount point, and a folder with nothing but other files: neither says anything about the day.
    for other in [None, Some("logs/notes.txt")] {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("logs")).unwrap();
        if let Some(name) = other {
            fs::write(root.path().join(name), LINE).unwrap();
        }
        let error = collect_day(root.path(), DAY).unwrap_err();
        assert_eq!(error.code(), "NO_LOGS", "{other:?}");
        assert!(error.to_string().contains("no log file is in it"), "{error}");
    }
}

#[test]
fn yesterday_is_the_store_calendars() {
    let root = store(&[("app.log", b"2026-09-16 10:00:00 INFO x\n2026-09-17 10:00:00 INFO y\n")]);
    let yesterday = |zone_name: &str, now: &str| {
        let input = CollectLogInput::for_date("yesterday");
        collect_log(root.path(), &input, &zone(zone_name), now.parse().unwrap(), &|| false).unwrap().date
    };
    assert_eq!(yesterday("Asia/Shanghai", "2026-09-17T16:30:00Z"), "2026-09-17");
    assert_eq!(yesterday("America/New_York", "2026-09-17T16:30:00Z"), "2026-09-16");
}

#[test]
fn the_configuration_is_hashed_by_name_and_the_first_version_wins() {
    let (a, b, c) = (b"{".as_slice(), b"[pos]\nversion=2.0.0\n".as_slice(), b"appVersion = \"3.0.0\"\n".as_slice());
    let root = store(&[
        ("app.log", LINE),
        ("config/a.json", a),
        ("config/b.ini", b),
        ("config/c.toml", c),
        ("config/readme.md", b"appVersion: 9"),
    ]);
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!(output.config.app_version.as_deref(), Some("2.0.0"));
    let hashed = [b"a.json\x001\0".as_slice(), a, b"b.ini\x0020\0", b, b"c.toml\x0021\0", c].concat();
    assert_eq!(output.config.sha256, sha256(&hashed));
    assert_eq!(output.unreadable.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["config/a.json"]);
    assert!(output.unreadable[0].reason.starts_with("hashed, but no version taken: not JSON"));

    fs::remove_dir_all(root.path().join("config")).unwrap();
    let output = collect_day(root.path(), DAY).unwrap();
    assert_eq!((output.config.app_version, output.config.sha256), (None, sha256(b"")));
    assert_eq!(output.unreadable[0].name, "config");
}

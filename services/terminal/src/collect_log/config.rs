//! A store's configuration: one hash over all files, and the application's version.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::source::{Folder, SourceError};
use super::{CollectError, ConfigSummary, Unreadable};

/// The largest configuration file that is read: 1 MiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Configuration files read at most.
const FILES_MAX: usize = 256;
/// The longest text that passes for a version.
const VERSION_BYTES_MAX: usize = 128;
/// Sections looked into after the top level.
const SECTIONS: [&str; 2] = ["app", "pos"];

/// Hashes `root/config` and finds the version; what can't be read or understood goes to `unreadable`.
///
/// A file that is readable but not understood is hashed all the same: the hash answers whether stores
/// have the same files, whatever is in them.
pub(super) fn summarise(
    root: &Path,
    unreadable: &mut Vec<Unreadable>,
    cancelled: &dyn Fn() -> bool,
) -> Result<ConfigSummary, CollectError> {
    let mut hasher = Sha256::new();
    let mut app_version = None;
    let opened = Folder::open(root, "config").and_then(|folder| Ok((folder.names(is_config)?, folder)));
    let (mut names, folder) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            unreadable.push(Unreadable::new("config", error));
            return Ok(ConfigSummary { app_version, sha256: hex::encode(hasher.finalize()) });
        }
    };
    if names.len() > FILES_MAX {
        let more = names.len() - FILES_MAX;
        unreadable.push(Unreadable::new("config/*", format!("{more} more files were not read: {FILES_MAX} is the most")));
        names.truncate(FILES_MAX);
    }
    for name in &names {
        if cancelled() {
            return Err(CollectError::Cancelled);
        }
        let shown = format!("config/{}", name.to_string_lossy());
        let bytes = match read(&folder, name) {
            Ok(bytes) => bytes,
            Err(error) => {
                unreadable.push(Unreadable::new(shown, error));
                continue;
            }
        };
        hasher.update(name.as_encoded_bytes());
        hasher.update(format!("\0{}\0", bytes.len()));
        hasher.update(&bytes);
        match parse(name, &bytes).and_then(|config| find_version(&config)) {
            Ok(found) => app_version = app_version.or(found),
            Err(problem) => unreadable.push(Unreadable::new(shown, format!("hashed, but no version taken: {problem}"))),
        }
    }
    Ok(ConfigSummary { app_version, sha256: hex::encode(hasher.finalize()) })
}

fn extension(name: &OsStr) -> Option<String> {
    Path::new(name).extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase())
}

fn is_config(name: &OsStr) -> bool {
    matches!(extension(name).as_deref(), Some("json" | "toml" | "ini"))
}

fn read(folder: &Folder, name: &OsStr) -> Result<Vec<u8>, SourceError> {
    let (file, _) = folder.open_file(name)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes")).into());
    }
    Ok(bytes)
}

fn parse(name: &OsStr, bytes: &[u8]) -> Result<Value, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    match extension(name).as_deref() {
        Some("json") => serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}")),
        // The message alone: displayed in full, the error also draws the place in the file.
        Some("toml") => toml::from_str(&text).map_err(|error| format!("not TOML: {}", error.message())),
        _ => Ok(parse_ini(&text)),
    }
}

/// Sections one level deep; keys before the first section are at the top. What is no `key = value` is skipped.
fn parse_ini(text: &str) -> Value {
    let mut top = Map::new();
    let mut section: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = Some(name.0.trim().to_owned());
            continue;
        }
        let Some((key, value)) = line.split_once(['=', ':']) else {
            continue;
        };
        let value = Value::from(unquote(value.trim()));
        let scope = match &section {
            None => Some(&mut top),
            Some(name) => top.entry(name.clone()).or_insert_with(|| Value::Object(Map::new())).as_object_mut(),
        };
        if let Some(scope) = scope {
            scope.entry(key.trim().to_owned()).or_insert(value);
        }
    }
    Value::Object(top)
}

/// Without its quotes, or without the comment behind an unquoted value.
fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner;
        }
    }
    let comment = value.find(" ;").into_iter().chain(value.find(" #")).min();
    comment.map_or(value, |at| value[..at].trim_end())
}

/// The version a file states. Names that can only mean the application win over plain `version`, which
/// at the top level is often the file format's.
fn find_version(config: &Value) -> Result<Option<String>, String> {
    let section = |name: &str| config.get(name).filter(|value| value.is_object());
    let scopes = || std::iter::once(config).chain(SECTIONS.into_iter().filter_map(section));
    let exact = ["appVersion", "app_version", "app.version"];
    let stated = exact.into_iter().flat_map(|key| scopes().filter_map(move |scope| scope.get(key)));
    let in_app = section("app").and_then(|app| app.get("version"));
    let plain = scopes().filter_map(|scope| scope.get("version"));
    match stated.chain(in_app).chain(plain).next() {
        None => Ok(None),
        Some(value) => version_text(value).map(Some),
    }
}

fn version_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.len() > VERSION_BYTES_MAX => {
            Err(format!("the version has {} bytes, more than {VERSION_BYTES_MAX}", text.len()))
        }
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        // 4.10 and 4.1 are the same number and different versions.
        Value::Number(number) => Err(format!("the version {number} is a fraction; write it in quotes")),
        _ => Err("the version is neither text nor a whole number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::OsStr;

    use super::{find_version, parse};

    fn version(name: &str, text: &str) -> Result<Option<String>, String> {
        parse(OsStr::new(name), text.as_bytes()).and_then(|config| find_version(&config))
    }

    #[test]
    fn versions_in_all_formats_and_places() {
        let table = [
            ("a.json", r#"{"appVersion":"4.1.0"}"#, Some("4.1.0")),
            ("a.json", "\u{feff}{\"app_version\":\"4.1.1\"}", Some("4.1.1")),
            ("a.json", r#"{"app.version":"4.1.2"}"#, Some("4.1.2")),
            ("a.json", r#"{"app":{"version":"4.1.3"}}"#, Some("4.1.3")),
            ("a.json", r#"{"version":2,"pos":{"appVersion":"4.1.4"}}"#, Some("4.1.4")),
            ("a.json", r#"{"version":7}"#, Some("7")),
            ("a.json", r#"{"other":{"appVersion":"1"}}"#, None),
            ("a.json", "[1]", None),
            ("a.toml", "app.version = \"4.2.0\"", Some("4.2.0")),
            ("a.toml", "since = 2026-01-01\n[pos]\nversion = '4.2.1'", Some("4.2.1")),
            ("a.ini", "; c\n[app]\nversion = 4.3.0 ; now\n", Some("4.3.0")),
            ("a.INI", "appVersion: \"4.3.1\"\r\n[pos]\r\nversion=9\r\n", Some("4.3.1")),
            ("a.ini", "junk\n[broken\n=\n", None),
        ];
        for (name, text, expected) in table {
            assert_eq!(version(name, text), Ok(expected.map(str::to_owned)), "{name} {text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        assert!(version("a.json", "{").unwrap_err().starts_with("not JSON"));
        assert!(version("a.toml", "a = ").unwrap_err().starts_with("not TOML"));
        assert!(version("a.toml", "version = 4.10").unwrap_err().contains("quotes"));
        assert!(version("a.json", r#"{"version":null}"#).is_err());
        assert!(version("a.json", &format!(r#"{{"version":"{}"}}"#, "9".repeat(129))).is_err());
    }
}

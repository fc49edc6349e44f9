//! `collect_log` on whole store folders. Stamps by table are in [`stamps`], schemas in [`schemas`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod folders;
mod schemas;
mod stamps;
mod stores;

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use jiff::{Timestamp, tz::TimeZone};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{CollectError, CollectLogInput, CollectLogOutput, collect_log};

const NOW: &str = "2026-09-18T04:00:00Z";

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

/// A store folder with these files; a name without a folder is a log.
fn store(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("logs")).unwrap();
    fs::create_dir(dir.path().join("config")).unwrap();
    for (name, bytes) in files {
        let folder = if name.contains('/') { dir.path().to_owned() } else { dir.path().join("logs") };
        fs::write(folder.join(name), bytes).unwrap();
    }
    dir
}

fn collect(root: &Path, input: &CollectLogInput) -> Result<CollectLogOutput, CollectError> {
    collect_log(root, input, &zone("Asia/Shanghai"), NOW.parse().unwrap(), &|| false)
}

fn collect_day(root: &Path, date: &str) -> Result<CollectLogOutput, CollectError> {
    collect(root, &CollectLogInput::for_date(date))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

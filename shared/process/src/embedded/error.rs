//! What can go wrong with the embedded server, each with a stable code and a way out.

use std::path::PathBuf;

use super::binary_version::ServerVersion;

/// Why there is no embedded server.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No usable binary, and none could be fetched. `tried` has one line a place looked at.
    #[error(
        "NATS_SERVER_UNAVAILABLE: found no nats-server {min} or newer and could not fetch one.\n\
         Tried:\n{}\n\
         Ways out:\n\
         \x20 1. set FANFOLD_NATS_SERVER to a nats-server {min} or newer\n\
         \x20 2. put a nats-server {min} or newer on PATH\n\
         \x20 3. run: {by_hand}\n\
         \x20    or use a running server: --nats nats://HOST:4222",
        indented(.tried)
    )]
    Unavailable {
        /// The oldest version that would do.
        min: ServerVersion,
        /// What was looked at and why it did not do.
        tried: Vec<String>,
        /// The command that fetches the pinned binary into the cache.
        by_hand: String,
    },
    /// `FANFOLD_NATS_SERVER` names something that does not do. Not skipped: it was asked for.
    #[error(
        "NATS_SERVER_UNUSABLE: FANFOLD_NATS_SERVER={}: {reason}; \
         set it to a nats-server binary, or unset it to have one found", .path.display()
    )]
    Unusable {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process, or this one, has a server on the same folder.
    #[error(
        "DATA_DIR_LOCKED: {} is in use by process {owner}; stop it or choose another data folder",
        .data_dir.display()
    )]
    Locked {
        /// The folder asked for.
        data_dir: PathBuf,
        /// The owner's pid and its server's, as far as known.
        owner: String,
    },
    /// The data folder cannot be created, read or written.
    #[error(
        "DATA_DIR_UNUSABLE: {}: {reason}; choose a folder this user can write to", .path.display()
    )]
    DataDir {
        /// The file or folder concerned.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Too little room for a log that must not lose anything.
    #[error(
        "DATA_DIR_FULL: {} has {free_bytes} bytes free, at least {needed_bytes} are needed; \
         make room or choose another data folder", .data_dir.display()
    )]
    Full {
        /// The folder asked for.
        data_dir: PathBuf,
        /// Bytes free to this user.
        free_bytes: u64,
        /// Bytes asked for.
        needed_bytes: u64,
    },
    /// The folder was made for another number of servers.
    #[error(
        "REPLICAS_DIFFER: {} holds the log of {found} server(s) and {wanted} were asked for; nothing was touched. \
         Start it with --replicas {found}, or choose another folder for a new log", .data_dir.display()
    )]
    Members {
        /// The folder asked for.
        data_dir: PathBuf,
        /// Servers it was made for.
        found: usize,
        /// Servers asked for.
        wanted: usize,
    },
    /// Most folders of a cluster's members are gone: the empty ones would outvote the one that has the log.
    #[error(
        "DATA_DIR_MEMBERS_LOST: {} of the cluster's {members} members have lost their logs ({}); started like this they would outvote \
         the one that has it. Put the folders back, or restore a backup into another folder", .lost.len(), paths(.lost)
    )]
    MembersLost {
        /// The folders that are missing.
        lost: Vec<PathBuf>,
        /// Members there should be.
        members: usize,
    },
    /// The port asked for is taken.
    #[error("NATS_PORT_IN_USE: 127.0.0.1:{port} is taken; choose another port or leave it out for a free one")]
    PortInUse {
        /// The port asked for.
        port: u16,
    },
    /// A setting that nats-server would not understand as meant.
    #[error("NATS_CONFIG_INVALID: {field} is {value:?}: {reason}")]
    Config {
        /// The field of the configuration.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is expected.
        reason: &'static str,
    },
    /// The binary could not be run.
    #[error("NATS_SERVER_SPAWN: could not run {}: {reason}", .binary.display())]
    Spawn {
        /// The binary.
        binary: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The server ended before it was ready.
    #[error("NATS_SERVER_FAILED: nats-server ended before it was ready ({status}); its last lines:\n{log_tail}")]
    Failed {
        /// Its exit code or signal.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The server runs but did not become ready. It was killed.
    #[error(
        "NATS_SERVER_NOT_READY: nats-server was not ready within {waited_ms} ms (health answer: \
         {health}). If its last line says that it restores a stream, a block of that stream is probably damaged: it is passed over \
         quickly when the server is started ten minutes after the last event, and `fanfold doctor --deep` says then what is missing. \
         Its last lines:\n{log_tail}"
    )]
    NotReady {
        /// How long was waited.
        waited_ms: u64,
        /// The last HTTP status of its health endpoint, or why there was none.
        health: String,
        /// The last lines of its log.
        log_tail: String,
    },
}

impl EmbeddedError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "NATS_SERVER_UNAVAILABLE",
            Self::Unusable { .. } => "NATS_SERVER_UNUSABLE",
            Self::Locked { .. } => "DATA_DIR_LOCKED",
            Self::DataDir { .. } => "DATA_DIR_UNUSABLE",
            Self::Full { .. } => "DATA_DIR_FULL",
            Self::Members { .. } => "REPLICAS_DIFFER",
            Self::MembersLost { .. } => "DATA_DIR_MEMBERS_LOST",
            Self::PortInUse { .. } => "NATS_PORT_IN_USE",
            Self::Config { .. } => "NATS_CONFIG_INVALID",
            Self::Spawn { .. } => "NATS_SERVER_SPAWN",
            Self::Failed { .. } => "NATS_SERVER_FAILED",
            Self::NotReady { .. } => "NATS_SERVER_NOT_READY",
        }
    }

    pub(super) fn data_dir(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Self::DataDir { path: path.into(), reason: reason.to_string() }
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn indented(lines: &[String]) -> String {
    if lines.is_empty() {
        return "  nothing".to_owned();
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("  - {line}")).collect();
    lines.join("\n")
}

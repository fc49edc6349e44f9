//! The port: everything the services ask of the place where the truth is kept.
//!
//! Two implementations pass one conformance suite: [`crate::memory::MemoryLedger`] and [`crate::jetstream::JetStreamLedger`].
//! Nothing here names NATS; subjects are plain strings built by `fanfold_wire::subjects`.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;

use crate::watch;

mod buckets;
mod messages;
mod objects;
mod room;

pub use buckets::{Bucket, Buckets, Entry, Extent};
pub use messages::{BusMessage, RequestError};
pub use objects::{Objects, Source};
pub use room::Room;

/// A stream of items that owns whatever it reads from.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// What a writer believes about the log before it writes (`Nats-Expected-Last-Subject-Sequence` with a filter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// Subject filter the expectation is about, e.g. `ff.task.p.t.main.hq.*`. Every writer of one aggregate uses the same text.
    pub filter: String,
    /// Sequence of the last message under the filter; **0 means "none yet"**.
    pub last_seq: u64,
}

/// One event to be appended.
#[derive(Debug, Clone)]
pub struct Append {
    /// Subject it is stored under.
    pub subject: String,
    /// Idempotency key: equals the CloudEvent's `id` and becomes `Nats-Msg-Id`.
    pub id: String,
    /// The CloudEvent, encoded.
    pub payload: Bytes,
    /// Precondition; reports carry none.
    pub expect: Option<Expect>,
}

/// What became of one appended event. A refusal is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It is in the log, at this sequence.
    Stored {
        /// Sequence in the log.
        seq: u64,
    },
    /// The log already held this id with the same content, at this sequence.
    Duplicate {
        /// Sequence of the stored original.
        seq: u64,
    },
    /// The log already holds this id with *other* content: refused.
    Conflicting {
        /// Sequence of the stored original.
        seq: u64,
    },
    /// The expectation does not hold: look again, decide again.
    Conflict,
    /// The log would not take it (too large, malformed): final.
    Refused {
        /// Stable code of ours, e.g. `TOO_LARGE`.
        code: &'static str,
        /// What the store said.
        message: String,
    },
}

impl Appended {
    /// The sequence at which this event (or its equal) is stored.
    pub fn stored_seq(&self) -> Option<u64> {
        match self {
            Appended::Stored { seq } | Appended::Duplicate { seq } => Some(*seq),
            Appended::Conflicting { .. } | Appended::Conflict | Appended::Refused { .. } => None,
        }
    }
}

/// The store could not be asked, or did not say. The event may or may not be stored; sending it again with the same id is safe.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// No answer within the retry budget.
    #[error("the log did not answer within {waited_ms} ms: {reason} (check that nats-server runs and has a leader)")]
    Unavailable {
        /// How long it was tried, in milliseconds.
        waited_ms: u64,
        /// Last thing seen.
        reason: String,
    },
    /// The log is full (`max_bytes`, disk). Nothing is lost; make room or raise the limit.
    #[error("the log is full: {0} (free disk space or raise the stream's max_bytes; writers keep what they hold and try again)")]
    Full(String),
    /// The server is older than 2.12 or lacks a feature.
    #[error(
        "nats-server {found} is too old, fanfold needs {needed} or newer (unset FANFOLD_NATS_SERVER to let fanfold install one, or upgrade the server)"
    )]
    ServerTooOld {
        /// Version found.
        found: String,
        /// Version needed.
        needed: String,
    },
    /// An existing stream or bucket differs from its definition in a field that matters.
    #[error(
        "{asset} differs from its definition in `{field}`: found {found}, wanted {wanted} (change it on the server, or use another account; fanfold never recreates a log)"
    )]
    AssetMismatch {
        /// Name of the stream or bucket.
        asset: String,
        /// The differing field.
        field: String,
        /// Value found.
        found: String,
        /// Value wanted.
        wanted: String,
    },
    /// Credentials were refused.
    #[error("the server refused these credentials: {0} (check --creds / FANFOLD_NATS_CREDS)")]
    Unauthorized(String),
    /// The log is shorter than what was folded from it, or holds other events there: its tail is lost, or it is another log.
    #[error(
        "the log went back: #{folded} had been folded, it now ends at #{last} or holds another event there (events are lost; everything is folded anew from what the log has; restore a backup or a replica if there is one)"
    )]
    WentBack {
        /// Last sequence folded.
        folded: u64,
        /// Last sequence of the log.
        last: u64,
    },
    /// Events that had been folded are no longer in the log.
    #[error(
        "the log has lost #{from} to #{to} (a damaged store; everything is folded anew from what the log has; restore a backup or a replica if there is one)"
    )]
    Damaged {
        /// First sequence missing.
        from: u64,
        /// Last sequence missing.
        to: u64,
    },
    /// The log is not there, and the state bucket says that there was one.
    #[error(
        "the log FANFOLD is not there, but its events up to #{seq} had been folded: the server lost it or can't read its store (see the server's own log). Restore a backup or a replica; nothing is made in its place. To begin with an empty log, delete the stream KV_fanfold-state first"
    )]
    LogMissing {
        /// Last sequence known to have been in it.
        seq: u64,
    },
    /// A stream or bucket is not there.
    #[error("{asset} is not there (`fanfold up` and `fanfold serve` make what is absent when they start)")]
    AssetMissing {
        /// Name of the stream.
        asset: String,
    },
    /// Something stored cannot be read.
    #[error("the store answered something unreadable: {0}")]
    Corrupt(String),
    /// Everything else, with the store's words.
    #[error("the store refused: {0}")]
    Other(String),
}

impl LedgerError {
    /// Stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            LedgerError::Unavailable { .. } => "UNAVAILABLE",
            LedgerError::Full(_) => "LOG_FULL",
            LedgerError::ServerTooOld { .. } => "SERVER_TOO_OLD",
            LedgerError::AssetMismatch { .. } => "ASSET_MISMATCH",
            LedgerError::Unauthorized(_) => "UNAUTHORIZED",
            LedgerError::WentBack { .. } => "LOG_WENT_BACK",
            LedgerError::Damaged { .. } => "LOG_DAMAGED",
            LedgerError::LogMissing { .. } => "LOG_MISSING",
            LedgerError::AssetMissing { .. } => "ASSET_MISSING",
            LedgerError::Corrupt(_) => "CORRUPT",
            LedgerError::Other(_) => "LEDGER_ERROR",
        }
    }

    /// Whether waiting and trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, LedgerError::Unavailable { .. } | LedgerError::Full(_))
    }
}

/// Why a fenced append stored nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FencedError {
    /// Somebody else holds the role now: become standby.
    #[error("the role {0} is led by another process now")]
    Overtaken(String),
    /// The store failed; whether the batch is stored was resolved as far as it could be.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Proof of leadership of one role: the writer's own last fence. Only [`Log`] moves it on.
#[derive(Debug)]
pub struct Fence {
    /// Role, a token: `dispatcher` or `convergence`.
    pub role: String,
    /// Random per process start.
    pub incarnation: String,
    /// Number of the next fence of this incarnation; never used twice, not even for a halved batch.
    pub next: u64,
    /// Sequence of this writer's last stored fence.
    pub last_seq: u64,
}

/// A message of the log.
#[derive(Clone)]
pub struct Stored {
    /// Sequence in the log, authoritative.
    pub seq: u64,
    /// The log's own timestamp, epoch milliseconds, authoritative.
    pub time_ms: i64,
    /// Subject it is stored under.
    pub subject: String,
    /// `Nats-Msg-Id`.
    pub id: String,
    /// The CloudEvent, encoded.
    pub payload: Bytes,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} {} ({} bytes)", self.seq, self.subject, self.id, self.payload.len())
    }
}

/// An item of the endless ordered tail.
#[derive(Debug, Clone)]
pub enum TailItem {
    /// The next messages, in order and without a gap except for sequences the log no longer holds.
    Messages(Vec<Stored>),
    /// The tail lost its server and goes on from the next sequence: whoever judges clocks starts a new grace.
    Reconnected,
    /// Sequences `from..to` are missing from the log (a damaged block, a deleted message): said, never papered over.
    Hole {
        /// First missing sequence.
        from: u64,
        /// First sequence present again.
        to: u64,
    },
}

/// Missing ranges of the log told at most.
pub const GAPS_MAX: usize = 1_024;

/// The append-only log.
#[async_trait]
pub trait Log: Send + Sync {
    /// Appends events that stand alone (reports): many in one go, each with its own answer, in the order given.
    /// Equal ids within one call: the later ones are answered as if they had been sent in a call of their own afterwards -
    /// `Duplicate` when the first is stored and has the same content, `Conflicting` when it has other content; a first one
    /// that was refused answers for its equals.
    async fn append(&self, events: Vec<Append>) -> Result<Vec<Appended>, LedgerError>;

    /// Appends all or nothing, at most 1,000 events. `Stored`/`Duplicate` carry the **last** event's sequence;
    /// `Duplicate` means the whole batch had been stored before with this content.
    async fn append_atomic(&self, events: Vec<Append>) -> Result<Appended, LedgerError>;

    /// Takes the lead of a role by appending a fence that expects the last one there is.
    async fn acquire_fence(&self, role: &str, incarnation: &str) -> Result<Fence, FencedError>;

    /// Appends decisions behind a fence. One answer each, in order; splits at 999 and halves what is refused.
    /// An empty call appends a fence alone (it proves and renews the lead).
    async fn append_fenced(&self, fence: &mut Fence, events: Vec<Append>) -> Result<Vec<Appended>, FencedError>;

    /// Last sequence of the log, asked of the stream's leader.
    async fn last_seq(&self) -> Result<u64, LedgerError>;

    /// How full the log is; `None` where it has no limit of its own.
    async fn room(&self) -> Result<Option<Room>, LedgerError> {
        Ok(None)
    }

    /// Ranges `(from, to)`, first and last missing sequence, that the log should hold and does not, in order. Nobody may delete, so each
    /// is damage. At most [`GAPS_MAX`]; what lies after the last of these is not told.
    async fn gaps(&self) -> Result<Vec<(u64, u64)>, LedgerError>;

    /// Last message under a filter, read from the stream's leader.
    async fn last_under(&self, filter: &str) -> Result<Option<Stored>, LedgerError>;

    /// Every message under any of the filters with `from <= seq <= to`, in order; ends at `to`.
    async fn read(&self, filters: Vec<String>, from: u64, to: u64)
    -> Result<BoxStream<Result<Stored, LedgerError>>, LedgerError>;

    /// Everything from `from` on, for ever; survives restarts and lost connections by itself. Delivers what is there in batches.
    async fn tail(&self, from: u64) -> Result<BoxStream<TailItem>, LedgerError>;
}

/// Task types: immutable once registered.
#[async_trait]
pub trait Types: Send + Sync {
    /// Registers `name` at `version`; `Some(existing)` when it was there already (equal or not).
    async fn create_type(&self, name: &str, version: u32, document: Bytes) -> Result<Option<Bytes>, LedgerError>;
    /// One version of a type.
    async fn get_type(&self, name: &str, version: u32) -> Result<Option<Bytes>, LedgerError>;
    /// All versions of all types, `(name, version, document)`, sorted.
    async fn list_types(&self) -> Result<Vec<(String, u32, Bytes)>, LedgerError>;
    /// Versions of types that the store counts and can't give, `(name, version)`, sorted: damage. They may be registered again.
    async fn lost_types(&self) -> Result<Vec<(String, u32)>, LedgerError> {
        Ok(Vec::new())
    }
}

/// Plain messaging: beats, syncs, reports, requests.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Messages on a subject (wildcards allowed); with a queue group each goes to one member only. Survives reconnects.
    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<BoxStream<BusMessage>, LedgerError>;
    /// Fire and forget.
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), LedgerError>;
    /// Request and answer.
    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, RequestError>;
    /// Serves the endpoints `(endpoint name, subject)` as one discoverable service; requests of all of them in one stream.
    async fn serve(
        &self,
        service: &str,
        version: &str,
        endpoints: Vec<(String, String)>,
    ) -> Result<BoxStream<BusMessage>, LedgerError>;
    /// Largest payload the server takes, in bytes.
    fn max_payload(&self) -> usize;
    /// Counts up at every (re)connect; starts at 1.
    fn connections(&self) -> watch::Receiver<u64>;
}

/// All of it. Services hold an `Arc<dyn Ledger>`.
pub trait Ledger: Log + Buckets + Types + Objects + Bus {}

impl<T: Log + Buckets + Types + Objects + Bus> Ledger for T {}

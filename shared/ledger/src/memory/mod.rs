//! The ledger in memory: for tests, simulations and dry runs.
//!
//! It enforces everything the port promises - expectations with wildcards, the duplicate window, atomic batches, fences,
//! republishing of stored decisions - so that a service which passes on it has not passed on a pushover. It is
//! deterministic: ordered maps, a clock handed in, no randomness.

mod bus;
mod log;
mod store;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub use self::bus::Network;

use self::bus::BusState;
use self::log::LogState;
use crate::port::LedgerError;
use crate::watch;

/// Epoch milliseconds, as the log would stamp them.
pub type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Largest payload, in bytes; the default of nats-server.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// A ledger in memory. Clones are handles to the same one.
#[derive(Clone)]
pub struct MemoryLedger {
    shared: Arc<Shared>,
}

struct Shared {
    now_ms: NowMs,
    state: Mutex<State>,
    /// Last sequence of the log; wakes the tails.
    last_seq: watch::Sender<u64>,
    connections: watch::Sender<u64>,
}

struct State {
    log: LogState,
    bus: BusState,
    records: Bucket,
    terminals: Bucket,
    types: BTreeMap<(String, u32), Bytes>,
    objects: BTreeMap<String, Bytes>,
    fence_number: u64,
    down: bool,
    full: bool,
    /// Last sequence there is room for.
    room_to: Option<u64>,
    refused: u64,
}

/// A bucket: key to (revision, value), and the last revision given.
#[derive(Default)]
struct Bucket {
    records: BTreeMap<String, (u64, Bytes)>,
    last_revision: u64,
}

impl MemoryLedger {
    /// An empty ledger that reads the time from `now_ms` and forgets ids for its duplicate check after
    /// `duplicate_window_ms`.
    pub fn new(now_ms: NowMs, duplicate_window_ms: i64) -> Self {
        let log = LogState {
            messages: Vec::new(),
            by_subject: BTreeMap::new(),
            ids: HashMap::new(),
            ids_by_age: VecDeque::new(),
            duplicate_window_ms,
            lost: BTreeSet::new(),
        };
        let state = State {
            log,
            bus: BusState::default(),
            records: Bucket::default(),
            terminals: Bucket::default(),
            types: BTreeMap::new(),
            objects: BTreeMap::new(),
            fence_number: 0,
            down: false,
            full: false,
            room_to: None,
            refused: 0,
        };
        let shared =
            Shared { now_ms, state: Mutex::new(state), last_seq: watch::Sender::new(0), connections: watch::Sender::new(1) };
        Self { shared: Arc::new(shared) }
    }

    /// A fault: from now on nobody can reach it (`Unavailable`), or they can again, as after a reconnect.
    pub fn set_down(&self, down: bool) {
        let was_down = std::mem::replace(&mut self.lock().down, down);
        if was_down && !down {
            self.reconnect();
        }
    }

    /// A fault: the log takes no more (`LOG_FULL`), or it does again.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// A fault: the log takes no message beyond this sequence (`LOG_FULL`), and of a batch all or nothing; `None`: it has room again.
    pub fn set_room(&self, last_seq: Option<u64>) {
        self.lock().room_to = last_seq;
    }

    /// How often the log was full for a writer.
    pub fn refused_as_full(&self) -> u64 {
        self.lock().refused
    }

    /// A fault: the connection was lost and found again. Every tail says so.
    pub fn reconnect(&self) {
        self.shared.connections.send_modify(|count| *count += 1);
    }

    /// A fault: these sequences, first and last, are no longer in the log, as after damage to its store.
    pub fn lose(&self, from: u64, to: u64) {
        self.lock().log.lose(from, to);
        self.reconnect();
    }

    /// A fault: a record of `fanfold-state` is another one, or gone, and no revision tells of it.
    pub fn damage_state(&self, key: &str, value: Option<Bytes>) {
        let records = &mut self.lock().records.records;
        match value {
            Some(value) => drop(records.get_mut(key).map(|(_, old)| *old = value)),
            None => drop(records.remove(key)),
        }
    }

    /// A fault: the log ends at `last_seq` again, as after the loss of its tail.
    pub fn truncate(&self, last_seq: u64) {
        self.lock().log.truncate(last_seq);
        self.reconnect();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere while the lock was held is that test's failure, not a reason for another one here.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless it is "down".
    fn reach(&self) -> Result<MutexGuard<'_, State>, LedgerError> {
        let state = self.lock();
        if state.down {
            return Err(LedgerError::Unavailable { waited_ms: 0, reason: "the memory ledger was set down".into() });
        }
        Ok(state)
    }
}

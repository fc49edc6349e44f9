//! A crowd for measurements: very many terminals in one process, over few connections, with instant handlers and no journal on disk.
//!
//! Each keeps the rules of [`fanfold_sdk::holds`], as every terminal does. What makes it light is that one loop drives all terminals
//! of a connection, where the library gives each its own tasks.

mod group;
mod member;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fanfold_process::shutdown::Shutdown;
use fanfold_sdk::TerminalError;
use fanfold_sdk::connection::{ConnectionOptions, connect};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::task::JoinSet;

use self::group::Group;

/// What a crowd is told, as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CrowdSpec {
    /// The server.
    pub url: String,
    /// How many terminals; their ids are those of [`crowd_id`], from 0.
    pub terminals: u32,
    /// Over how many connections.
    pub connections: u32,
    /// Heartbeat interval, in milliseconds.
    pub beat_interval_ms: u64,
    /// Tasks at once at each terminal.
    pub slots: u32,
    /// How long a task takes, in milliseconds.
    #[serde(default)]
    pub work_ms: u64,
}

/// Id of the `n`th terminal of a crowd.
pub fn crowd_id(n: u32) -> String {
    format!("S{n:06}")
}

/// A result of about 300 bytes, as a crowd's terminal answers for a store.
///
/// # Errors
/// None: it can be written as JSON.
pub fn crowd_result(store: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let result = json!({
        "store": store, "appVersion": "4.18.0", "lines": 48_211, "errors": 17, "warnings": 240,
        "levels": { "INFO": 47_954, "WARN": 240, "ERROR": 17 }, "first": "2026-09-17T08:00:01+08:00",
        "last": "2026-09-17T21:59:58+08:00", "configSha256": "2f7a8896b386711189137684dc4338d13497e27abb1bde9c06db5919e231e7ad",
    });
    to_raw_value(&result)
}

/// Syncs of one terminal since the start, answered and not.
#[derive(Debug, Default)]
struct Syncs {
    answered: AtomicU64,
    unanswered: AtomicU64,
}

/// The running crowd; it ends when it is dropped.
pub struct Crowd {
    groups: JoinSet<()>,
    /// One a terminal.
    syncs: Vec<Arc<Syncs>>,
    /// What they were at the last `mark`.
    marked: Vec<(u64, u64)>,
}

impl Crowd {
    /// Connects and starts every terminal.
    ///
    /// # Errors
    /// What keeps a connection or a terminal from starting.
    pub async fn start(spec: &CrowdSpec) -> Result<Self, TerminalError> {
        let connections = spec.connections.clamp(1, spec.terminals.max(1));
        // All at once: each waits a moment before it connects, as terminals do.
        let connecting = (0..connections).map(|n| {
            let name = format!("fanfold-crowd-{n}");
            connect(ConnectionOptions { url: spec.url.clone(), name, ..Default::default() })
        });
        let mut crowd = Self { groups: JoinSet::new(), syncs: Vec::new(), marked: Vec::new() };
        for (first, connection) in (0..connections).zip(try_join_all(connecting).await?) {
            let ids = (first..spec.terminals).step_by(connections as usize).map(crowd_id);
            let group = Group::start(connection, ids, spec).await?;
            crowd.syncs.extend(group.syncs());
            crowd.groups.spawn(group.run());
        }
        Ok(crowd)
    }

    /// How many terminals run.
    pub fn len(&self) -> usize {
        self.syncs.len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.syncs.is_empty()
    }

    /// Syncs answered and not answered, by terminal.
    fn counted(&self) -> Vec<(u64, u64)> {
        let of = |syncs: &Arc<Syncs>| (syncs.answered.load(Ordering::Relaxed), syncs.unanswered.load(Ordering::Relaxed));
        self.syncs.iter().map(of).collect()
    }

    /// One line of numbers since the last `mark`: `stats`, the fewest syncs any terminal had answered, the most any asked, and of all
    /// terminals together those answered and those not.
    fn stats(&self) -> String {
        let (mut least, mut most, mut answered, mut not) = (u64::MAX, 0, 0, 0);
        for (i, now) in self.counted().into_iter().enumerate() {
            let before = self.marked.get(i).copied().unwrap_or_default();
            let (a, n) = (now.0 - before.0, now.1 - before.1);
            (least, most, answered, not) = (least.min(a), most.max(a + n), answered + a, not + n);
        }
        format!("stats {least} {most} {answered} {not}")
    }

    /// Waits for a group to end; they end only when their connection does.
    async fn ended(&mut self) {
        if self.groups.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Runs a crowd as a process of its own until stdin or a signal ends it. Says `ready N` through `say`, and answers `mark` and `stats`.
///
/// # Errors
/// As [`Crowd::start`].
pub async fn run_crowd(spec: &CrowdSpec, shutdown: Shutdown, say: impl Fn(&str)) -> Result<(), TerminalError> {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut crowd = Crowd::start(spec).await?;
    say(&format!("ready {}", crowd.len()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = shutdown.wait() => return Ok(()),
            () = crowd.ended() => {
                tracing::error!("a connection of the crowd has ended for good");
                return Ok(());
            }
        };
        match line {
            Ok(Some(line)) if line.trim() == "mark" => {
                crowd.marked = crowd.counted();
                say("marked");
            }
            Ok(Some(line)) if line.trim() == "stats" => say(&crowd.stats()),
            Ok(Some(_)) => {}
            // Whoever started this process is gone.
            Ok(None) | Err(_) => return Ok(()),
        }
    }
}

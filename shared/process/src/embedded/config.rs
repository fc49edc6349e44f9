//! The embedded server's settings and the configuration file made of them.

use std::path::{Path, PathBuf};

use super::error::EmbeddedError;

const TEMPLATE: &str = include_str!("../../../../nats/server/embedded.conf");

/// The largest message the log takes, in bytes.
const DEFAULT_MAX_PAYLOAD_BYTES: u32 = 8 * 1024 * 1024;
const LOG_SIZE_LIMIT_BYTES: u64 = 10 * 1024 * 1024;
const LOG_FILES_MAX: u32 = 3;

/// How to run an embedded server.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// The nats-server to run, as [`locate`](super::locate()) found it.
    pub binary: PathBuf,
    /// Where everything of this server lies; created when absent, locked while it runs.
    pub data_dir: PathBuf,
    /// The client port on 127.0.0.1; `None` takes the one this folder had last where it is free, else any free one, and keeps it over
    /// a restart.
    pub port: Option<u16>,
    /// Whether an acknowledged message is on the disk before the answer (default), or up to two
    /// minutes later. Without it a power cut loses acknowledged messages; a crash does not.
    pub sync_always: bool,
    /// The largest message, in bytes; 8 MiB by default.
    pub max_payload_bytes: u32,
    /// Tags JetStream may place by, for example `zone:a`.
    pub server_tags: Vec<String>,
    /// The server's name; needed in a cluster, else the server makes one up.
    pub server_name: Option<String>,
    /// The cluster this server is a member of; `None` for a single server.
    pub cluster: Option<ClusterConfig>,
}

/// One member's view of its cluster. Routes are on loopback like everything else.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The same for all members.
    pub name: String,
    /// This member's port for the others, on 127.0.0.1.
    pub port: u16,
    /// The route ports of all members; this one's own may be among them.
    pub route_ports: Vec<u16>,
}

impl EmbeddedConfig {
    /// The defaults: a free port, every event on disk before its answer, 8 MiB messages.
    pub fn new(binary: impl Into<PathBuf>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            data_dir: data_dir.into(),
            port: None,
            sync_always: true,
            max_payload_bytes: DEFAULT_MAX_PAYLOAD_BYTES,
            server_tags: Vec::new(),
            server_name: None,
            cluster: None,
        }
    }

    /// The configuration file's text. `ports` are those of an earlier start to be kept; `store_bytes_max` bounds the log.
    pub(super) fn render(&self, layout: &Layout, ports: Option<Ports>, store_bytes_max: u64) -> Result<String, EmbeddedError> {
        let port = ports.map(|ports| ports.client).or(self.port);
        let monitor_port = ports.map(|ports| ports.monitor);
        let sync_interval = if self.sync_always { "always" } else { "2m" };
        let fields = [
            ("port", port_or_random(port)),
            ("monitor_port", port_or_random(monitor_port)),
            ("server_name", self.server_name_line()?),
            ("server_tags", self.server_tags_line()?),
            ("max_payload_bytes", self.max_payload_bytes.to_string()),
            ("run_dir", quoted_path(&layout.run_dir)?),
            ("pid_file", quoted_path(&layout.pid_file)?),
            ("log_file", quoted_path(&layout.log_file)?),
            ("log_size_limit_bytes", LOG_SIZE_LIMIT_BYTES.to_string()),
            ("log_files_max", LOG_FILES_MAX.to_string()),
            ("store_dir", quoted_path(&layout.store_dir)?),
            ("sync_interval", sync_interval.to_owned()),
            ("store_bytes_max", store_bytes_max.to_string()),
            ("cluster", self.cluster_block()?),
        ];
        Ok(fill(TEMPLATE, &fields))
    }

    fn server_name_line(&self) -> Result<String, EmbeddedError> {
        match &self.server_name {
            Some(name) => Ok(format!("server_name: {}", word("server_name", name)?)),
            None if self.cluster.is_some() => Err(EmbeddedError::Config {
                field: "server_name",
                value: String::new(),
                reason: "a member of a cluster needs a name of its own",
            }),
            None => Ok(String::new()),
        }
    }

    fn server_tags_line(&self) -> Result<String, EmbeddedError> {
        if self.server_tags.is_empty() {
            return Ok(String::new());
        }
        let tags: Result<Vec<String>, EmbeddedError> = self.server_tags.iter().map(|tag| word("server_tags", tag)).collect();
        Ok(format!("server_tags: [{}]", tags?.join(", ")))
    }

    fn cluster_block(&self) -> Result<String, EmbeddedError> {
        let Some(cluster) = &self.cluster else {
            return Ok(String::new());
        };
        let name = word("cluster.name", &cluster.name)?;
        let routes: Vec<String> = cluster.route_ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        Ok(format!(
            "cluster {{\n  name: {name}\n  host: 127.0.0.1\n  port: {}\n  routes: [{}]\n}}",
            cluster.port,
            routes.join(", ")
        ))
    }
}

/// The ports a running server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) monitor: u16,
}

/// Where things lie in a data folder.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) lock_file: PathBuf,
    pub(super) config_file: PathBuf,
    pub(super) log_file: PathBuf,
    /// What the server says before its log is open, and a crash's stack trace.
    pub(super) stderr_file: PathBuf,
    pub(super) run_dir: PathBuf,
    pub(super) pid_file: PathBuf,
    pub(super) store_dir: PathBuf,
    /// The client port of the last start, a number.
    pub(super) port_file: PathBuf,
}

impl Layout {
    /// `data_dir` must be absolute: the server resolves paths by itself.
    pub(super) fn of(data_dir: &Path) -> Self {
        let run_dir = data_dir.join("run");
        Self {
            lock_file: data_dir.join("fanfold.lock"),
            port_file: data_dir.join("port"),
            config_file: data_dir.join("nats-server.conf"),
            log_file: data_dir.join("nats-server.log"),
            stderr_file: data_dir.join("nats-server.stderr"),
            pid_file: run_dir.join("nats-server.pid"),
            run_dir,
            // nats-server adds a folder `jetstream` of its own.
            store_dir: data_dir.join("store"),
        }
    }
}

fn port_or_random(port: Option<u16>) -> String {
    port.map_or_else(|| "-1".to_owned(), |port| port.to_string())
}

/// Replaces each `{{name}}` once, left to right, so that a value is never searched for names.
fn fill(template: &str, fields: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            break;
        };
        text.push_str(before);
        if let Some((_, value)) = fields.iter().find(|(field, _)| *field == name) {
            text.push_str(value);
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// A name or tag as the configuration language takes it, quoted.
fn word(field: &'static str, value: &str) -> Result<String, EmbeddedError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:=/".contains(c);
    if value.is_empty() || value.len() > 128 || !value.chars().all(plain) {
        return Err(EmbeddedError::Config {
            field,
            value: value.to_owned(),
            reason: "use 1 to 128 letters, digits and - _ . : = /",
        });
    }
    Ok(format!("\"{value}\""))
}

fn quoted_path(path: &Path) -> Result<String, EmbeddedError> {
    let refused = |reason| EmbeddedError::Config { field: "data_dir", value: path.display().to_string(), reason };
    let text = path.to_str().ok_or_else(|| refused("a path that is not UTF-8 cannot be configured"))?;
    if text.chars().any(char::is_control) {
        return Err(refused("control characters cannot be configured"));
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

//! One server, or three that replicate each other: the members of one data folder, on this machine.
//!
//! ```text
//! DIR/store          one server: its log is in DIR itself
//! DIR/cluster.json   several: their cluster's name and route ports ...
//! DIR/n1 n2 n3       ... and a data folder for each
//! ```
//!
//! How many they are is settled by the first start. A folder asked for with another number is refused: neither a log of one server nor
//! a third of a cluster's is ever started as something else.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::config::{ClusterConfig, EmbeddedConfig};
use super::error::EmbeddedError;
use super::lock::DataLock;
use super::server::EmbeddedServer;

/// Members of a cluster.
const MEMBERS: usize = 3;
/// Starts of a whole cluster with route ports of its own choice: another process may have been faster at one of them.
const STARTS_MAX: u32 = 3;
const CLUSTER_FILE: &str = "cluster.json";

/// The servers of one data folder, all of this process. Dropping it kills them.
#[derive(Debug)]
pub struct EmbeddedServers {
    members: Vec<Arc<EmbeddedServer>>,
    /// Of a cluster's folder: its members' own locks come too late to guard what they share.
    lock: Mutex<Option<DataLock>>,
    temporary: Mutex<Option<TempDir>>,
}

/// What the members must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    name: String,
    route_ports: Vec<u16>,
}

impl EmbeddedServers {
    /// How many servers a data folder was made for; `None` where there is nothing yet.
    pub fn members_of(data_dir: &Path) -> Option<usize> {
        let clustered = data_dir.join(CLUSTER_FILE).exists() || data_dir.join(member_name(0)).join("store").exists();
        let single = data_dir.join("store").exists();
        clustered.then_some(MEMBERS).or(single.then_some(1))
    }

    /// Starts `members` servers, 1 or 3, on the folder of `config`; its port is the first member's, the others' follow it.
    ///
    /// # Errors
    /// [`EmbeddedError::Members`] when the folder was made for another number, [`EmbeddedError::MembersLost`] when most of a cluster's
    /// folders are gone, else as [`EmbeddedServer::start`]. Nothing is left running.
    pub async fn start(config: EmbeddedConfig, members: usize) -> Result<Self, EmbeddedError> {
        let found = Self::members_of(&config.data_dir).unwrap_or(members);
        if found != members {
            return Err(EmbeddedError::Members { data_dir: config.data_dir, found, wanted: members });
        }
        let (members, lock) = match members {
            1 => (vec![Arc::new(EmbeddedServer::start(config).await?)], None),
            MEMBERS => {
                fs::create_dir_all(&config.data_dir).map_err(|error| EmbeddedError::data_dir(&config.data_dir, error))?;
                let lock = DataLock::acquire(&config.data_dir, &config.data_dir.join("fanfold.lock")).await?;
                (start_cluster(&config).await?, Some(lock))
            }
            other => {
                let reason = "one server or three";
                return Err(EmbeddedError::Config { field: "members", value: other.to_string(), reason });
            }
        };
        Ok(Self { members, lock: Mutex::new(lock), temporary: Mutex::new(None) })
    }

    /// Starts them in a temporary folder that is removed by [`stop`](Self::stop) or a drop.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn ephemeral(binary: impl Into<PathBuf>, members: usize) -> Result<Self, EmbeddedError> {
        let temporary =
            TempDir::with_prefix("fanfold-nats-").map_err(|error| EmbeddedError::data_dir(std::env::temp_dir(), error))?;
        let mut servers = Self::start(EmbeddedConfig::new(binary, temporary.path()), members).await?;
        servers.temporary = Mutex::new(Some(temporary));
        Ok(servers)
    }

    /// The servers, in the order of their names.
    pub fn members(&self) -> &[Arc<EmbeddedServer>] {
        &self.members
    }

    /// A URL for each.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url()).collect()
    }

    /// All URLs divided by commas, as clients take them.
    pub fn url(&self) -> String {
        self.urls().join(",")
    }

    /// Their process ids.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.pid()).collect()
    }

    /// Ends all of them at once, as [`EmbeddedServer::stop`] does one.
    pub async fn stop(&self) {
        let ending: Vec<_> = self.members.iter().map(Arc::clone).map(|m| tokio::spawn(async move { m.stop().await })).collect();
        for member in ending {
            // One whose task is gone is killed by its drop.
            let _ = member.await;
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        let temporary = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(temporary) = temporary
            && let Err(error) = temporary.close()
        {
            tracing::warn!(%error, "could not remove the temporary data folder");
        }
    }
}

fn member_name(index: usize) -> String {
    format!("n{}", index + 1)
}

async fn start_cluster(config: &EmbeddedConfig) -> Result<Vec<Arc<EmbeddedServer>>, EmbeddedError> {
    let mut shape = prepare(&config.data_dir)?;
    let mut starts = 0;
    loop {
        starts += 1;
        let members = start_members(config, &shape).await;
        match members {
            Err(EmbeddedError::Failed { .. }) if starts < STARTS_MAX => {
                tracing::warn!(starts, "the members did not start; they try other route ports");
                shape.route_ports = free_ports(&config.data_dir)?;
                write(&config.data_dir, &shape)?;
            }
            other => return other,
        }
    }
}

async fn start_members(config: &EmbeddedConfig, shape: &Shape) -> Result<Vec<Arc<EmbeddedServer>>, EmbeddedError> {
    let start = |index: usize| EmbeddedServer::start(member_config(config, shape, index));
    let (one, two, three) = tokio::try_join!(start(0), start(1), start(2))?;
    Ok(vec![Arc::new(one), Arc::new(two), Arc::new(three)])
}

fn member_config(config: &EmbeddedConfig, shape: &Shape, index: usize) -> EmbeddedConfig {
    let mut member = config.clone();
    member.data_dir = config.data_dir.join(member_name(index));
    member.port = config.port.map(|port| port.saturating_add(u16::try_from(index).unwrap_or(0)));
    member.server_name = Some(member_name(index));
    member.cluster = Some(ClusterConfig {
        name: shape.name.clone(),
        port: shape.route_ports.get(index).copied().unwrap_or_default(),
        route_ports: shape.route_ports.clone(),
    });
    member
}

/// The cluster's name and ports, kept from the first start on. Ports that somebody else has taken meanwhile are replaced: the members
/// know each other by name, and they start together.
fn prepare(data_dir: &Path) -> Result<Shape, EmbeddedError> {
    let stores: Vec<PathBuf> = (0..MEMBERS).map(|index| data_dir.join(member_name(index)).join("store")).collect();
    let path = data_dir.join(CLUSTER_FILE);
    let kept = match fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice::<Shape>(&bytes).map_err(|error| EmbeddedError::data_dir(&path, error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(EmbeddedError::data_dir(&path, error)),
    };
    let present = stores.iter().filter(|store| store.exists()).count();
    if kept.is_some() && present * 2 < MEMBERS {
        let lost = stores.iter().filter(|store| !store.exists()).cloned().collect();
        return Err(EmbeddedError::MembersLost { lost, members: MEMBERS });
    }
    for store in &stores {
        fs::create_dir_all(store).map_err(|error| EmbeddedError::data_dir(store, error))?;
    }
    let usable = |shape: &Shape| shape.route_ports.len() == MEMBERS && shape.route_ports.iter().all(|port| is_free(*port));
    let shape = match kept {
        Some(shape) if usable(&shape) => return Ok(shape),
        Some(shape) => Shape { route_ports: free_ports(data_dir)?, ..shape },
        None => {
            // A name of its own: members of two clusters on one machine must never take each other for their own.
            let name = format!("fanfold-{:016x}", RandomState::new().hash_one(data_dir));
            Shape { name, route_ports: free_ports(data_dir)? }
        }
    };
    write(data_dir, &shape)?;
    Ok(shape)
}

fn write(data_dir: &Path, shape: &Shape) -> Result<(), EmbeddedError> {
    let path = data_dir.join(CLUSTER_FILE);
    let beside = data_dir.join(format!("{CLUSTER_FILE}.tmp"));
    let text = serde_json::to_vec(shape).map_err(|error| EmbeddedError::data_dir(&path, error))?;
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path)).map_err(|error| EmbeddedError::data_dir(&path, error))
}

fn is_free(port: u16) -> bool {
    port != 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Ports nobody listens on now, all different.
fn free_ports(data_dir: &Path) -> Result<Vec<u16>, EmbeddedError> {
    let listeners: io::Result<Vec<TcpListener>> = (0..MEMBERS).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let ports = listeners.and_then(|all| all.iter().map(|one| Ok(one.local_addr()?.port())).collect::<io::Result<Vec<u16>>>());
    ports.map_err(|error| EmbeddedError::data_dir(data_dir, format!("no free ports for routes: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_kept_and_taken_ports_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(EmbeddedServers::members_of(dir.path()), None);
        let first = prepare(dir.path()).unwrap();
        assert_eq!(EmbeddedServers::members_of(dir.path()), Some(3));
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut shape = first.clone();
        shape.route_ports[1] = taken.local_addr().unwrap().port();
        write(dir.path(), &shape).unwrap();
        let second = prepare(dir.path()).unwrap();
        assert_eq!(second.name, first.name);
        assert_ne!(second.route_ports, shape.route_ports);
        let distinct: std::collections::BTreeSet<_> = second.route_ports.iter().collect();
        assert_eq!(distinct.len(), 3);
    }

    #[test]
    fn one_lost_folder_is_filled_again_and_two_are_not() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        fs::remove_dir_all(dir.path().join("n2")).unwrap();
        prepare(dir.path()).unwrap();
        for lost in ["n1", "n3"] {
            fs::remove_dir_all(dir.path().join(lost)).unwrap();
        }
        let error = prepare(dir.path()).unwrap_err();
        assert_eq!(error.code(), "DATA_DIR_MEMBERS_LOST");
        assert!(error.to_string().contains("n1") && error.to_string().contains("n3"), "{error}");
    }

    #[tokio::test]
    async fn another_number_of_servers_is_refused_before_anything_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("store")).unwrap();
        let config = EmbeddedConfig::new("no-binary", dir.path());
        let error = EmbeddedServers::start(config.clone(), 3).await.unwrap_err();
        assert_eq!(error.code(), "REPLICAS_DIFFER");
        assert!(error.to_string().contains("--replicas 1"), "{error}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["store"]);
        let error = EmbeddedServers::start(EmbeddedConfig::new("no-binary", dir.path().join("other")), 2).await.unwrap_err();
        assert_eq!(error.code(), "NATS_CONFIG_INVALID");
    }
}

//! Hosting: which services run in this process, on one shared tail, until shutdown.

pub mod room;
pub mod server;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use fanfold_process::tasks::Tasks;
use fanfold_recorder::Stats;
use fanfold_wire::types::TypeDocument;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Takes in plans, answers queries.
    Api,
    /// Writes terminals' reports into the log.
    Recorder,
    /// Decides who runs now.
    Dispatcher,
    /// Writes state records for readers.
    Projector,
    /// Fires barriers, writes summaries.
    Convergence,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] = [Role::Api, Role::Recorder, Role::Dispatcher, Role::Projector, Role::Convergence];
}

/// Bounds and clocks of every service, from a TOML file or defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServicesConfig {
    /// See [`fanfold_dispatcher::DispatcherConfig`].
    pub dispatcher: fanfold_dispatcher::DispatcherConfig,
    /// See [`fanfold_recorder::RecorderConfig`].
    pub recorder: fanfold_recorder::RecorderConfig,
    /// See [`fanfold_projector::ProjectorConfig`].
    pub projector: fanfold_projector::ProjectorConfig,
    /// See [`fanfold_convergence::ConvergenceConfig`].
    pub convergence: fanfold_convergence::ConvergenceConfig,
}

/// How long services may take to hand over what they have taken.
const GRACE: Duration = Duration::from_secs(8);
/// How long they may take to end at all.
const DRAIN: Duration = Duration::from_secs(10);

/// Services running in this process.
pub struct Hosted {
    tasks: Tasks,
    /// Open plans, shared by the services.
    pub open: OpenPlans,
    /// What the recorder counts.
    pub recorded: Arc<Stats>,
}

impl Hosted {
    /// Registers the types that come with fanfold, loads open plans and starts the services.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn start(
        ledger: Arc<dyn Ledger>,
        roles: &[Role],
        config: &ServicesConfig,
        shutdown: Shutdown,
    ) -> Result<Self, CliError> {
        if roles.contains(&Role::Api) {
            for document in builtin_types().map_err(CliError::Internal)? {
                fanfold_api::register_builtin(ledger.as_ref(), &document).await?;
            }
        }
        let open = OpenPlans::start(Arc::clone(&ledger)).await?;
        let clock = Clock::system();
        let recorded = Arc::new(Stats::default());
        let mut tasks = Tasks::new(shutdown.clone());
        for role in roles {
            let (name, service) = service(*role, &ledger, &open, &clock, &recorded, config, shutdown.clone());
            tasks.spawn(name, within_grace(name, shutdown.clone(), service));
        }
        let followed = open.clone();
        tasks.spawn("open-plans", async move {
            tokio::select! {
                () = shutdown.wait() => Ok::<(), LedgerError>(()),
                () = ended(&followed) => Err(LedgerError::Other("the log's tail ended".into())),
            }
        });
        Ok(Self { tasks, open, recorded })
    }

    /// Waits for shutdown and for every service to have handed over what it had taken.
    ///
    /// # Errors
    /// A service that died by itself; its name and why.
    pub async fn join(self) -> Result<(), CliError> {
        self.tasks.join(DRAIN).await.map_err(|e| CliError::Server { code: e.code(), message: e.to_string() })
    }
}

type Service = Pin<Box<dyn Future<Output = Result<(), LedgerError>> + Send>>;

fn service(
    role: Role,
    ledger: &Arc<dyn Ledger>,
    open: &OpenPlans,
    clock: &Clock,
    stats: &Arc<Stats>,
    config: &ServicesConfig,
    end: Shutdown,
) -> (&'static str, Service) {
    let (ledger, open, clock, stats) = (Arc::clone(ledger), open.clone(), clock.clone(), Arc::clone(stats));
    match role {
        Role::Api => ("api", Box::pin(fanfold_api::run(fanfold_api::Deps { ledger, open, clock }, end))),
        Role::Recorder => {
            let config = config.recorder.clone();
            ("recorder", Box::pin(fanfold_recorder::run(fanfold_recorder::Deps { ledger, open, clock, config, stats }, end)))
        }
        Role::Dispatcher => {
            let config = config.dispatcher.clone();
            ("dispatcher", Box::pin(fanfold_dispatcher::run(fanfold_dispatcher::Deps { ledger, open, clock, config }, end)))
        }
        Role::Projector => {
            let config = config.projector.clone();
            ("projector", Box::pin(fanfold_projector::run(fanfold_projector::Deps { ledger, open, config }, end)))
        }
        Role::Convergence => {
            let config = config.convergence.clone();
            ("convergence", Box::pin(fanfold_convergence::run(fanfold_convergence::Deps { ledger, open, clock, config }, end)))
        }
    }
}

/// A service that can't hand over in time (its server is away) lets go of what it holds: the log or its sender still has it.
async fn within_grace(
    name: &'static str,
    shutdown: Shutdown,
    service: impl Future<Output = Result<(), LedgerError>>,
) -> Result<(), LedgerError> {
    let given_up = async {
        shutdown.wait().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = service => ended,
        () = given_up => {
            tracing::warn!(service = name, "not everything in hand could be written before the end; its senders still have it");
            Ok(())
        }
    }
}

async fn ended(open: &OpenPlans) {
    while open.is_following() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Registrations that come with fanfold.
///
/// # Errors
/// When an embedded document is broken, which a test rules out.
pub fn builtin_types() -> Result<Vec<Vec<u8>>, String> {
    let collect_log = TypeDocument::assemble(
        include_str!("../../../../schemas/types/collect_log/1/type.json"),
        include_str!("../../../../schemas/types/collect_log/1/input.json"),
        include_str!("../../../../schemas/types/collect_log/1/output.json"),
    )?;
    let noop = TypeDocument::assemble(
        include_str!("../../../../schemas/types/noop/1/type.json"),
        include_str!("../../../../schemas/types/noop/1/input.json"),
        include_str!("../../../../schemas/types/noop/1/output.json"),
    )?;
    Ok(vec![collect_log, noop])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_types_are_sound() {
        let names: Vec<String> = builtin_types().unwrap().iter().map(|d| TypeDocument::parse(d).unwrap().name).collect();
        assert_eq!(names, ["collect_log", "noop"]);
    }
}

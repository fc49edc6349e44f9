//! Hosting: which services run in this process, on one shared tail, until shutdown.

pub mod room;
pub mod server;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use fanfold_ledger::open::OpenPlans;
use fanfold_ledger::port::{Ledger, LedgerError, RequestError};
use fanfold_process::clock::Clock;
use fanfold_process::shutdown::Shutdown;
use fanfold_process::tasks::Tasks;
use fanfold_recorder::Stats;
use fanfold_wire::subjects;
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
/// Times services are started anew within a minute before the process is given up.
pub const RESTARTS_MAX: u32 = 5;
/// The bucket that may be made anew: everything in it is folded from the log.
const STATE_BUCKET: &str = "KV_fanfold-state";
/// How long the API may take to listen before it is said to serve all the same.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);
/// How long they may take to end at all.
const DRAIN: Duration = Duration::from_secs(10);

/// Services running in this process.
pub struct Hosted {
    tasks: Tasks,
    /// Open plans, shared by the services.
    pub open: OpenPlans,
    /// What the recorder counts.
    pub recorded: Arc<Stats>,
    cause: Cause,
}

/// The first error a service ended with.
type Cause = Arc<Mutex<Option<LedgerError>>>;

fn note_cause(cause: &Cause, ended: Result<(), LedgerError>) -> Result<(), LedgerError> {
    ended.inspect_err(|error| {
        cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
    })
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
        let cause = Cause::default();
        let mut tasks = Tasks::new(shutdown.clone());
        for role in roles {
            let (name, service) = service(*role, &ledger, &open, &clock, &recorded, config, shutdown.clone());
            let (noted, ending) = (Arc::clone(&cause), shutdown.clone());
            tasks.spawn(name, async move { note_cause(&noted, within_grace(name, ending, service).await) });
        }
        let (followed, noted) = (open.clone(), Arc::clone(&cause));
        tasks.spawn("open-plans", async move {
            let ended = tokio::select! {
                () = shutdown.wait() => Ok(()),
                () = ended(&followed) => Err(followed.lost().unwrap_or_else(|| LedgerError::Other("the log's tail ended".into()))),
            };
            note_cause(&noted, ended)
        });
        Ok(Self { tasks, open, recorded, cause })
    }

    /// Waits for shutdown and for every service to have handed over what it had taken.
    ///
    /// # Errors
    /// A service that died by itself; its name and why.
    pub async fn join(self) -> Result<(), CliError> {
        self.tasks.join(DRAIN).await.map_err(|e| CliError::Server { code: e.code(), message: e.to_string() })
    }
}

impl Hosted {
    /// As [`Hosted::join`]; `Ok(Some(..))`: the services ended because what they stood on has changed (the log went back or lost events,
    /// the state bucket is gone). Nothing they remember may be used any more; they are to be started anew over a new connection.
    ///
    /// # Errors
    /// As [`Hosted::join`].
    pub async fn join_or_changed(self) -> Result<Option<LedgerError>, CliError> {
        let cause = Arc::clone(&self.cause);
        let joined = self.join().await;
        let cause = cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (joined, cause) {
            (Err(_), Some(error)) if has_changed(&error) => Ok(Some(error)),
            (joined, _) => joined.map(|()| None),
        }
    }
}

/// Whether starting the services anew is the way on. A log that is gone is not among it: it would be made anew, empty.
fn has_changed(error: &LedgerError) -> bool {
    match error {
        LedgerError::WentBack { .. } | LedgerError::Damaged { .. } => true,
        LedgerError::AssetMissing { asset } => asset == STATE_BUCKET,
        _ => false,
    }
}

/// Hosts services until shutdown. Where what they stand on has changed they are started anew, each time over a connection of its own:
/// a process may remember nothing that the log no longer holds. `started` is called once, when they first run; `say` hears how full the log is.
///
/// # Errors
/// What keeps them from starting; a service that died; [`RESTARTS_MAX`] restarts within a minute.
pub async fn keep<C, F>(
    connect: C,
    roles: &[Role],
    config: &ServicesConfig,
    shutdown: &Shutdown,
    started: impl FnOnce() -> Result<(), CliError>,
    say: impl Fn(&str) + Clone + Send + 'static,
) -> Result<(), CliError>
where
    C: Fn() -> F,
    F: Future<Output = Result<Arc<dyn Ledger>, LedgerError>>,
{
    let mut started = Some(started);
    let mut restarts = 0;
    loop {
        let begun = tokio::time::Instant::now();
        let (ledger, part) = (connect().await?, shutdown.child());
        tokio::spawn(room::watch(Arc::clone(&ledger), part.clone(), say.clone()));
        let ledger_of_it = Arc::clone(&ledger);
        let hosted = tokio::select! {
            hosted = Hosted::start(ledger, roles, config, part.clone()) => hosted?,
            // Nothing has been taken yet that would have to be handed over.
            () = shutdown.wait() => return Ok(()),
        };
        if let Some(started) = started.take() {
            listens(ledger_of_it.as_ref(), roles).await;
            started()?;
        }
        let changed = hosted.join_or_changed().await;
        part.trigger();
        let Some(error) = changed? else { return Ok(()) };
        restarts = if begun.elapsed() > Duration::from_secs(60) { 1 } else { restarts + 1 };
        tracing::error!(code = error.code(), restarts, "{error}; the services are started anew");
        if restarts > RESTARTS_MAX {
            return Err(error.into());
        }
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(200 * u64::from(restarts))) => {}
        }
    }
}

/// Waits a moment until the API can be asked: whoever hears that it serves may ask at once.
async fn listens(ledger: &dyn Ledger, roles: &[Role]) {
    let asked = async {
        let (subject, body) = (subjects::api("plan", "list"), Bytes::from_static(br#"{"limit":1}"#));
        while let Err(RequestError::NoResponders(_)) = ledger.request(&subject, body.clone(), LISTENS_WITHIN).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if roles.contains(&Role::Api) {
        // Where it takes longer that is seen by whoever asks.
        let _ = tokio::time::timeout(LISTENS_WITHIN, asked).await;
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

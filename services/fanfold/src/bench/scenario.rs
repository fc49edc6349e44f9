//! The scenarios beside the whole job: each has a server of its own and one table of figures.

use clap::Subcommand;
use fanfold_process::embedded::EmbeddedServer;
use fanfold_process::shutdown::Shutdown;

use super::ground::unless;
use super::stage::{Shown, Stage};
use super::{cost, fair, idle, pages, partial, reconnect, restart};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::server;
use crate::out::Out;

/// What else is measured.
#[derive(Debug, Clone, Subcommand)]
pub enum Scenario {
    /// CPU of server and services while terminals only beat
    Idle(idle::IdleArgs),
    /// Time until all terminals are back after the server was killed
    Reconnect(reconnect::ReconnectArgs),
    /// Time to the first dispatch after all services were killed
    Restart(restart::RestartArgs),
    /// Latency of one page of tasks, of plans, of terminals
    Pages(pages::PagesArgs),
    /// Time from a plan's deadline to its partial summary
    Partial(partial::PartialArgs),
    /// Many plans at once against one of as many tasks
    Fair(fair::FairArgs),
    /// CPU a task: of small plans, of large ones, after a long history
    Cost(cost::CostArgs),
}

impl Scenario {
    /// Whether the log is synced at every write.
    fn durable(&self) -> bool {
        match self {
            Scenario::Fair(args) => args.durable,
            Scenario::Cost(args) => args.durable,
            Scenario::Idle(_) | Scenario::Reconnect(_) | Scenario::Partial(_) => true,
            // What is measured only reads; it takes long enough until there is something to be read.
            Scenario::Restart(_) | Scenario::Pages(_) => false,
        }
    }

    async fn measure(&self, stage: &mut Stage<'_>) -> Result<Shown, CliError> {
        match self {
            Scenario::Idle(args) => idle::measure(args, stage).await,
            Scenario::Reconnect(args) => reconnect::measure(args, stage).await,
            Scenario::Restart(args) => restart::measure(args, stage).await,
            Scenario::Pages(args) => pages::measure(args, stage).await,
            Scenario::Partial(args) => partial::measure(args, stage).await,
            Scenario::Fair(args) => fair::measure(args, stage).await,
            Scenario::Cost(args) => cost::measure(args, stage).await,
        }
    }
}

/// Measures on a server of its own; cleans up whatever comes.
///
/// # Errors
/// What keeps it from running to its end.
pub async fn run(scenario: &Scenario, as_json: bool, out: &Out, shutdown: Shutdown) -> Result<Exit, CliError> {
    let folder = tempfile::Builder::new().prefix("fanfold-bench-").tempdir().map_err(|e| CliError::Internal(e.to_string()))?;
    let told = out.clone();
    let binary = server::find(move |line| told.note(line)).await?;
    let durable = scenario.durable();
    let server = EmbeddedServer::ephemeral_with(binary.path, move |config| config.sync_always = durable).await?;
    let measured = unless(&shutdown, async {
        let mut stage = Stage::set(&server, folder.path(), out).await?;
        scenario.measure(&mut stage).await
    })
    .await;
    server.stop().await;
    let shown = measured?;
    if as_json {
        out.json(&shown.json)?
    } else {
        out.text(&shown.text)?
    }
    Ok(Exit::Ok)
}

//! The command line of fanfold: one binary, one file a command.
//!
//! What is deliberately absent: no business rule is decided here, and NATS is named nowhere; commands talk to the
//! [`fanfold_ledger::port::Ledger`] and to the API's messages, so they run over the ledger in memory as well.
//!
//! Reading order: [`cli`] (what can be said), [`cmd`] (what is done), [`render`] (how it looks), [`verify`] (is it true).

pub mod bench;
pub mod carry;
mod child;
pub mod cli;
pub mod client;
pub mod cmd;
pub mod demo;
pub mod error;
pub mod exit;
pub mod host;
pub mod out;
pub mod patience;
pub mod render;
pub mod session;
pub mod time;
pub mod verify;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clap::error::ErrorKind;
use fanfold_process::telemetry::{self, LogFormat};
use jiff::tz::TimeZone;

use crate::cli::{Cli, Command, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Out;
use crate::session::Session;

/// Runs one command line, the program's name first, and says how the process is to end.
pub async fn run<I, T>(args: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let out = Out::process();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &args, &out).into(),
    };
    let as_json = cli.global.json;
    let exit = match start(cli, out.clone()).await {
        Ok(exit) => exit,
        Err(error) => {
            out.error(&error, as_json);
            error.exit()
        }
    };
    exit.into()
}

fn usage(error: &clap::Error, args: &[OsString], out: &Out) -> Exit {
    let helped = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if !helped && args.iter().any(|a| a == "--json") {
        let text = error.render().to_string();
        out.error(&CliError::Usage(text.trim_start_matches("error: ").trim_end().to_owned()), true);
    } else {
        let _ = error.print();
    }
    if helped { Exit::Ok } else { Exit::Usage }
}

async fn start(cli: Cli, out: Out) -> Result<Exit, CliError> {
    let level = match cli.global.verbose {
        0 => "error",
        // The client says at this level each message it drops: a flood would be one of log lines.
        1 => "info,async_nats=warn",
        _ => "debug",
    };
    telemetry::init(LogFormat::Pretty, level).map_err(|e| CliError::input(e.code(), e.to_string()))?;
    match cli.command {
        // These look after their own signals and connections.
        Command::Terminal(cmd::terminal::TerminalCommand::Run(args)) => cmd::terminal::run(&args, &cli.global, &out).await,
        Command::Up(args) => cmd::up::run(&args, &cli.global, &out).await,
        Command::Serve(args) => cmd::serve::run(&args, &cli.global, &out).await,
        Command::Replay(args) if args.log.is_some() => {
            let file = args.log.clone().unwrap_or_default();
            cmd::replay::offline(&args, &file, cli.global.json, &out)
        }
        Command::Backup(args) => cmd::backup::run(&args, &cli.global, &out).await,
        Command::Restore(args) => cmd::restore::run(&args, &cli.global, &out).await,
        Command::Demo(args) => cmd::demo::run(&args, &cli.global, &out).await,
        Command::Bench(args) => cmd::bench::run(&args, &cli.global, &out).await,
        Command::BenchCrowd(args) => cmd::bench::run_host(&args, &out).await,
        Command::TerminalHost(args) => cmd::demo::run_host(&args, &out).await,
        Command::ExitCodes => out.text(exit::TABLE).map(|()| Exit::Ok),
        command => {
            let interrupted = tokio::signal::ctrl_c();
            tokio::select! {
                result = connect_and_execute(command, &cli.global, out) => result,
                _ = interrupted => Err(CliError::Interrupted),
            }
        }
    }
}

async fn connect_and_execute(command: Command, global: &Global, out: Out) -> Result<Exit, CliError> {
    let url = client::server_url(global.nats.as_deref());
    let ledger = match (client::connect(&url, global.creds.as_deref()).await, &command) {
        (Ok(ledger), _) => ledger,
        // Whoever asks what is missing is told, in the form of every other finding.
        (Err(error), Command::Doctor(_)) => return cmd::doctor::unreached(&error, global.json, &out),
        (Err(error), _) => return Err(error),
    };
    let session = Session {
        server_version: Some(ledger.server_version()),
        ledger: Arc::new(ledger),
        out,
        json: global.json,
        by: global.who(),
        zone: TimeZone::system(),
        server_url: fanfold_wire::server_url::shown_url(&url),
    };
    execute(command, &session).await
}

/// Carries out a command that talks to a server.
///
/// # Errors
/// Whatever kept it from being done; see [`CliError`].
pub async fn execute(command: Command, session: &Session) -> Result<Exit, CliError> {
    match command {
        Command::Terminal(command) => cmd::terminal::execute(command, session).await,
        Command::Stores(command) => cmd::stores::execute(command, session).await,
        Command::Plan(command) => cmd::plan::execute(command, session).await,
        Command::Task(command) => cmd::task::execute(command, session).await,
        Command::Summary(args) => cmd::summary::execute(&args, session).await,
        Command::Events(args) => cmd::events::execute(&args, session).await,
        Command::Type(command) => cmd::types::execute(command, session).await,
        Command::Replay(args) => cmd::replay::execute(&args, session).await,
        Command::Rebuild(args) => cmd::rebuild::execute(&args, session).await,
        Command::Doctor(args) => cmd::doctor::execute(&args, session).await,
        Command::ExitCodes => session.out.text(exit::TABLE).map(|()| Exit::Ok),
        Command::Demo(_)
        | Command::Up(_)
        | Command::Serve(_)
        | Command::TerminalHost(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Bench(_)
        | Command::BenchCrowd(_) => {
            Err(CliError::Usage("this command makes its own connection and can't be run in another's".to_owned()))
        }
    }
}

//! `fanfold type`: what HQ may ask terminals for.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fanfold_wire::api::{TypeList, TypeRegistered};
use fanfold_wire::types::TypeDocument;
use serde_json::json;

use super::read_file;
use crate::client::ANSWER_WAIT;
use crate::error::CliError;
use crate::exit::Exit;
use crate::render::format::one_line;
use crate::render::table::Table;
use crate::session::Session;

/// Register and list task types
#[derive(Debug, Subcommand)]
pub enum TypeCommand {
    /// Register a type; a version never changes once it is there
    Register(RegisterArgs),
    /// List types
    Ls,
    /// Show a type with its schemas
    Show(ShowArgs),
}

/// Register a type; a version never changes once it is there
#[derive(Debug, Args)]
#[command(after_help = "\
A folder has type.json, input.json and output.json (the two JSON Schemas); a
file has all of it, with the schemas as inputSchema and outputSchema.

Examples:
  fanfold type register schemas/types/collect_log/1
  fanfold type register my_type.json")]
pub struct RegisterArgs {
    /// A file or a folder
    pub path: PathBuf,
}

/// Show a type with its schemas
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fanfold type show collect_log\n  fanfold type show collect_log@1 --json")]
pub struct ShowArgs {
    /// name or name@version; without a version the newest
    #[arg(value_name = "TYPE")]
    pub name: String,
}

/// Carries out a type command.
///
/// # Errors
/// See [`CliError`].
pub async fn execute(command: TypeCommand, session: &Session) -> Result<Exit, CliError> {
    match command {
        TypeCommand::Register(args) => register(&args, session).await?,
        TypeCommand::Ls => ls(session).await?,
        TypeCommand::Show(args) => show(&args, session).await?,
    }
    Ok(Exit::Ok)
}

/// A registration as the API takes it, from a file or a folder.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = if path.is_dir() {
        let part = |name: &str| {
            let file = path.join(name);
            let bytes = read_file(&file)?;
            String::from_utf8(bytes).map_err(|_| CliError::input("NOT_UTF8", format!("{}: not UTF-8", file.display())))
        };
        let (head, input, output) = (part("type.json")?, part("input.json")?, part("output.json")?);
        TypeDocument::assemble(&head, &input, &output)
            .map_err(|e| CliError::input("INVALID_TYPE", format!("{}: {e}", path.display())))?
    } else {
        read_file(path)?
    };
    TypeDocument::parse(&bytes).map_err(CliError::problems)?;
    Ok(bytes)
}

async fn register(args: &RegisterArgs, session: &Session) -> Result<(), CliError> {
    let bytes = load(&args.path)?;
    let registered: TypeRegistered = session.call_raw("type", "register", bytes, ANSWER_WAIT).await?;
    if session.json {
        return session.out.json(&registered);
    }
    let how = if registered.created { "is registered" } else { "was registered already, the same" };
    session.out.text(&format!("{}@{} {how}", registered.name, registered.version))
}

async fn list(session: &Session) -> Result<(TypeList, Vec<TypeDocument>), CliError> {
    let list: TypeList = session.call("type", "list", &json!({})).await?;
    let documents: Result<Vec<TypeDocument>, _> = list.types.iter().map(|raw| serde_json::from_str(raw.get())).collect();
    let documents = documents.map_err(|e| CliError::Answer { subject: "ff.api.type.list".to_owned(), reason: e.to_string() })?;
    Ok((list, documents))
}

async fn ls(session: &Session) -> Result<(), CliError> {
    let (list, documents) = list(session).await?;
    if session.json {
        return session.out.json(&list);
    }
    if !list.lost.is_empty() {
        session.out.note(&format!("{} can't be read any more (a damaged store): register the same again", list.lost.join(", ")));
    }
    if documents.is_empty() {
        return session.out.text("no types; `fanfold type register PATH` adds one");
    }
    let mut table = Table::new(&["type", ">version", "title", "aggregates"]);
    for document in documents {
        let aggregates: Vec<&str> = document.aggregates.iter().map(|a| a.name.as_str()).collect();
        table.row([
            document.name.clone(),
            document.version.to_string(),
            one_line(&document.title, 50),
            one_line(&aggregates.join(" "), 80),
        ]);
    }
    session.out.text(&table.text())
}

async fn show(args: &ShowArgs, session: &Session) -> Result<(), CliError> {
    let (name, version) = match args.name.split_once('@') {
        Some((name, version)) => {
            let number = version.parse::<u32>();
            (
                name,
                Some(
                    number
                        .map_err(|_| CliError::Usage(format!("`{}`: a version is a number, as in collect_log@1", args.name)))?,
                ),
            )
        }
        None => (args.name.as_str(), None),
    };
    let (list, documents) = list(session).await?;
    let fits = |d: &TypeDocument| d.name == name && version.is_none_or(|v| v == d.version);
    let found = documents.iter().zip(&list.types).filter(|(d, _)| fits(d)).max_by_key(|(d, _)| d.version);
    let newest = version.unwrap_or(found.map_or(0, |(document, _)| document.version));
    let lost = list.lost.iter().find(|lost| {
        let of = lost.rsplit_once('@').filter(|(n, _)| *n == name).and_then(|(_, v)| v.parse::<u32>().ok());
        of.is_some_and(|v| if version.is_some() { v == newest } else { v > newest })
    });
    if let Some(lost) = lost {
        let message = format!("type {lost} can't be read any more (a damaged store); register the same document again");
        return Err(CliError::No { code: "TYPE_DAMAGED", message });
    }
    let Some((document, raw)) = found else {
        return Err(CliError::NotFound {
            code: "UNKNOWN_TYPE",
            message: format!("there is no type `{}`; `fanfold type ls` lists them", args.name),
        });
    };
    if session.json {
        return session.out.text(raw.get());
    }
    let pretty = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let schema = |text: &str| serde_json::from_str(text).map(|v| pretty(&v)).unwrap_or_else(|_| text.to_owned());
    let defaults = serde_json::to_value(&document.defaults).map(|v| pretty(&v)).unwrap_or_default();
    let aggregates = serde_json::to_value(&document.aggregates).map(|v| pretty(&v)).unwrap_or_default();
    session.out.text(&format!(
        "type      {}@{}\ntitle     {}\n{}\ndefaults\n{defaults}\n\naggregates\n{aggregates}\n\ninput schema\n{}\n\noutput schema\n{}\n",
        document.name,
        document.version,
        document.title,
        document.description,
        schema(document.input_schema.get()),
        schema(document.output_schema.get()),
    ))
}

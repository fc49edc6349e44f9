//! Where a plan's targets come from: a store file, a list of ids, or the stores imported before.

use std::path::Path;

use fanfold_domain::ids::TargetId;
use fanfold_wire::api::Problem;
use serde_json::Value;

use crate::cmd::{read_file, stores};
use crate::error::CliError;
use crate::session::Session;

/// Every store imported.
pub const IMPORTED: &str = "@imported";

/// The targets `--targets` names, in the file's order.
///
/// # Errors
/// `NO_TARGETS`, and whatever is wrong with the file, all at once.
pub async fn resolve(named: &str, session: &Session) -> Result<Vec<String>, CliError> {
    let targets: Vec<String> = if named == IMPORTED {
        stores::load(session).await?.into_keys().collect()
    } else {
        let path = Path::new(named);
        of_file(path, &read_file(path)?).map_err(CliError::problems)?
    };
    if targets.is_empty() {
        let what = if named == IMPORTED {
            "no store has been imported (`fanfold stores import FILE`)"
        } else {
            "the file names no store"
        };
        return Err(CliError::input("NO_TARGETS", format!("{named}: {what}")));
    }
    Ok(targets)
}

/// The targets of a file: `.csv` and `.json` as for `stores import` (or a JSON list of ids), anything else one id a line.
///
/// # Errors
/// Everything that is wrong with it.
pub fn of_file(path: &Path, bytes: &[u8]) -> Result<Vec<String>, Vec<Problem>> {
    let ends = |with: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(with));
    if ends("json")
        && let Ok(ids) = serde_json::from_slice::<Vec<String>>(bytes)
    {
        return Ok(ids);
    }
    if ends("json") || ends("csv") {
        return stores::parse::stores(path, bytes).map(|list| list.into_iter().map(|s| s.id.to_string()).collect());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| vec![Problem::new("NOT_UTF8", "", "", "the file is not UTF-8")])?;
    let (mut ids, mut problems) = (Vec::new(), Vec::new());
    for (i, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let id = line.split('#').next().unwrap_or_default().trim();
        if id.is_empty() {
            continue;
        }
        match TargetId::new(id) {
            Ok(_) => ids.push(id.to_owned()),
            Err(e) if problems.len() < stores::parse::PROBLEMS_SHOWN => {
                problems.push(Problem::new("BAD_TARGET", &format!("line {}", i + 1), &e.shown, e.reason));
            }
            Err(_) => {}
        }
    }
    if problems.is_empty() { Ok(ids) } else { Err(problems) }
}

/// A list of ids as a document has it.
pub(super) fn to_value(targets: Vec<String>) -> Value {
    Value::Array(targets.into_iter().map(Value::String).collect())
}

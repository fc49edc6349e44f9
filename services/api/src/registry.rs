//! Task types: registered once, immutable, found by name and version.

use bytes::Bytes;
use fanfold_ledger::port::{Ledger, LedgerError};
use fanfold_wire::api::{ApiError, Problem, TypeList, TypeRegistered};
use fanfold_wire::types::TypeDocument;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{Deps, ledger_error};

/// `type.register`
pub(crate) async fn register(deps: &Deps, payload: &[u8]) -> Result<TypeRegistered, ApiError> {
    let document = TypeDocument::parse(payload).map_err(ApiError::of_problems)?;
    let existing = deps.ledger.create_type(&document.name, document.version, Bytes::copy_from_slice(payload)).await;
    match existing.map_err(|e| ledger_error(&e))? {
        None => Ok(TypeRegistered { name: document.name, version: document.version, created: true }),
        Some(existing) if same(&existing, payload) => {
            Ok(TypeRegistered { name: document.name, version: document.version, created: false })
        }
        Some(_) => Err(ApiError::of_problems(vec![Problem::new(
            "TYPE_EXISTS",
            "/version",
            &format!("{}@{}", document.name, document.version),
            "this version is registered with other content and never changes; register the next version",
        )])),
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || matches!((serde_json::from_slice::<Value>(a), serde_json::from_slice::<Value>(b)), (Ok(a), Ok(b)) if a == b)
}

/// `type.list`
pub(crate) async fn list(deps: &Deps) -> Result<TypeList, ApiError> {
    let all = deps.ledger.list_types().await.map_err(|e| ledger_error(&e))?;
    let text = |(_, _, document): (String, u32, Bytes)| {
        String::from_utf8(document.to_vec()).ok().and_then(|t| RawValue::from_string(t).ok())
    };
    let lost = deps.ledger.lost_types().await.map_err(|e| ledger_error(&e))?;
    let lost = lost.into_iter().map(|(name, version)| format!("{name}@{version}")).collect();
    Ok(TypeList { types: all.into_iter().filter_map(text).collect(), lost })
}

/// A type by name and version, the newest where none is asked for.
pub(crate) async fn find_type(deps: &Deps, name: &str, version: Option<u32>) -> Result<TypeDocument, ApiError> {
    let found = match version {
        Some(version) => deps.ledger.get_type(name, version).await.map_err(|e| ledger_error(&e))?,
        None => {
            let all = deps.ledger.list_types().await.map_err(|e| ledger_error(&e))?;
            let newest = all.into_iter().filter(|(n, _, _)| n == name).max_by_key(|(_, v, _)| *v);
            not_lost(deps, name, |lost| newest.as_ref().is_none_or(|(_, v, _)| lost > *v)).await?;
            newest.map(|(_, _, d)| d)
        }
    };
    if let (None, Some(version)) = (&found, version) {
        not_lost(deps, name, |lost| lost == version).await?;
    }
    let wanted = version.map_or(name.to_owned(), |v| format!("{name}@{v}"));
    let unknown = || {
        let message =
            "no such task type is registered; `fanfold type ls` shows those there are, `fanfold type register` adds one";
        ApiError::of_problems(vec![Problem::new("UNKNOWN_TYPE", "/type", &wanted, message)])
    };
    TypeDocument::parse(&found.ok_or_else(unknown)?).map_err(ApiError::of_problems)
}

/// Refuses where a version is lost that would be the one to take: an older one in its place would be another job.
async fn not_lost(deps: &Deps, name: &str, matters: impl Fn(u32) -> bool) -> Result<(), ApiError> {
    let lost = deps.ledger.lost_types().await.map_err(|e| ledger_error(&e))?;
    match lost.into_iter().rev().find(|(lost, version)| lost == name && matters(*version)) {
        None => Ok(()),
        Some((name, version)) => {
            let message = format!(
                "task type {name}@{version} is registered and can't be read any more (a damaged store); register it again with the same document (`fanfold type register PATH`). Plans that were submitted have a copy of their own"
            );
            Err(ApiError::new("TYPE_DAMAGED", message))
        }
    }
}

/// Registers a type that comes with fanfold, where it isn't there yet. One that stands there already is left alone.
///
/// # Errors
/// Those of the ledger.
pub async fn register_builtin(ledger: &dyn Ledger, document: &[u8]) -> Result<(), LedgerError> {
    let parsed = TypeDocument::parse(document).map_err(|p| LedgerError::Other(ApiError::of_problems(p).to_string()))?;
    let existing = ledger.create_type(&parsed.name, parsed.version, Bytes::copy_from_slice(document)).await?;
    if existing.is_some_and(|e| !same(&e, document)) {
        tracing::warn!(
            name = parsed.name,
            version = parsed.version,
            "this type is registered with other content; that one stands"
        );
    }
    Ok(())
}

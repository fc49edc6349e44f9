//! Store files, read and checked: every problem at once with its line, or the stores.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use fanfold_domain::ids::TerminalId;
use fanfold_wire::api::Problem;
use fanfold_wire::record::StoreRecord;
use jiff::tz::TimeZone;
use serde_json::Value;
use serde_json::value::RawValue;

use super::separated::records;

/// Most stores of one file.
pub const STORES_MAX: usize = 1_000_000;
/// Most problems told one by one.
pub const PROBLEMS_SHOWN: usize = 1_000;
/// Longest name or region, in characters.
const NAME_CHARS_MAX: usize = 200;
/// Most labels of a store.
const LABELS_MAX: usize = 32;
/// Longest label key or value, in characters.
const LABEL_CHARS_MAX: usize = 64;

/// One store as written.
#[derive(Debug, Default)]
struct Draft {
    line: usize,
    id: String,
    name: String,
    region: String,
    labels: Vec<(String, String)>,
    time_zone: String,
}

/// Reads a file by its ending: `.json`, else CSV.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines, at most [`PROBLEMS_SHOWN`] and a last one that counts the rest.
pub fn stores(path: &Path, bytes: &[u8]) -> Result<Vec<StoreRecord>, Vec<Problem>> {
    let is_json = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = bytes.get(..e.valid_up_to()).unwrap_or_default().iter().filter(|b| **b == b'\n').count() + 1;
            return Err(vec![at(line, "NOT_UTF8", "", "the file is not UTF-8; save it as UTF-8")]);
        }
    };
    let mut problems = Vec::new();
    let drafts = if is_json { from_json(text, &mut problems) } else { from_csv(text, &mut problems) };
    if drafts.len() > STORES_MAX {
        return Err(vec![at(1, "LIMIT_OUT_OF_RANGE", &drafts.len().to_string(), "a file may have 1,000,000 stores")]);
    }
    let stores = check(drafts, &mut problems);
    if problems.is_empty() && stores.is_empty() {
        problems.push(at(1, "NO_STORES", "", "the file names no store"));
    }
    if problems.is_empty() {
        return Ok(stores);
    }
    problems.sort_by_key(line_of);
    let more = problems.len().saturating_sub(PROBLEMS_SHOWN);
    problems.truncate(PROBLEMS_SHOWN);
    if more > 0 {
        problems.push(Problem::new("MORE_PROBLEMS", "", &more.to_string(), "so many more, as above"));
    }
    Err(problems)
}

fn at(line: usize, code: &str, value: &str, message: &str) -> Problem {
    Problem::new(code, &format!("line {line}"), value, message)
}

fn line_of(problem: &Problem) -> usize {
    problem.path.strip_prefix("line ").and_then(|n| n.parse().ok()).unwrap_or(usize::MAX)
}

/// A heading without what people write differently: case, spaces, `_`, `-`.
fn heading(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).flat_map(char::to_lowercase).collect()
}

fn from_csv(text: &str, problems: &mut Vec<Problem>) -> Vec<Draft> {
    let (records, broken) = records(text);
    problems.extend(broken);
    let mut records = records.into_iter();
    let Some(head) = records.next() else { return Vec::new() };
    let mut columns: Vec<Option<&'static str>> = Vec::new();
    for name in &head.fields {
        let known = ["id", "name", "region", "labels", "timezone"].into_iter().find(|k| *k == heading(name));
        if known.is_none() {
            problems.push(at(head.line, "UNKNOWN_COLUMN", name, "no such column; there are id, name, region, labels, timeZone"));
        } else if columns.contains(&known) {
            problems.push(at(head.line, "DUPLICATE_COLUMN", name, "the column is there twice"));
        }
        columns.push(known);
    }
    if !columns.contains(&Some("id")) {
        problems.push(at(head.line, "MISSING_COLUMN", "id", "the first line names the columns, and one of them is id"));
        return Vec::new();
    }
    let mut drafts = Vec::new();
    for record in records {
        if record.fields.len() > columns.len() {
            let found = format!("{} fields", record.fields.len());
            problems.push(at(
                record.line,
                "TOO_MANY_FIELDS",
                &found,
                "the first line has fewer columns; quote fields with a comma",
            ));
        }
        let mut draft = Draft { line: record.line, ..Draft::default() };
        for (column, field) in columns.iter().zip(record.fields) {
            match column {
                Some("id") => draft.id = field,
                Some("name") => draft.name = field,
                Some("region") => draft.region = field,
                Some("labels") => draft.labels = labels(&field, record.line, problems),
                Some("timezone") => draft.time_zone = field,
                _ => {}
            }
        }
        drafts.push(draft);
    }
    drafts
}

fn labels(text: &str, line: usize, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        match part.split_once('=') {
            Some((key, value)) => labels.push((key.trim().to_owned(), value.trim().to_owned())),
            None => problems.push(at(line, "BAD_LABEL", part, "write labels as key=value, divided by semicolons")),
        }
    }
    labels
}

fn json_entries(text: &str) -> Result<Vec<&RawValue>, (usize, String)> {
    let failed = |e: serde_json::Error| (e.line().max(1), e.to_string());
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(failed);
    }
    let mut members: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(failed)?;
    let list = members.remove("stores").ok_or((1, "an object must have a member `stores` with the list".to_owned()))?;
    let offset = list.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
    serde_json::from_str(list.get()).map_err(|e| (line_at(text, offset) + e.line().max(1) - 1, e.to_string()))
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1
}

fn from_json(text: &str, problems: &mut Vec<Problem>) -> Vec<Draft> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let entries = match json_entries(text) {
        Ok(entries) => entries,
        Err((line, reason)) => {
            problems.push(at(line, "NOT_JSON", "", &format!("not a JSON list of stores: {reason}")));
            return Vec::new();
        }
    };
    let mut drafts = Vec::new();
    let (mut line, mut before) = (1, 0);
    for entry in entries {
        // A borrowed raw value is a piece of the text: its place there tells its line.
        let offset = entry.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
        line += text.as_bytes().get(before..offset).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
        before = offset.max(before);
        match serde_json::from_str::<Value>(entry.get()) {
            Ok(Value::Object(members)) => drafts.push(from_members(line, &members, problems)),
            Ok(_) | Err(_) => problems.push(at(
                line,
                "NOT_A_STORE",
                entry.get(),
                "a store is an object with id, name, region, labels, timeZone",
            )),
        }
    }
    drafts
}

fn from_members(line: usize, members: &serde_json::Map<String, Value>, problems: &mut Vec<Problem>) -> Draft {
    let mut draft = Draft { line, ..Draft::default() };
    for (name, value) in members {
        let text = match value {
            Value::String(text) => Some(text.clone()),
            Value::Null => Some(String::new()),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match (heading(name).as_str(), text) {
            ("id", Some(text)) => draft.id = text,
            ("name", Some(text)) => draft.name = text,
            ("region", Some(text)) => draft.region = text,
            ("timezone", Some(text)) => draft.time_zone = text,
            ("labels", Some(text)) => draft.labels = labels(&text, line, problems),
            ("labels", None) if value.is_object() => {
                for (key, label) in value.as_object().into_iter().flatten() {
                    match label.as_str() {
                        Some(label) => draft.labels.push((key.clone(), label.to_owned())),
                        None => problems.push(at(line, "BAD_LABEL", key, "the value of a label is a text")),
                    }
                }
            }
            ("id" | "name" | "region" | "timezone" | "labels", None) => {
                problems.push(at(line, "BAD_FIELD", name, "the field is a text"));
            }
            _ => problems.push(at(line, "UNKNOWN_FIELD", name, "no such field; there are id, name, region, labels, timeZone")),
        }
    }
    draft
}

fn check(drafts: Vec<Draft>, problems: &mut Vec<Problem>) -> Vec<StoreRecord> {
    let mut first_line: HashMap<String, usize> = HashMap::with_capacity(drafts.len());
    let mut stores = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let line = draft.line;
        let id = match TerminalId::new(&draft.id) {
            Ok(id) => Some(id),
            Err(e) => {
                problems.push(at(line, "BAD_ID", &e.shown, e.reason));
                None
            }
        };
        if id.is_some() {
            match first_line.get(&draft.id) {
                Some(first) => problems.push(at(line, "DUPLICATE_STORE", &draft.id, &format!("it is on line {first} already"))),
                None => drop(first_line.insert(draft.id.clone(), line)),
            }
        }
        for (what, text) in [("name", &draft.name), ("region", &draft.region)] {
            if text.chars().count() > NAME_CHARS_MAX {
                problems.push(at(line, "TOO_LONG", text, &format!("a {what} may have {NAME_CHARS_MAX} characters")));
            }
        }
        let zone = zone(&draft, problems);
        let labels = checked_labels(&draft, problems);
        if let Some(id) = id {
            stores.push(StoreRecord { id, name: draft.name, region: draft.region, time_zone: zone, labels });
        }
    }
    stores
}

fn zone(draft: &Draft, problems: &mut Vec<Problem>) -> String {
    if draft.time_zone.is_empty() {
        return String::new();
    }
    match TimeZone::get(&draft.time_zone) {
        Ok(zone) => zone.iana_name().unwrap_or(&draft.time_zone).to_owned(),
        Err(_) => {
            let message = "not an IANA time zone such as Asia/Shanghai or Europe/Berlin";
            problems.push(at(draft.line, "BAD_TIME_ZONE", &draft.time_zone, message));
            String::new()
        }
    }
}

fn checked_labels(draft: &Draft, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if draft.labels.len() > LABELS_MAX {
        problems.push(at(draft.line, "TOO_MANY_LABELS", &draft.labels.len().to_string(), "a store may have 32 labels"));
    }
    for (key, value) in &draft.labels {
        let long = key.chars().count() > LABEL_CHARS_MAX || value.chars().count() > LABEL_CHARS_MAX;
        if key.is_empty() || long {
            problems.push(at(
                draft.line,
                "BAD_LABEL",
                &format!("{key}={value}"),
                "key and value may have 64 characters, the key at least 1",
            ));
        } else if labels.insert(key.clone(), value.clone()).is_some() {
            problems.push(at(draft.line, "BAD_LABEL", key, "the label is there twice"));
        }
    }
    labels
}

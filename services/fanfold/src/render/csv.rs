//! A summary as a CSV file a spreadsheet opens: RFC 4180 quoting, one row a target, the result's top-level fields as columns.
//!
//! A text that a spreadsheet would take for a formula gets a leading `'`: results and messages come from terminals, and a file
//! that is opened at HQ must not be able to do anything there.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_domain::sets::TaskSet;
use fanfold_wire::timestamp::to_rfc3339;
use serde_json::Value;

use super::summary::{RowDoc, Stores, SummaryDoc};

/// Most result columns; a type with more has its rest in `result.(more)`, as JSON.
pub const RESULT_COLUMNS_MAX: usize = 200;

/// Columns before the result's.
const COLUMNS: [&str; 10] = ["target", "name", "region", "set", "state", "attempt", "error code", "message", "last seen", "late"];

/// The file's text, lines ended by CR LF as RFC 4180 has it.
pub fn summary(doc: &SummaryDoc, stores: &Stores) -> String {
    let keys: BTreeSet<&str> = doc.rows.iter().filter_map(result_members).flatten().map(|(k, _)| k.as_str()).collect();
    let columns: Vec<&str> = keys.iter().take(RESULT_COLUMNS_MAX).copied().collect();
    let cut = keys.len() > RESULT_COLUMNS_MAX;
    let plain = doc.rows.iter().any(|r| r.result.as_ref().is_some_and(|v| !v.is_object()));
    let mut head: Vec<String> = COLUMNS.iter().map(|c| (*c).to_owned()).collect();
    if plain {
        head.push("result".to_owned());
    }
    head.extend(columns.iter().map(|c| format!("result.{c}")));
    if cut {
        head.push("result.(more)".to_owned());
    }
    let mut text = line(&head);
    for row in &doc.rows {
        let mut cells = fixed(row, stores);
        if plain {
            cells.push(row.result.as_ref().filter(|v| !v.is_object()).map(cell).unwrap_or_default());
        }
        let member = |c: &&str| row.result.as_ref().and_then(|r| r.get(*c)).map(cell).unwrap_or_default();
        cells.extend(columns.iter().map(member));
        if cut {
            cells.push(more(row, &columns));
        }
        text.push_str(&line(&cells));
    }
    text
}

fn result_members(row: &RowDoc) -> Option<&serde_json::Map<String, Value>> {
    row.result.as_ref()?.as_object()
}

fn more(row: &RowDoc, columns: &[&str]) -> String {
    let Some(members) = result_members(row) else { return String::new() };
    let shown: BTreeSet<&str> = columns.iter().copied().collect();
    let rest: BTreeMap<&String, &Value> = members.iter().filter(|(k, _)| !shown.contains(k.as_str())).collect();
    if rest.is_empty() { String::new() } else { serde_json::to_string(&rest).unwrap_or_default() }
}

fn fixed(row: &RowDoc, stores: &Stores) -> Vec<String> {
    let store = stores.get(&row.target);
    let seen = match row.last_seen_ms {
        Some(Some(ms)) => to_rfc3339(ms),
        Some(None) => "never".to_owned(),
        None => String::new(),
    };
    vec![
        row.target.clone(),
        store.map(|s| s.name.clone()).unwrap_or_default(),
        store.map(|s| s.region.clone()).unwrap_or_default(),
        TaskSet::name(row.set).to_owned(),
        serde_json::to_value(row.state).map(|v| cell(&v)).unwrap_or_default(),
        row.attempt.to_string(),
        row.error.as_ref().map(|e| e.code.clone()).unwrap_or_default(),
        row.error.as_ref().map(|e| e.message.clone()).unwrap_or_default(),
        seen,
        if row.late { "yes".to_owned() } else { String::new() },
    ]
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn line(cells: &[String]) -> String {
    let fields: Vec<String> = cells.iter().map(|c| field(c)).collect();
    format!("{}\r\n", fields.join(","))
}

/// One field: guarded against formulas, quoted where RFC 4180 asks for it.
pub fn field(text: &str) -> String {
    let guarded = if is_formula(text) { format!("'{text}") } else { text.to_owned() };
    if guarded.contains(['"', ',', '\r', '\n']) || guarded.starts_with(' ') || guarded.ends_with(' ') {
        return format!("\"{}\"", guarded.replace('"', "\"\""));
    }
    guarded
}

/// Whether a spreadsheet would take the text for a formula. A plain number is none, whatever its sign.
fn is_formula(text: &str) -> bool {
    match text.trim_start_matches(' ').chars().next() {
        Some('=' | '@' | '\t' | '\r' | '\n' | '＝' | '＠' | '＋' | '－') => true,
        Some('+' | '-') => text.parse::<f64>().is_err() || text.chars().any(|c| c.is_ascii_alphabetic() && c != 'e' && c != 'E'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_guarded() {
        let cases = [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("-12.5", "-12.5"),
            ("+3e5", "+3e5"),
            ("-inf", "'-inf"),
            ("\tx", "'\tx"),
            (" =1", "' =1"),
            (" lead", "\" lead\""),
            ("", ""),
            ("徐汇店", "徐汇店"),
        ];
        for (text, expected) in cases {
            assert_eq!(field(text), expected, "{text:?}");
        }
    }
}

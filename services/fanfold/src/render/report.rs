//! A summary as a page for people: who is in, who is missing and why, what is still to come.

use std::collections::BTreeMap;

use fanfold_domain::sets::TaskSet;
use fanfold_domain::summary::NextStep;
use jiff::tz::TimeZone;

use super::format::{number, one_line, percent};
use super::summary::{RowDoc, Stores, SummaryDoc, aggregate_line, kind_words, next_words, reason, set_words, verdict_words};

/// Targets named in one list before it says how many more there are.
const LISTED_MAX: usize = 500;
/// Sets in which a target counts as missing, in the order of the page.
const MISSING: [TaskSet; 7] = [
    TaskSet::Failed,
    TaskSet::Invalid,
    TaskSet::TimedOut,
    TaskSet::Offline,
    TaskSet::Running,
    TaskSet::Pending,
    TaskSet::Cancelled,
];

/// The page, Markdown. `published` is when it was published, for people.
pub fn page(doc: &SummaryDoc, published: &str, stores: &Stores, zone: &TimeZone) -> String {
    let total = u64::from(doc.total);
    let succeeded = u64::from(doc.counts.succeeded);
    let title = doc.title.as_deref().map_or_else(|| doc.plan_id.clone(), |t| one_line(t, 200));
    let mut text = format!("# {title}\n\nPlan `{}`, type `{}`", doc.plan_id, doc.kind_of_task);
    if let Some(key) = &doc.business_key {
        text.push_str(&format!(", business key `{}`", one_line(key, 200)));
    }
    text.push_str(&format!(
        ". Revision {} ({}), published {published}, as of log sequence {}.\n\n**Verdict: {}.** {} of {} targets are in ({}).\n",
        doc.revision,
        kind_words(doc.kind),
        doc.as_of_seq,
        verdict_words(doc.verdict),
        number(succeeded),
        number(total),
        percent(succeeded, total),
    ));
    missing(doc, stores, zone, &mut text);
    to_come(doc, stores, &mut text);
    regions(doc, stores, &mut text);
    if !doc.aggregates.is_empty() {
        text.push_str("\n## Totals\n\n");
        for aggregate in &doc.aggregates {
            text.push_str(&format!("- {}: {}\n", aggregate.name, aggregate_line(aggregate)));
        }
    }
    present(doc, stores, &mut text);
    if let Some(previous) = &doc.previous {
        let changed: Vec<String> = doc.changed.iter().map(|t| named(t, stores)).collect();
        text.push_str(&format!("\n## Changed since revision {}\n\n{}\n", previous.revision, listed(&changed)));
    }
    text
}

fn named(target: &str, stores: &Stores) -> String {
    match stores.get(target).filter(|s| !s.name.is_empty()) {
        Some(store) => format!("{target} {}", one_line(&store.name, 60)),
        None => target.to_owned(),
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "None.".to_owned();
    }
    let shown: Vec<&str> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    let rest = if more > 0 { format!(" and {} more", number(more as u64)) } else { String::new() };
    format!("{}{rest}.", shown.join(", "))
}

fn missing(doc: &SummaryDoc, stores: &Stores, zone: &TimeZone, text: &mut String) {
    text.push_str("\n## Missing, and why\n\n");
    if doc.counts.succeeded == doc.total {
        text.push_str("Nothing is missing.\n");
        return;
    }
    for set in MISSING {
        let rows: Vec<&RowDoc> = doc.rows.iter().filter(|r| r.set == set).collect();
        if rows.is_empty() {
            continue;
        }
        text.push_str(&format!("### {} ({})\n\n", set_words(set), number(rows.len() as u64)));
        for row in rows.iter().take(LISTED_MAX) {
            let why = reason(row, zone);
            let next = row.next.map(next_words).unwrap_or_default();
            let parts: Vec<&str> = [why.as_str(), next].into_iter().filter(|p| !p.is_empty()).collect();
            let colon = if parts.is_empty() { "" } else { ": " };
            text.push_str(&format!("- {}{colon}{}\n", named(&row.target, stores), parts.join(" -> ")));
        }
        if rows.len() > LISTED_MAX {
            text.push_str(&format!("- and {} more\n", number((rows.len() - LISTED_MAX) as u64)));
        }
        text.push('\n');
    }
    while text.ends_with("\n\n") {
        text.pop();
    }
}

/// Whether this step brings the target in without anybody doing something.
fn comes_by_itself(next: NextStep) -> bool {
    match next {
        NextStep::WhenOnline | NextStep::WhenItsTurn | NextStep::Retry | NextStep::AwaitReport => true,
        NextStep::AwaitStop | NextStep::MayRequeue | NextStep::FollowUp => false,
    }
}

fn to_come(doc: &SummaryDoc, stores: &Stores, text: &mut String) {
    let waiting = |wanted: fn(NextStep) -> bool| -> Vec<String> {
        doc.rows.iter().filter(|r| r.next.is_some_and(wanted)).map(|r| named(&r.target, stores)).collect()
    };
    let (backfill, by_hand) = (waiting(comes_by_itself), waiting(|n| matches!(n, NextStep::MayRequeue | NextStep::FollowUp)));
    if !backfill.is_empty() {
        let count = number(backfill.len() as u64);
        text.push_str(&format!(
            "\n## To be backfilled\n\n{count} will still be brought in and revise this summary: {}\n",
            listed(&backfill)
        ));
    }
    if !by_hand.is_empty() {
        let count = number(by_hand.len() as u64);
        text.push_str(&format!("\n## For a person\n\n{count} need a requeue or a follow-up plan: {}\n", listed(&by_hand)));
    }
}

fn regions(doc: &SummaryDoc, stores: &Stores, text: &mut String) {
    let mut by_region: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in &doc.rows {
        let region = stores.get(&row.target).map(|s| s.region.as_str()).filter(|r| !r.is_empty()).unwrap_or("(no region)");
        let (is_in, all) = by_region.entry(region).or_default();
        *all += 1;
        *is_in += u64::from(row.set == TaskSet::Succeeded);
    }
    if by_region.keys().all(|r| *r == "(no region)") {
        return;
    }
    text.push_str("\n## By region\n\n| region | in | targets | share |\n|---|--:|--:|--:|\n");
    for (region, (is_in, all)) in by_region {
        let region = one_line(region, 60).replace('|', "/");
        text.push_str(&format!("| {region} | {} | {} | {} |\n", number(is_in), number(all), percent(is_in, all)));
    }
}

fn present(doc: &SummaryDoc, stores: &Stores, text: &mut String) {
    let rows = || doc.rows.iter().filter(|r| r.set == TaskSet::Succeeded);
    let names: Vec<String> = rows().map(|r| named(&r.target, stores)).collect();
    let late: Vec<String> = rows().filter(|r| r.late).map(|r| named(&r.target, stores)).collect();
    text.push_str(&format!("\n## In ({})\n\n{}\n", number(names.len() as u64), listed(&names)));
    if !late.is_empty() {
        text.push_str(&format!("\nOf these came in after they had been given up: {}\n", listed(&late)));
    }
}

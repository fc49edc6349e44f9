//! Plans, as a list and one at a time.

use fanfold_domain::holes::Holes;
use fanfold_domain::sets::TaskSet;
use fanfold_domain::summary::PlanVerdict;
use fanfold_wire::record::{PlanRecord, PlanStatus};
use jiff::tz::TimeZone;

use super::format::{duration, number, one_line, percent, time};
use super::summary::{counts_line, kind_words, verdict_words};
use super::table::Table;

/// How a status is called.
pub fn status_words(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::Open => "open",
        PlanStatus::Closing => "closing",
        PlanStatus::Cancelling => "cancelling",
        PlanStatus::Closed => "closed",
    }
}

/// A verdict in a word.
pub fn verdict_word(verdict: PlanVerdict) -> &'static str {
    match verdict {
        PlanVerdict::Full => "full",
        PlanVerdict::Reserved => "reserved",
        PlanVerdict::Failed => "failed",
    }
}

/// Plans, a line each.
pub fn list(plans: &[PlanRecord], zone: &TimeZone) -> String {
    if plans.is_empty() {
        return "no plans\n".to_owned();
    }
    let mut table = Table::new(&["plan", "type", "status", ">targets", ">in", "summary", "deadline", "title"]);
    for plan in plans {
        let summary = plan.summary.as_ref().zip(plan.summary_kind);
        table.row([
            plan.plan_id.to_string(),
            plan.kind.clone(),
            status_words(plan.status).to_owned(),
            number(u64::from(plan.total)),
            percent(u64::from(plan.counts.succeeded), u64::from(plan.total)),
            summary
                .map(|(s, kind)| format!("r{} {} {}", s.revision, kind_words(kind), verdict_word(plan.verdict)))
                .unwrap_or_default(),
            plan.deadline.map(|ms| time(ms, zone)).unwrap_or_default(),
            plan.title.as_deref().map(|t| one_line(t, 40)).unwrap_or_default(),
        ]);
    }
    table.text()
}

fn holes(holes: &Holes) -> String {
    let Holes { count, from_seq, to_seq } = holes;
    format!("{} in the log, the first #{from_seq} to #{to_seq}; see `fanfold doctor`", number(u64::from(*count)))
}

/// Why there is no account of a plan, or no further one, and what ends it; `None`: nothing is in the way of one.
pub fn without_account(plan: &PlanRecord) -> Option<String> {
    let lost = plan.lost_of_list();
    if plan.status == PlanStatus::Closed {
        let lost = lost.unwrap_or("some of its events");
        return plan
            .is_closed_without_account()
            .then(|| format!("the log has lost {lost}: it was closed without a final summary"));
    }
    let lost = lost?;
    Some(format!("the log has lost {lost}: no more summaries can be made; `fanfold plan close {}` ends it", plan.plan_id))
}

/// One plan.
pub fn show(plan: &PlanRecord, now_ms: i64, zone: &TimeZone) -> String {
    let moment = |ms: i64| {
        let away = ms.saturating_sub(now_ms);
        let how = if away >= 0 { format!("in {}", duration(away)) } else { format!("{} ago", duration(-away)) };
        format!("{} ({how})", time(ms, zone))
    };
    let mut text = format!("plan      {}\n", plan.plan_id);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("{name:<9} {value}\n"));
        }
    };
    add("title", plan.title.as_deref().map(|t| one_line(t, 200)));
    add("key", plan.business_key.as_deref().map(|t| one_line(t, 200)));
    add("type", Some(plan.kind.clone()));
    add("status", Some(status_words(plan.status).to_owned()));
    add("verdict", Some(format!("{} (so far)", verdict_words(plan.verdict))).filter(|_| plan.summary.is_none()));
    add("verdict", Some(verdict_words(plan.verdict).to_owned()).filter(|_| plan.summary.is_some()));
    add("sealed", plan.sealed_at.map(|ms| format!("{} by {}", moment(ms), one_line(&plan.by, 60))));
    add("deadline", plan.deadline.map(moment));
    add("expires", plan.expires.map(moment));
    let summary = plan.summary.as_ref().zip(plan.summary_kind);
    add(
        "summary",
        summary.map(|(s, kind)| format!("revision {}, {}, as of sequence {}", s.revision, kind_words(kind), s.as_of_seq)),
    );
    let absorbed = plan.absorbed;
    let parts = [
        ("duplicate", absorbed.duplicate),
        ("stale", absorbed.stale),
        ("late", absorbed.late),
        ("foreign", absorbed.foreign),
        ("ignored", absorbed.ignored),
    ];
    let some: Vec<String> =
        parts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{} {name}", number(u64::from(*n)))).collect();
    add("absorbed", Some(some.join(", ")).filter(|s| !s.is_empty()));
    add("holes", plan.holes.map(|h| holes(&h)));
    add("damaged", without_account(plan));
    add("targets", Some(number(u64::from(plan.total))));
    let total = u64::from(plan.total);
    for set in TaskSet::ALL.iter().filter(|s| plan.counts.get(**s) > 0) {
        let count = u64::from(plan.counts.get(*set));
        text.push_str(&format!("  {:<15} {:>9}  {:>7}\n", super::summary::set_words(*set), number(count), percent(count, total)));
    }
    text
}

/// How far a plan is, on one line.
pub fn progress(plan: &PlanRecord) -> String {
    let total = number(u64::from(plan.total));
    let summary = plan.summary.as_ref().zip(plan.summary_kind);
    let summary = summary.map(|(s, kind)| format!("; summary r{} {}", s.revision, kind_words(kind))).unwrap_or_default();
    format!("{} {}, {total} targets: {}{summary}", plan.plan_id, status_words(plan.status), counts_line(&plan.counts))
}

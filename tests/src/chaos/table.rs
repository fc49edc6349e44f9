//! What was done when, and what it met.

use std::time::Duration;

use crate::chaos::watch::Live;

/// A disturbance.
#[derive(Debug, Clone)]
pub struct Row {
    /// Time since the run's start.
    pub at: Duration,
    /// What was done, how.
    pub what: String,
    /// To whom.
    pub whom: String,
    /// What was live at that moment, by the log.
    pub live: Live,
    /// Tasks that went all the way since, and the time they took; `None`: not seen.
    pub progress: Option<(usize, Duration)>,
}

/// Rows as a table.
pub fn text(rows: &[Row]) -> String {
    let mut lines = vec![format!(
        "{:>3} {:>8}  {:<28} {:>4} {:>10} {:>7} {:>8} {:>12}  {}",
        "n", "time", "what", "due", "dispatched", "running", "counts", "went on", "whom"
    )];
    for (n, row) in rows.iter().enumerate() {
        lines.push(format!(
            "{:>3} {:>6.1} s  {:<28} {:>4} {:>10} {:>7} {:>8} {:>12}  {}",
            n + 1,
            row.at.as_secs_f64(),
            row.what,
            row.live.due,
            row.live.dispatched,
            row.live.running,
            if row.live.counts() { "yes" } else { "no" },
            row.progress.map_or_else(|| "-".to_owned(), |(n, took)| format!("{n} in {:.1} s", took.as_secs_f64())),
            row.whom
        ));
    }
    lines.join("\n")
}

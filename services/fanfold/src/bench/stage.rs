//! What every scenario of the bench has: a server of its own, services, terminals, a line that says how far it is, and its figures.

use std::path::Path;
use std::time::Duration;

use fanfold_ledger::jetstream::Measured;
use fanfold_process::embedded::EmbeddedServer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::ground::Ground;
use super::usage::Usage;
use crate::error::CliError;
use crate::out::Out;
use crate::render::format::number;
use crate::render::table::Table;

/// See the module.
pub(crate) struct Stage<'a> {
    pub(crate) server: &'a EmbeddedServer,
    pub(crate) ground: Ground,
    bar: ProgressBar,
}

/// What server, services and terminals have used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) server: Usage,
    pub(crate) hq: Usage,
    pub(crate) terminals: Usage,
}

/// Messages the streams have taken so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    pub(crate) log: u64,
    pub(crate) state: u64,
    pub(crate) registry: u64,
}

impl<'a> Stage<'a> {
    pub(crate) async fn set(server: &'a EmbeddedServer, folder: &Path, out: &Out) -> Result<Self, CliError> {
        let bar = ProgressBar::new(0);
        if !out.interactive {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Ok(Self { server, ground: Ground::on(&server.url(), folder).await?, bar })
    }

    /// Says what is done now.
    pub(crate) fn say(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// Counts up what was said of a number of tasks; for [`super::history::write`].
    pub(crate) fn counting(&self, what: &'static str, of: u64) -> impl Fn(u64) + use<> {
        let (bar, so_far) = (self.bar.clone(), std::sync::atomic::AtomicU64::new(0));
        move |more| {
            let now = so_far.fetch_add(more, std::sync::atomic::Ordering::Relaxed) + more;
            bar.set_message(format!("{what}: {} of {}", number(now), number(of)));
        }
    }

    pub(crate) fn used(&self) -> Used {
        let (hq, terminals) = self.ground.usage();
        Used { server: Usage::of(Some(self.server.pid())), hq, terminals }
    }

    pub(crate) async fn written(&self) -> Result<Written, CliError> {
        let ledger = &self.ground.ledger;
        let last = async |which| Ok::<_, CliError>(ledger.stream_size(which).await?.last_seq);
        Ok(Written {
            log: last(Measured::Log).await?,
            state: last(Measured::State).await?,
            registry: last(Measured::Registry).await?,
        })
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A scenario's result, as JSON and for people.
pub(crate) struct Shown {
    pub(crate) json: serde_json::Value,
    pub(crate) text: String,
}

impl Shown {
    /// The title, and a table of what each figure is.
    pub(crate) fn of(report: &impl Serialize, title: &str, rows: &[(&str, String, &str)]) -> Result<Self, CliError> {
        let mut table = Table::new(&["measure", ">figure", "of what"]);
        for (measure, figure, what) in rows {
            table.row([(*measure).to_owned(), figure.clone(), (*what).to_owned()]);
        }
        let json = serde_json::to_value(report).map_err(|e| CliError::Internal(e.to_string()))?;
        Ok(Self { json, text: format!("{title}\n\n{}", table.text()) })
    }
}

//! Log lines on stderr.
//!
//! stdout stays free for a command's result. `FANFOLD_LOG` holds the filter in the syntax of
//! `tracing-subscriber` (`info`, `fanfold_dispatcher=debug,warn`); unset or empty, the caller's
//! default applies.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The environment variable that holds the log filter.
pub const FILTER_ENV: &str = "FANFOLD_LOG";

/// How a log line is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line a person reads; coloured when stderr is a terminal.
    #[default]
    Pretty,
    /// One JSON object a line, fields flattened beside `message`.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A filter that cannot be parsed. `origin` names where it came from.
    #[error(
        "LOG_FILTER_INVALID: {origin} has the log filter {filter:?}: {reason}; \
         use for example \"info\" or \"fanfold_dispatcher=debug,warn\""
    )]
    FilterInvalid {
        /// `FANFOLD_LOG`, or `default` for the caller's own.
        origin: &'static str,
        /// The filter as given.
        filter: String,
        /// What the parser said.
        reason: String,
    },
}

impl TelemetryError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::FilterInvalid { .. } => "LOG_FILTER_INVALID",
        }
    }
}

/// Starts logging to stderr. A second call, or one after somebody else installed a subscriber,
/// changes nothing and is no error.
///
/// # Errors
/// [`TelemetryError::FilterInvalid`] if `FANFOLD_LOG`, or `default_filter` when it is unset, is not
/// a filter.
pub fn init(format: LogFormat, default_filter: &str) -> Result<(), TelemetryError> {
    let from_env = std::env::var(FILTER_ENV).ok();
    let filter = choose_filter(from_env.as_deref(), default_filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Where stderr is a file on a full disk the library would say so on stderr, with a macro that panics when it can't: the process
    // would die of its log.
    let builder = builder.log_internal_errors(false);
    let installed = match format {
        LogFormat::Pretty => builder.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
        LogFormat::Json => builder.with_ansi(false).json().flatten_event(true).try_init(),
    };
    if let Err(reason) = installed {
        tracing::debug!(%reason, "logging was set up before; kept as it was");
    }
    Ok(())
}

fn choose_filter(from_env: Option<&str>, default_filter: &str) -> Result<EnvFilter, TelemetryError> {
    let (origin, filter) = match from_env.map(str::trim).filter(|value| !value.is_empty()) {
        Some(value) => (FILTER_ENV, value),
        None => ("default", default_filter),
    };
    EnvFilter::try_new(filter).map_err(|reason| TelemetryError::FilterInvalid {
        origin,
        filter: filter.to_owned(),
        reason: reason.to_string(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn environment_wins_over_default_unless_empty() {
        let show = |env: Option<&str>| choose_filter(env, "info").unwrap().to_string();
        assert_eq!(show(None), "info");
        assert_eq!(show(Some("  ")), "info");
        assert_eq!(show(Some("debug")), "debug");
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = choose_filter(Some("x=loud"), "info").unwrap_err();
        assert_eq!(error.code(), "LOG_FILTER_INVALID");
        assert!(error.to_string().contains("FANFOLD_LOG"), "{error}");
        assert!(error.to_string().contains("x=loud"), "{error}");
    }

    #[test]
    fn init_twice_is_harmless() {
        init(LogFormat::Json, "warn").unwrap();
        init(LogFormat::Pretty, "warn").unwrap();
    }
}

//! What every command that talks to a server is given.

use std::sync::Arc;

use fanfold_ledger::port::Ledger;
use jiff::tz::TimeZone;

use crate::out::Out;

/// A connected command.
#[derive(Clone)]
pub struct Session {
    /// Log, buckets, objects, requests.
    pub ledger: Arc<dyn Ledger>,
    /// Where it writes.
    pub out: Out,
    /// Machine-readable answers are wanted.
    pub json: bool,
    /// Who asks.
    pub by: String,
    /// Time zone times are shown in.
    pub zone: TimeZone,
    /// The server's version, where it is known.
    pub server_version: Option<String>,
    /// The server's URL, for people.
    pub server_url: String,
}

impl Session {
    /// A session over a ledger, with everything else plain: UTC, no JSON, by `test`. For tests and embedders.
    pub fn over(ledger: Arc<dyn Ledger>, out: Out) -> Self {
        Self {
            ledger,
            out,
            json: false,
            by: "test".to_owned(),
            zone: TimeZone::UTC,
            server_version: None,
            server_url: "memory".to_owned(),
        }
    }
}

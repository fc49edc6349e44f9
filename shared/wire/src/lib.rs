//! How fanfold's values look on the wire: CloudEvents JSON, subjects, ids, JSON Schema checks, the terminal protocol, the API's messages.
//!
//! **Invariants of this crate.** It turns values into bytes and subjects and back; it never talks to a server and never reads a clock.
//! Subjects and message ids are built here and nowhere else. Decoding never panics; what can't be read is an error that names the field.

pub mod api;
pub mod digest;
pub mod document;
pub mod event;
pub mod record;
pub mod schema;
pub mod server_url;
pub mod strict;
pub mod subjects;
pub mod terminal;
pub mod timestamp;
pub mod types;

pub use fanfold_domain as domain;

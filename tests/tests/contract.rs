//! The contract: schemas, golden examples and the Rust types say the same, in both directions and for ever.
//!
//! A golden file whose name begins with `older-` lacks fields that newer writers always write, one beginning with `newer-` has fields
//! nobody knows yet: both must be read. Every other golden is canonical: read and written again it is the same document. What is under
//! `golden/bad/` is refused by the schema and by the Rust decoder; `lenient-` marks what the decoder accepts on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "contract/events.rs"]
mod events;
#[path = "contract/history.rs"]
mod history;
#[path = "contract/plans.rs"]
mod plans;
#[path = "contract/records.rs"]
mod records;
#[path = "contract/samples.rs"]
mod samples;
#[path = "contract/schemas.rs"]
mod schemas;
#[path = "contract/support.rs"]
mod support;
#[path = "contract/terminal.rs"]
mod terminal;

//! How things look: pure functions from values to text, so that tests compare whole pages.

pub mod csv;
pub mod event;
pub mod format;
pub mod plan;
pub mod report;
pub mod summary;
pub mod table;
pub mod task;

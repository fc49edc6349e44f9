//! Records of the state bucket and the registry: what readers of `fanfold-state` and `fanfold-terminals` see.

mod checkpoint;
mod plan;
mod registry;
mod task;

pub use checkpoint::{Checkpoint, Healed, Trail};
pub use plan::{PlanRecord, PlanStatus, plan_key};
pub use registry::{ReportCounts, StoreRecord, TerminalRecord, store_key, terminal_key};
pub use task::{AttemptRecord, TaskRecord, task_key};

//! What every fanfold process needs around its services: logging, an orderly end, a clock, and the
//! embedded nats-server.
//!
//! Depends on no other fanfold crate and speaks no NATS itself: the embedded server is started,
//! watched and stopped here, the URL it answers on is handed to whoever connects.
//!
//! | module | gives |
//! |---|---|
//! | [`telemetry`] | log lines on stderr, filtered by `FANFOLD_LOG` |
//! | [`shutdown`] | the token that ends everything, bound to SIGINT and SIGTERM |
//! | [`tasks`] | background tasks that cannot die unseen |
//! | [`clock`] | epoch milliseconds, real or virtual |
//! | [`rates`] | how much one sender may do, and how often something may be said of it |
//! | [`embedded`] | finding, starting and stopping a nats-server of our own |

pub mod clock;
pub mod embedded;
pub mod rates;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;

pub use clock::Clock;
pub use shutdown::Shutdown;
pub use tasks::Tasks;

//! What outlives the process: objects of any kind, contents of files, and lines of work, each with
//! its owner. Knows no HTTP and no JSON: bodies are bytes.
//!
//! One text of SQL runs on SQLite, which is compiled in, and on PostgreSQL, which several servers can
//! share. `objects`, `chunks`, `lines` and `usage` say what is stored; `sqlite` and `postgres` only run
//! statements, each list of them as one transaction: nothing is ever half written. No caller blocks a
//! thread: SQLite has a thread of its own.
//!
//! Times are milliseconds since 1970.
//!
//! # How to change a table
//!
//! Add a list of statements to `MIGRATIONS` in `schema`; never change one that was released.

mod chunks;
mod cipher;
mod error;
mod handle;
mod lines;
mod objects;
mod postgres;
mod schema;
mod sql;
mod sqlite;
mod tls;
mod usage;

pub use error::StoreError;
pub use handle::{Store, StorePlace, now_ms};
pub use lines::{ClaimedLine, LineAnswer, LineCounts, LineState, NewLine};
pub use objects::{Change, Key, Object, Page, PageRequest};
pub use usage::{Claim, Claimed, UsageCounts, UsageRow};

#[cfg(test)]
mod tests;

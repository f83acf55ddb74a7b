//! Every way the store can fail.

use std::path::PathBuf;

/// Why the store could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It can't be used now; later it may be.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// There is no room left.
    #[error("the store is full: {0}")]
    Full(String),
    /// What is stored can't be read with this key.
    #[error("the store is locked: {0}")]
    Locked(String),
    /// The file or database is not one of ours.
    #[error("{} is not a store of this program: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// It was written by a newer version of this program.
    #[error(
        "the store has the version {found}, and this program knows versions up to {known}: \
         use the newer program, or another store"
    )]
    Newer {
        /// The store's version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// The place is not spelled as one.
    #[error("--store: {0}")]
    Place(String),
}

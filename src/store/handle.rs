//! The way to all that is stored, whichever database it is in.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cipher::Cipher;
use super::error::StoreError;
use super::postgres::Postgres;
use super::sql::{Ran, Row, Statement};
use super::sqlite::Sqlite;

/// Where things are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In this process, for as long as it runs.
    Memory,
    /// In a SQLite file, whose folder is made where it is missing.
    File(PathBuf),
    /// In a PostgreSQL database, as `postgres://user:password@host/name` or in libpq's words.
    Postgres(String),
}

/// A cloneable way to all that is stored.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
    pub(super) cipher: Cipher,
}

#[derive(Clone, Debug)]
enum Backend {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens or makes a store of at most `max_bytes`, which a database server doesn't bound.
    ///
    /// # Errors
    /// When the file is another program's or of a newer version, or can't be opened. A database that
    /// is not there yet is no error: what needs it is refused until it is.
    pub fn open(place: &StorePlace, max_bytes: u64) -> Result<Self, StoreError> {
        let backend = match place {
            StorePlace::Memory => Backend::Sqlite(Sqlite::memory(max_bytes)?),
            StorePlace::File(path) => Backend::Sqlite(Sqlite::open(path, max_bytes)?),
            StorePlace::Postgres(url) => Backend::Postgres(Postgres::new(url)?),
        };
        Ok(Self { backend, cipher: Cipher::default() })
    }

    /// The same, writing bodies encrypted with this key.
    #[must_use]
    pub fn with_key(self, key: &[u8; 32]) -> Self {
        Self { cipher: Cipher::new(key), ..self }
    }

    /// Whether the store can be used now.
    ///
    /// # Errors
    /// Why it can't.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.run(vec![Statement::new("SELECT 1")]).await.map(drop)
    }

    /// Runs statements as one transaction; the rows of each, or `None` if one that had to hit a row
    /// missed, and then nothing is changed.
    pub(super) async fn run(
        &self,
        statements: Vec<Statement>,
    ) -> Result<Option<Vec<Vec<Row>>>, StoreError> {
        let ran = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.run(statements).await?,
            Backend::Postgres(postgres) => postgres.run(statements).await?,
        };
        Ok(match ran {
            Ran::All(rows) => Some(rows),
            Ran::Missed => None,
        })
    }

    /// Runs one statement; its rows.
    pub(super) async fn rows(&self, statement: Statement) -> Result<Vec<Row>, StoreError> {
        let rows = self.run(vec![statement]).await?;
        Ok(rows.and_then(|mut rows| rows.pop()).unwrap_or_default())
    }

    /// What a statement is followed by to let several servers take rows at once.
    pub(super) fn skip_locked(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite(_) => "",
            Backend::Postgres(_) => "FOR UPDATE SKIP LOCKED",
        }
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

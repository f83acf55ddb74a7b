//! SQLite: one connection on a thread of its own, which runs the transactions that are sent to it.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, TransactionBehavior};
use tokio::sync::oneshot;

use super::error::StoreError;
use super::schema::{missing, newest};
use super::sql::{Ran, Row, Statement, Value};

/// Marks our files, in the header that SQLite has for that: "SCNC".
const APPLICATION: i64 = 0x5343_4e43;
/// How long to wait for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
const PAGE_BYTES: u64 = 4096;
/// Free pages that a transaction's end gives back to the file system.
const VACUUM: &str = "PRAGMA incremental_vacuum(64)";

/// A way to the thread.
#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    jobs: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Job {
    statements: Vec<Statement>,
    reply: oneshot::Sender<Result<Ran, StoreError>>,
}

impl Sqlite {
    /// A store that ends with the process.
    pub(super) fn memory(max_bytes: u64) -> Result<Self, StoreError> {
        let connection = Connection::open_in_memory().map_err(|error| failure(&error))?;
        Self::start(connection, Path::new(":memory:"), max_bytes)
    }

    /// A store in a file that only its user can read.
    pub(super) fn open(path: &Path, max_bytes: u64) -> Result<Self, StoreError> {
        prepare(path).map_err(|error| {
            StoreError::Unavailable(format!("{} can't be opened: {error}", path.display()))
        })?;
        let connection = Connection::open(path).map_err(|error| failure(&error))?;
        Self::start(connection, path, max_bytes)
    }

    fn start(mut connection: Connection, path: &Path, max_bytes: u64) -> Result<Self, StoreError> {
        set_up(&mut connection, path, max_bytes)?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            while let Ok(Job { statements, reply }) = queue.recv() {
                let ran = transaction(&mut connection, &statements);
                // Whoever asked may have gone.
                let _ = reply.send(ran.map_err(|error| failure(&error)));
            }
        };
        let thread = std::thread::Builder::new().name("store".to_owned());
        thread.spawn(work).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { jobs })
    }

    /// Runs statements as one transaction.
    pub(super) async fn run(&self, statements: Vec<Statement>) -> Result<Ran, StoreError> {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("its thread has ended".to_owned());
        self.jobs.send(Job { statements, reply }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// Makes the folder and the file, where there are none.
fn prepare(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn set_up(connection: &mut Connection, path: &Path, max_bytes: u64) -> Result<(), StoreError> {
    let foreign = |reason: String| StoreError::Foreign { path: PathBuf::from(path), reason };
    let read = |connection: &Connection, sql: &str| -> rusqlite::Result<i64> {
        connection.query_row(sql, [], |row| row.get(0))
    };
    let told = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => foreign(error.to_string()),
        _ => failure(&error),
    };
    connection.busy_timeout(BUSY).map_err(told)?;
    // Before the first table, or it has no effect.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(told)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(told)?;
    let application = read(&transaction, "PRAGMA application_id").map_err(told)?;
    let tables = read(&transaction, "SELECT count(*) FROM sqlite_master").map_err(told)?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        return Err(foreign(format!("a SQLite file of another program, with {tables} tables")));
    }
    let version = read(&transaction, "PRAGMA user_version").map_err(told)?;
    if version > newest() {
        return Err(StoreError::Newer { found: version, known: newest() });
    }
    for sql in missing(version, "INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB") {
        transaction.execute_batch(&sql).map_err(told)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(told)?;
    transaction.pragma_update(None, "user_version", newest()).map_err(told)?;
    transaction.commit().map_err(told)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(told)?;
    // What was told to a client as stored is there after a power failure, too.
    connection.pragma_update(None, "synchronous", "FULL").map_err(told)?;
    let pages = (max_bytes / PAGE_BYTES).clamp(64, u64::from(u32::MAX - 1));
    read(connection, &format!("PRAGMA max_page_count = {pages}")).map_err(told)?;
    Ok(())
}

fn transaction(connection: &mut Connection, statements: &[Statement]) -> rusqlite::Result<Ran> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let rows = execute(&transaction, statement)?;
        if statement.must_hit && rows.is_empty() {
            return Ok(Ran::Missed);
        }
        all.push(rows);
    }
    transaction.commit()?;
    if statements.iter().any(|statement| statement.sql.starts_with("DELETE")) {
        let mut vacuum = connection.prepare(VACUUM)?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(Ran::All(all))
}

fn execute(connection: &Connection, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare(&statement.sql)?;
    for (at, value) in statement.parameters.iter().enumerate() {
        if let Some(index) = prepared.parameter_index(&format!("${}", at + 1))? {
            prepared.raw_bind_parameter(index, value)?;
        }
    }
    let columns = prepared.column_count();
    let mut rows = prepared.raw_query();
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|at| row.get_ref(at).map(Value::from));
        all.push(Row::new(values.collect::<rusqlite::Result<_>>()?));
    }
    Ok(all)
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Integer(value) => Self::Int(value),
            ValueRef::Text(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
            // No column holds numbers with a fraction.
            ValueRef::Null | ValueRef::Real(_) => Self::Null,
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn failure(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

//! PostgreSQL: a few connections, made when they are needed and again when they were lost.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Connection, NoTls, Transaction};

use super::error::StoreError;
use super::schema::{missing, newest};
use super::sql::{Ran, Row, Statement, Value};
use super::tls::{Connector, Wanted};

/// Transactions at once.
const CONNECTIONS: usize = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for one transaction.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Lets one server at a time change tables.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(6002713290)";

/// A way to the database.
#[derive(Clone, Debug)]
pub(super) struct Postgres(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    config: Config,
    tls: Option<Connector>,
    clients: [Mutex<Option<Client>>; CONNECTIONS],
    next: AtomicUsize,
}

impl Postgres {
    /// Reads where the database is; nothing is connected yet.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        let wanted = Wanted::read(url)?;
        let mut config: Config =
            wanted.address.parse().map_err(|error: tokio_postgres::Error| {
                StoreError::Place(format!(
                    "the database's address is not understood: {}",
                    told(&error)
                ))
            })?;
        let tls = wanted.connector()?;
        config.connect_timeout(CONNECT_TIMEOUT);
        config.application_name("sconce");
        let clients = std::array::from_fn(|_| Mutex::new(None));
        Ok(Self(Arc::new(Pool { config, tls, clients, next: AtomicUsize::new(0) })))
    }

    /// Runs statements as one transaction.
    pub(super) async fn run(&self, statements: Vec<Statement>) -> Result<Ran, StoreError> {
        let pool = Arc::clone(&self.0);
        // A transaction of a request that goes away is ended in order all the same.
        let work = tokio::spawn(async move {
            tokio::time::timeout(TIMEOUT, pool.run(&statements)).await.unwrap_or_else(|_| {
                Err(StoreError::Unavailable(format!("no answer for {} s", TIMEOUT.as_secs())))
            })
        });
        work.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }
}

impl Pool {
    async fn run(&self, statements: &[Statement]) -> Result<Ran, StoreError> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let mut slot = self.clients[place].lock().await;
        // A transaction that is given up half way leaves no connection behind that is inside of it.
        let mut client = match slot.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect().await?,
        };
        let ran = transaction(&mut client, statements).await;
        if ran.is_ok() || !client.is_closed() {
            *slot = Some(client);
        }
        ran.map_err(|error| failure(&error))
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let mut client = match &self.tls {
            Some(tls) => drive(self.config.connect(tls.clone()).await),
            None => drive(self.config.connect(NoTls).await),
        }
        .map_err(|error| failure(&error))?;
        migrate(&mut client).await?;
        Ok(client)
    }
}

/// Has a task of its own carry what a client sends and gets.
fn drive<S, T>(
    connected: Result<(Client, Connection<S, T>), tokio_postgres::Error>,
) -> Result<Client, tokio_postgres::Error>
where
    Connection<S, T>: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    let (client, connection) = connected?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = told(&error), "the connection to the database was lost");
        }
    });
    Ok(client)
}

async fn migrate(client: &mut Client) -> Result<(), StoreError> {
    let fail = |error: tokio_postgres::Error| failure(&error);
    let transaction = client.transaction().await.map_err(fail)?;
    transaction.query(MIGRATION_LOCK, &[]).await.map_err(fail)?;
    let table = "CREATE TABLE IF NOT EXISTS sconce_version (version BIGINT NOT NULL)";
    transaction.batch_execute("SET LOCAL client_min_messages = warning").await.map_err(fail)?;
    transaction.batch_execute(table).await.map_err(fail)?;
    let sql = "SELECT coalesce(max(version), 0) FROM sconce_version";
    let version: i64 = transaction.query_one(sql, &[]).await.map_err(fail)?.get(0);
    if version > newest() {
        return Err(StoreError::Newer { found: version, known: newest() });
    }
    for sql in missing(version, "BIGSERIAL PRIMARY KEY", "BYTEA") {
        transaction.batch_execute(&sql).await.map_err(fail)?;
    }
    if version < newest() {
        let sql = "INSERT INTO sconce_version (version) VALUES ($1)";
        transaction.execute(sql, &[&newest()]).await.map_err(fail)?;
    }
    transaction.commit().await.map_err(fail)
}

async fn transaction(
    client: &mut Client,
    statements: &[Statement],
) -> Result<Ran, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let mut all = Vec::with_capacity(statements.len());
    for statement in statements {
        let rows = execute(&transaction, statement).await?;
        if statement.must_hit && rows.is_empty() {
            transaction.rollback().await?;
            return Ok(Ran::Missed);
        }
        all.push(rows);
    }
    transaction.commit().await?;
    Ok(Ran::All(all))
}

async fn execute(
    transaction: &Transaction<'_>,
    statement: &Statement,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let parameters: Vec<&(dyn ToSql + Sync)> =
        statement.parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let rows = transaction.query(statement.sql.as_str(), &parameters).await?;
    rows.iter().map(read).collect()
}

fn read(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let values = row.columns().iter().enumerate().map(|(at, column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.into(),
            Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(i64::from).into(),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at)?.into(),
            _ => row.try_get::<_, Option<String>>(at)?.into(),
        })
    });
    values.collect::<Result<_, _>>().map(Row::new)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) => value.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT | Type::BYTEA)
    }

    to_sql_checked!();
}

/// An error with its causes, which the outermost doesn't tell.
fn told(error: &tokio_postgres::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        told = format!("{told}: {inner}");
        cause = inner.source();
    }
    told
}

fn failure(error: &tokio_postgres::Error) -> StoreError {
    match error.code().map(tokio_postgres::error::SqlState::code) {
        // disk_full
        Some("53100") => StoreError::Full(told(error)),
        _ => StoreError::Unavailable(told(error)),
    }
}

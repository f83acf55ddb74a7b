//! The contents of files, in chunks: a file is never whole in memory.

use super::error::StoreError;
use super::handle::{Store, now_ms};
use super::sql::{Row, Statement};

impl Store {
    /// Writes the chunk of that number. Chunks of which no object of the kind `file` comes to be are
    /// removed later.
    ///
    /// # Errors
    /// When the store is down or full.
    pub async fn put_chunk(
        &self,
        file: &str,
        number: i64,
        body: Vec<u8>,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO sconce_chunks (file, number, written, body) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (file, number) DO UPDATE SET body = excluded.body";
        let body = self.cipher.seal(&place(file, number), &body)?;
        let statement = Statement::new(sql).with(file).with(number).with(now_ms()).with(body);
        self.rows(statement).await.map(drop)
    }

    /// The chunk of that number; `None` behind the last.
    ///
    /// # Errors
    /// When the store is down.
    pub async fn chunk(&self, file: &str, number: i64) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT body FROM sconce_chunks WHERE file = $1 AND number = $2";
        let mut rows = self.rows(Statement::new(sql).with(file).with(number)).await?;
        let read = |mut row: Row| self.cipher.open(&place(file, number), &row.bytes());
        rows.pop().map(read).transpose()
    }

    /// Removes chunks of a file that did not come to be.
    ///
    /// # Errors
    /// When the store is down; they are removed later then.
    pub async fn drop_chunks(&self, file: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM sconce_chunks WHERE file = $1";
        self.rows(Statement::new(sql).with(file)).await.map(drop)
    }
}

/// Where a chunk is.
fn place(file: &str, number: i64) -> String {
    format!("{file}/{number}")
}

//! Files in the store: what is known of each, and its contents chunk by chunk.

use axum::body::{Body, Bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::clock::unix_seconds;
use super::packing::{pack, unpack};
use crate::http::error::ApiError;
use crate::store::{Change, Key, Object, Store};

/// The kind of a stored file.
pub(crate) const FILE: &str = "file";
/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;

/// What is known of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredFile {
    pub(crate) bytes: u64,
    pub(crate) created_at: u64,
    pub(crate) filename: String,
    pub(crate) purpose: String,
    /// Seconds since 1970.
    pub(crate) expires_at: Option<i64>,
}

impl StoredFile {
    /// The file object.
    pub(crate) fn json(&self, id: &str) -> Value {
        let mut file = json!({
            "id": id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        });
        if let Some(at) = self.expires_at {
            file["expires_at"] = json!(at);
        }
        file
    }

    /// The file of that id, if this owner has one.
    pub(crate) async fn find(store: &Store, owner: &str, id: &str) -> Result<Self, ApiError> {
        let object = store.find(FILE, owner, id).await?;
        unpack(&object.ok_or_else(|| ApiError::ObjectNotFound(FILE, id.to_owned()))?.body)
    }
}

/// Writes a file that is not there before it is whole.
#[derive(Debug)]
pub(crate) struct FileWriter {
    store: Store,
    pub(crate) id: String,
    pub(crate) bytes: u64,
    chunk: Vec<u8>,
    chunks: i64,
}

impl FileWriter {
    /// A file of a new name.
    pub(crate) fn new(store: &Store) -> Self {
        Self::named(store, format!("file-{}", Uuid::new_v4().simple()))
    }

    /// A file that replaces what an earlier attempt left under this name.
    pub(crate) fn named(store: &Store, id: String) -> Self {
        Self { store: store.clone(), id, bytes: 0, chunk: Vec::new(), chunks: 0 }
    }

    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), ApiError> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = rest;
            if self.chunk.len() == CHUNK {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ApiError> {
        let chunk = std::mem::take(&mut self.chunk);
        self.store.put_chunk(&self.id, self.chunks, chunk).await?;
        self.chunks += 1;
        Ok(())
    }

    /// Writes the rest; how the file comes to be there.
    pub(crate) async fn end(
        mut self,
        owner: &str,
        filename: String,
        purpose: &str,
        expires_at: Option<i64>,
    ) -> Result<(Change, StoredFile), ApiError> {
        if !self.chunk.is_empty() {
            self.flush().await?;
        }
        let created_at = unix_seconds();
        let purpose = purpose.to_owned();
        let file = StoredFile { bytes: self.bytes, created_at, filename, purpose, expires_at };
        let expires = expires_at.map(|at| at.saturating_mul(1000));
        let object = Object::new(Key::new(FILE, owner, &self.id), expires, pack(&file));
        Ok((Change::Put(object), file))
    }

    /// Removes what was written.
    pub(crate) async fn abandon(self) {
        if let Err(error) = self.store.drop_chunks(&self.id).await {
            tracing::debug!(%error, "what is left of a file is removed later");
        }
    }
}

/// Reads a file line by line.
#[derive(Debug)]
pub(crate) struct LineReader {
    store: Store,
    id: String,
    chunk: i64,
    read: Vec<u8>,
    ended: bool,
}

impl LineReader {
    pub(crate) fn new(store: &Store, id: &str) -> Self {
        let (store, id) = (store.clone(), id.to_owned());
        Self { store, id, chunk: 0, read: Vec::new(), ended: false }
    }

    /// The next line without its end; `None` behind the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.ended {
                let last = std::mem::take(&mut self.read);
                return Ok((!last.is_empty()).then_some(last));
            }
            searched = self.read.len();
            match self.store.chunk(&self.id, self.chunk).await? {
                Some(bytes) => self.read.extend(bytes),
                None => self.ended = true,
            }
            self.chunk += 1;
        }
    }
}

/// The contents of a file as a body.
pub(crate) fn contents(store: &Store, id: &str) -> Body {
    let (store, id) = (store.clone(), id.to_owned());
    let chunks = futures::stream::unfold((store, id, 0), |(store, id, number)| async move {
        match store.chunk(&id, number).await {
            Ok(chunk) => Some((Ok(Bytes::from(chunk?)), (store, id, number + 1))),
            // The connection breaks: half of a file must not look whole.
            Err(error) => Some((Err(error), (store, id, i64::MAX))),
        }
    });
    Body::from_stream(chunks)
}

//! Batches in the store: what is known of each, and how it comes to its end.
//!
//! A batch that has not ended has a part of the kind [`OPEN`], so that servers find those that they
//! have to look after.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::clock::unix_seconds;
use super::files::FileWriter;
use super::packing::{pack, unpack};
use crate::http::error::ApiError;
use crate::store::{
    Change, Key, LineAnswer, LineCounts, LineState, NewLine, Object, Store, now_ms,
};

/// The kind of a batch of OpenAI's API.
pub(crate) const BATCH: &str = "batch";
/// The kind of a batch of Anthropic's API.
pub(crate) const MESSAGE_BATCH: &str = "message_batch";
/// What a batch has that has not ended.
pub(crate) const OPEN: &str = "open_batch";
/// Lines of batches yield to responses in the background.
pub(crate) const URGENCY: i64 = 1;
/// How long a batch may take, in seconds.
pub(crate) const WINDOW: u64 = 24 * 3600;
/// Lines that are written or read at once.
const GROUP: usize = 500;
/// How long the lines of a batch may take to be stored, in seconds; whoever did it is gone then.
const STORING: u64 = 900;

/// Where a batch is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BatchStatus {
    Validating,
    Failed,
    InProgress,
    Completed,
    Expired,
    Cancelling,
    Cancelled,
}

/// What is wrong with a line of a batch's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineError {
    pub(crate) code: String,
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
}

/// A batch. Times are seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredBatch {
    pub(crate) endpoint: String,
    pub(crate) input_file_id: String,
    pub(crate) metadata: Map<String, Value>,
    /// How long the files that it writes are kept.
    pub(crate) output_seconds: Option<i64>,
    pub(crate) status: BatchStatus,
    pub(crate) errors: Vec<LineError>,
    pub(crate) created_at: u64,
    pub(crate) in_progress_at: Option<u64>,
    pub(crate) cancelling_at: Option<u64>,
    pub(crate) ended_at: Option<u64>,
    pub(crate) output_file_id: Option<String>,
    pub(crate) error_file_id: Option<String>,
    /// Once it has ended: lines answered, answered with an error, and given up.
    pub(crate) counts: Option<[i64; 3]>,
}

impl StoredBatch {
    pub(crate) fn new(endpoint: &str, input_file_id: String) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            input_file_id,
            metadata: Map::new(),
            output_seconds: None,
            status: BatchStatus::Validating,
            errors: Vec::new(),
            created_at: unix_seconds(),
            in_progress_at: None,
            cancelling_at: None,
            ended_at: None,
            output_file_id: None,
            error_file_id: None,
            counts: None,
        }
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.created_at + WINDOW
    }

    /// How many lines are where; of a batch that has ended, as they were at its end.
    pub(crate) async fn counts(&self, store: &Store, id: &str) -> Result<LineCounts, ApiError> {
        match self.counts {
            Some([answered, failed, dropped]) => {
                Ok(LineCounts { answered, failed, dropped, ..LineCounts::default() })
            }
            None => Ok(store.count_lines(id).await?),
        }
    }
}

/// A batch as it was read, to be changed.
#[derive(Clone, Debug)]
pub(crate) struct BatchObject {
    pub(crate) batch: StoredBatch,
    object: Object,
}

impl BatchObject {
    /// The batch of that id, if this owner has one.
    pub(crate) async fn find(
        store: &Store,
        kind: &'static str,
        owner: &str,
        id: &str,
    ) -> Result<Self, ApiError> {
        let object = store.find(kind, owner, id).await?;
        let object = object.ok_or_else(|| ApiError::ObjectNotFound(BATCH, id.to_owned()))?;
        Self::read(object)
    }

    pub(crate) fn read(object: Object) -> Result<Self, ApiError> {
        Ok(Self { batch: unpack(&object.body)?, object })
    }

    pub(crate) fn id(&self) -> &str {
        &self.object.key.id
    }

    /// Stores a new batch and its lines; `expires` is when it is forgotten.
    pub(crate) async fn add(
        store: &Store,
        key: Key,
        batch: StoredBatch,
        lines: Vec<NewLine>,
        expires: Option<i64>,
    ) -> Result<Self, ApiError> {
        let open = Key::part(OPEN, &key.owner, &key.id, key.kind);
        let object = Object::new(key, expires, pack(&batch));
        let ends = i64::try_from(batch.expires_at()).unwrap_or(i64::MAX).saturating_mul(1000);
        let mut made = Self { batch, object };
        let fails = made.batch.status == BatchStatus::Failed;
        let mut changes = vec![Change::Add(made.object.clone())];
        changes.extend((!fails).then(|| Change::Add(Object::new(open, expires, Vec::new()))));
        store.change(changes).await?;
        if fails {
            return Ok(made);
        }
        let mut lines = lines.into_iter().peekable();
        while lines.peek().is_some() {
            let group = lines.by_ref().take(GROUP).collect();
            if let Err(error) = store.add_lines(made.id(), URGENCY, ends, group).await {
                // Nothing is half there, unless the store is gone for good: then it fails later.
                let _ = store.change(vec![Change::Remove(made.object.key.clone())]).await;
                return Err(error.into());
            }
        }
        made.batch.status = BatchStatus::InProgress;
        made.batch.in_progress_at = Some(unix_seconds());
        made.write(store, Vec::new()).await?;
        Ok(made)
    }

    /// Writes the batch with other changes; false if it was changed since it was read.
    async fn write(&mut self, store: &Store, more: Vec<Change>) -> Result<bool, ApiError> {
        let body = pack(&self.batch);
        let mut changes = vec![Change::Update(Object { body, ..self.object.clone() })];
        changes.extend(more);
        let written = store.change(changes).await?;
        self.object.revision += i64::from(written);
        Ok(written)
    }

    /// Starts to cancel a batch; one that has ended stays as it is.
    pub(crate) async fn cancel(mut self, store: &Store) -> Result<Self, ApiError> {
        use BatchStatus::{Cancelling, InProgress, Validating};
        let (kind, owner) = (self.object.key.kind, self.object.key.owner.clone());
        while matches!(self.batch.status, InProgress | Validating) {
            self.batch.status = Cancelling;
            self.batch.cancelling_at = Some(unix_seconds());
            if self.write(store, Vec::new()).await? {
                store.drop_lines(self.id(), false).await?;
                break;
            }
            self = Self::find(store, kind, &owner, self.id()).await?;
        }
        Ok(self)
    }

    /// Ends the batch if there is nothing left to do. Several servers may try at once: one does.
    pub(crate) async fn advance(mut self, store: &Store) -> Result<(), ApiError> {
        use BatchStatus::{Cancelled, Cancelling, Completed, Expired, Failed, Validating};
        let now = unix_seconds();
        if self.batch.status == Validating {
            if now < self.batch.created_at + STORING {
                return Ok(());
            }
            self.batch.errors.push(LineError {
                code: "server_error".to_owned(),
                line: None,
                message: "the server ended while it stored the lines".to_owned(),
                param: None,
            });
            store.drop_lines(&self.object.key.id, true).await?;
            return self.end(store, Failed).await;
        }
        let over = now >= self.batch.expires_at();
        if over || self.batch.status == Cancelling {
            store.drop_lines(&self.object.key.id, over).await?;
        }
        let counts = store.count_lines(&self.object.key.id).await?;
        if counts.waiting > 0 {
            return Ok(());
        }
        let status = match self.batch.status {
            Cancelling => Cancelled,
            _ if over && counts.dropped > 0 => Expired,
            _ => Completed,
        };
        self.end(store, status).await
    }

    async fn end(mut self, store: &Store, status: BatchStatus) -> Result<(), ApiError> {
        let Key { kind, owner, id, .. } = self.object.key.clone();
        let mut changes = vec![Change::Remove(Key::part(OPEN, &owner, &id, kind))];
        let counts = store.count_lines(&id).await?;
        self.batch.counts = Some([counts.answered, counts.failed, counts.dropped]);
        if kind == BATCH && status != BatchStatus::Failed {
            let good = self.write_file(store, "output", |line| line == LineState::Answered).await?;
            let bad = self.write_file(store, "error", |line| line != LineState::Answered).await?;
            self.batch.output_file_id = good.as_ref().map(|(_, id)| id.clone());
            self.batch.error_file_id = bad.as_ref().map(|(_, id)| id.clone());
            changes.extend([good, bad].into_iter().flatten().map(|(change, _)| change));
        }
        self.batch.status = status;
        self.batch.ended_at = Some(unix_seconds());
        self.write(store, changes).await?;
        Ok(())
    }

    /// Writes the answers of some lines, in the order of the lines; `None` if there are none. Its name
    /// follows from the batch's: another server that does the same writes the same.
    async fn write_file(
        &self,
        store: &Store,
        name: &str,
        belongs: impl Fn(LineState) -> bool,
    ) -> Result<Option<(Change, String)>, ApiError> {
        let id = &self.object.key.id;
        let file_id = format!("file-{name}-{}", id.trim_start_matches("batch_"));
        let mut writer = FileWriter::named(store, file_id.clone());
        let mut next = 0;
        loop {
            let group = i64::try_from(GROUP).unwrap_or(i64::MAX);
            let lines = store.answered_lines(id, next, group).await?;
            let Some(last) = lines.last() else { break };
            next = last.number + 1;
            for line in lines.iter().filter(|line| belongs(line.state)) {
                let mut json = self.answer(line)?.to_string();
                json.push('\n');
                writer.write(json.as_bytes()).await?;
            }
        }
        if writer.bytes == 0 {
            return Ok(None);
        }
        let expires = self.batch.output_seconds.map(|seconds| now_ms() / 1000 + seconds);
        let usual = self.object.expires.map(|at| at / 1000);
        let owner = &self.object.key.owner;
        let filename = format!("{id}_{name}.jsonl");
        let (change, _) = writer.end(owner, filename, "batch_output", expires.or(usual)).await?;
        Ok(Some((change, file_id)))
    }

    /// What is told of a line that nobody has to answer any more.
    fn answer(&self, line: &LineAnswer) -> Result<Value, ApiError> {
        if line.state != LineState::Dropped {
            return unpack(&line.answer);
        }
        let (code, message) = if self.batch.cancelling_at.is_some() {
            ("batch_cancelled", "The batch was cancelled before this line was run.")
        } else {
            ("batch_expired", "This line could not be run before the batch expired.")
        };
        Ok(json!({
            "id": format!("batch_req_{}_{}", self.object.key.id.trim_start_matches("batch_"), line.number),
            "custom_id": line.custom_id,
            "response": null,
            "error": {"code": code, "message": message},
        }))
    }
}

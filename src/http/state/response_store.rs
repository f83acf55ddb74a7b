//! Responses in the store: each with all that it was made of, so that a conversation outlives the
//! responses it began with.
//!
//! Only answers that came to their end are kept, completed or incomplete: a stream that its client
//! left leaves nothing. A response's own items can be referred to while it is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::packing::{pack, unpack};
use crate::http::error::ApiError;
use crate::http::wire::responses::Item;
use crate::store::{Change, Key, Object, Store, StoreError, now_ms};

/// The kind of a stored response.
pub(crate) const RESPONSE: &str = "response";
/// The kind of an item: a part of a response or of a conversation.
pub(crate) const ITEM: &str = "item";
/// Responses that make room when there is none.
const ROOM: i64 = 64;

/// Items that came together: those of a request, or those of its response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Turn(Vec<Item>);

impl Turn {
    pub(crate) fn new(items: Vec<Item>) -> Arc<Self> {
        Arc::new(Self(items))
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.0
    }
}

/// A conversation, turn by turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct History(Vec<Arc<Turn>>);

impl History {
    /// With one more turn.
    pub(crate) fn with(&self, turn: Arc<Turn>) -> Self {
        let mut turns = self.0.clone();
        turns.push(turn);
        Self(turns)
    }

    /// All items, the first one first.
    pub(crate) fn items(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.0.iter().flat_map(|turn| &turn.0)
    }

    /// The items of the last turn: a request's own.
    pub(crate) fn last(&self) -> &[Item] {
        self.0.last().map_or(&[], |turn| &turn.0)
    }
}

/// A response and what it was made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub(crate) response: Value,
    /// All items that the model was given, the request's own last.
    pub(crate) input: History,
    /// What the model gave.
    pub(crate) output: Arc<Turn>,
}

impl StoredResponse {
    /// What a request that goes on from here begins with.
    pub(crate) fn conversation(&self) -> History {
        self.input.with(Arc::clone(&self.output))
    }
}

/// A response that runs in the background, as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackgroundRun {
    pub(crate) id: String,
    pub(crate) created_at: u64,
    /// What ends as another is no longer this run's.
    pub(crate) revision: i64,
}

/// The responses of all owners.
#[derive(Clone, Debug)]
pub(crate) struct ResponseStore {
    store: Store,
    age: Duration,
}

impl ResponseStore {
    pub(crate) fn new(store: Store, age: Duration) -> Self {
        Self { store, age }
    }

    /// When what is stored now expires.
    pub(crate) fn expires(&self) -> Option<i64> {
        i64::try_from(self.age.as_millis()).ok().map(|age| now_ms().saturating_add(age))
    }

    /// Keeps a response, with its items and what `more` there is to change, in one piece. The oldest
    /// responses make room where there is none.
    pub(crate) async fn insert(
        &self,
        owner: &str,
        id: &str,
        stored: &StoredResponse,
        run: Option<BackgroundRun>,
        more: Vec<Change>,
    ) -> Result<(), StoreError> {
        let expires = self.expires();
        let object = Object::new(Key::new(RESPONSE, owner, id), expires, pack(stored));
        let mut changes = vec![match run {
            None => Change::Put(object),
            // Not if it was cancelled or deleted meanwhile.
            Some(run) => Change::Update(Object { revision: run.revision, ..object }),
        }];
        for item in stored.input.last().iter().chain(stored.output.items()) {
            let key = Key::part(ITEM, owner, id, item.id());
            changes.push(Change::Put(Object::new(key, expires, pack(item))));
        }
        changes.extend(more);
        match self.store.change(changes.clone()).await {
            Err(StoreError::Full(_)) => {
                self.store.remove_oldest(RESPONSE, ROOM).await?;
                self.store.change(changes).await.map(drop)
            }
            made => made.map(drop),
        }
    }

    /// A response as it stands, and its revision.
    pub(crate) async fn find(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<(StoredResponse, i64)>, ApiError> {
        let object = self.store.find(RESPONSE, owner, id).await?;
        object.map(|object| Ok((unpack(&object.body)?, object.revision))).transpose()
    }

    /// Writes a response that was `revision` when it was read; false if it was changed meanwhile.
    pub(crate) async fn update(
        &self,
        owner: &str,
        id: &str,
        stored: &StoredResponse,
        revision: i64,
    ) -> Result<bool, ApiError> {
        let object = Object::new(Key::new(RESPONSE, owner, id), self.expires(), pack(stored));
        Ok(self.store.change(vec![Change::Update(Object { revision, ..object })]).await?)
    }

    pub(crate) async fn get(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<StoredResponse>, ApiError> {
        Ok(self.find(owner, id).await?.map(|(stored, _)| stored))
    }

    /// Whether there was such a response.
    pub(crate) async fn remove(&self, owner: &str, id: &str) -> Result<bool, ApiError> {
        let key = Key::new(RESPONSE, owner, id);
        Ok(self.store.change(vec![Change::Remove(key)]).await?)
    }

    /// The newest items with these ids; those that are not stored are left out.
    pub(crate) async fn items(
        &self,
        owner: &str,
        ids: Vec<String>,
    ) -> Result<HashMap<String, Item>, ApiError> {
        let mut items = HashMap::new();
        for id in ids {
            if let Some(object) = self.store.find(ITEM, owner, &id).await? {
                items.insert(id, unpack(&object.body)?);
            }
        }
        Ok(items)
    }
}

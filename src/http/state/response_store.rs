//! Responses that a request asked to keep, until there are too many, they are too large or too old.
//!
//! Only answers that came to their end are kept, completed or incomplete: a stream that its client
//! left and a response that failed leave nothing. What was kept first goes first. A conversation
//! outlives the responses it began with: each response holds on to the turns before it. Their
//! bytes count in each of them, so that what is really held is never more than what is counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

use crate::http::wire::responses::Item;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreLimits {
    pub(crate) responses: usize,
    /// Of JSON, the conversation before a response included.
    pub(crate) bytes: usize,
    pub(crate) age: Duration,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { responses: 1000, bytes: 64 << 20, age: Duration::from_hours(1) }
    }
}

/// Items that came together: those of a request, or those of its response.
#[derive(Debug)]
pub(crate) struct Turn {
    items: Vec<Item>,
    /// As JSON.
    bytes: usize,
}

impl Turn {
    pub(crate) fn new(items: Vec<Item>) -> Arc<Self> {
        let json = serde_json::to_string(&items).expect("items have string keys");
        Arc::new(Self { items, bytes: json.len() })
    }
}

/// A conversation, turn by turn.
#[derive(Clone, Debug, Default)]
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
        self.0.iter().flat_map(|turn| &turn.items)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|turn| turn.bytes).sum()
    }
}

/// A response and what it was made from.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub(crate) json: Bytes,
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

    fn bytes(&self) -> usize {
        self.json.len() + self.input.bytes() + self.output.bytes
    }

    /// An item of this response or of its own request.
    fn item(&self, id: &str) -> Option<&Item> {
        let asked = self.input.0.last().into_iter().flat_map(|turn| &turn.items);
        asked.chain(&self.output.items).find(|item| item.id() == id)
    }
}

/// The responses that are kept, for all connections.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    limits: StoreLimits,
    kept: Mutex<Kept>,
}

impl ResponseStore {
    /// Keeps a response; false if it alone is larger than all may be.
    pub(crate) fn insert(&self, now: Instant, id: &str, stored: StoredResponse) -> bool {
        let bytes = stored.bytes();
        if bytes > self.limits.bytes || self.limits.responses == 0 {
            return false;
        }
        let mut kept = self.kept(now);
        kept.insert(Entry { id: id.to_owned(), at: now, bytes, stored: Arc::new(stored) });
        while kept.entries.len() > self.limits.responses || kept.bytes > self.limits.bytes {
            kept.remove_first();
        }
        true
    }

    pub(crate) fn get(&self, now: Instant, id: &str) -> Option<Arc<StoredResponse>> {
        let kept = self.kept(now);
        let entry = kept.entries.get(kept.places.get(id)?)?;
        Some(Arc::clone(&entry.stored))
    }

    /// Whether there was such a response.
    pub(crate) fn remove(&self, now: Instant, id: &str) -> bool {
        let mut kept = self.kept(now);
        let place = kept.places.get(id).copied();
        place.is_some_and(|place| kept.remove(place))
    }

    /// The newest item with this id.
    pub(crate) fn item(&self, now: Instant, id: &str) -> Option<Item> {
        let kept = self.kept(now);
        kept.entries.values().rev().find_map(|entry| entry.stored.item(id)).cloned()
    }

    /// Lets go of what is too old.
    pub(crate) fn expire(&self, now: Instant) {
        drop(self.kept(now));
    }

    fn kept(&self, now: Instant) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds the lock, so what a poisoned one guards is whole.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.oldest().is_some_and(|at| now.duration_since(at) >= self.limits.age) {
            kept.remove_first();
        }
        kept
    }
}

#[derive(Debug)]
struct Entry {
    id: String,
    at: Instant,
    bytes: usize,
    stored: Arc<StoredResponse>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By the order in which they came.
    entries: BTreeMap<u64, Entry>,
    /// Response id to its key in `entries`.
    places: HashMap<String, u64>,
    bytes: usize,
    next: u64,
}

impl Kept {
    fn insert(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.places.insert(entry.id.clone(), self.next);
        self.entries.insert(self.next, entry);
        self.next += 1;
    }

    fn remove(&mut self, place: u64) -> bool {
        let Some(entry) = self.entries.remove(&place) else { return false };
        self.bytes -= entry.bytes;
        self.places.remove(&entry.id);
        true
    }

    fn remove_first(&mut self) {
        if let Some((&place, _)) = self.entries.first_key_value() {
            self.remove(place);
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(_, entry)| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::responses::{ItemStatus, MessageItem, Part, Role};

    fn message(id: &str, text: &str) -> Item {
        let content = vec![Part::InputText { text: text.to_owned() }];
        let status = ItemStatus::Completed;
        Item::Message(MessageItem { id: id.to_owned(), status, role: Role::User, content })
    }

    /// A response of about `size` bytes that asked with the item `id-in`.
    fn stored(id: &str, size: usize) -> StoredResponse {
        StoredResponse {
            json: Bytes::from("x".repeat(size)),
            input: History::default().with(Turn::new(vec![message(&format!("{id}-in"), "")])),
            output: Turn::new(vec![message(&format!("{id}-out"), "")]),
        }
    }

    fn store(responses: usize, bytes: usize, age: u64) -> ResponseStore {
        let limits = StoreLimits { responses, bytes, age: Duration::from_secs(age) };
        ResponseStore { limits, ..ResponseStore::default() }
    }

    fn ids<'a>(store: &ResponseStore, now: Instant, ids: &[&'a str]) -> Vec<&'a str> {
        ids.iter().copied().filter(|id| store.get(now, id).is_some()).collect()
    }

    #[test]
    fn one_too_many_pushes_out_the_first() {
        let (store, now) = (store(2, usize::MAX, 60), Instant::now());
        for id in ["a", "b", "c"] {
            assert!(store.insert(now, id, stored(id, 10)));
        }
        assert_eq!(ids(&store, now, &["a", "b", "c"]), ["b", "c"]);
    }

    #[test]
    fn bytes_push_out_as_many_as_they_need() {
        let (store, now) = (store(100, 10_000, 60), Instant::now());
        for id in ["a", "b", "c"] {
            assert!(store.insert(now, id, stored(id, 3000)));
        }
        assert!(store.insert(now, "d", stored("d", 6000)));
        assert_eq!(ids(&store, now, &["a", "b", "c", "d"]), ["c", "d"]);
        assert!(!store.insert(now, "e", stored("e", 10_001)), "larger than all may be");
        assert_eq!(ids(&store, now, &["c", "d", "e"]), ["c", "d"]);
    }

    #[test]
    fn age_ends_a_response() {
        let (store, start) = (store(100, usize::MAX, 60), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        store.insert(start, "a", stored("a", 1));
        store.insert(after(30), "b", stored("b", 1));
        assert_eq!(ids(&store, after(59), &["a", "b"]), ["a", "b"]);
        assert_eq!(ids(&store, after(60), &["a", "b"]), ["b"]);
        store.expire(after(90));
        let kept = store.kept.lock().unwrap();
        assert_eq!((kept.bytes, kept.entries.len(), kept.places.len()), (0, 0, 0));
    }

    #[test]
    fn removing_gives_the_room_back() {
        let (store, now) = (store(100, 4000, 60), Instant::now());
        assert!(store.insert(now, "a", stored("a", 3000)));
        assert!(store.remove(now, "a") && !store.remove(now, "a"));
        assert!(store.insert(now, "b", stored("b", 3000)));
        assert_eq!(ids(&store, now, &["a", "b"]), ["b"]);
        assert_eq!(store.kept.lock().unwrap().entries.len(), 1);
    }

    #[test]
    fn a_conversation_outlives_its_first_responses() {
        let (store, now) = (store(1, usize::MAX, 60), Instant::now());
        store.insert(now, "a", stored("a", 1));
        let before = store.get(now, "a").unwrap().conversation();
        let next = StoredResponse {
            input: before.with(Turn::new(vec![message("b-in", "")])),
            ..stored("b", 1)
        };
        store.insert(now, "b", next);
        assert!(store.get(now, "a").is_none());
        let conversation = store.get(now, "b").unwrap().conversation();
        let ids: Vec<&str> = conversation.items().map(Item::id).collect();
        assert_eq!(ids, ["a-in", "a-out", "b-in", "b-out"]);
        assert!(conversation.bytes() > before.bytes());
    }

    #[test]
    fn items_are_found_while_their_response_is_kept() {
        let (store, now) = (store(10, usize::MAX, 60), Instant::now());
        store.insert(now, "a", stored("a", 1));
        assert_eq!(store.item(now, "a-out").unwrap().id(), "a-out");
        assert_eq!(store.item(now, "a-in").unwrap().id(), "a-in");
        assert!(store.item(now, "b").is_none());
        store.remove(now, "a");
        assert!(store.item(now, "a-out").is_none());
    }
}

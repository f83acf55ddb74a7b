//! Responses that run in the background in this process: their events so far, for any number of
//! readers, and a way to end them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::watch;

/// What has happened to a response, and whether more will.
#[derive(Debug, Default)]
struct Events {
    /// Each as it goes over the wire; its place is its sequence number.
    told: Vec<Bytes>,
    ended: bool,
}

/// The events of one response.
#[derive(Debug, Default)]
pub(crate) struct LiveResponse {
    events: Mutex<Events>,
    changed: watch::Sender<()>,
    cancelled: watch::Sender<bool>,
}

impl LiveResponse {
    fn events(&self) -> MutexGuard<'_, Events> {
        // Nothing panics while it holds the lock, so what a poisoned one guards is whole.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds events.
    pub(crate) fn tell(&self, events: impl IntoIterator<Item = Bytes>) {
        self.events().told.extend(events);
        self.changed.send_replace(());
    }

    /// No more events come.
    pub(crate) fn end(&self) {
        self.events().ended = true;
        self.changed.send_replace(());
    }

    /// The events from the one of that number on, and whether no more come.
    pub(crate) fn since(&self, number: usize) -> (Vec<Bytes>, bool) {
        let events = self.events();
        (events.told.get(number..).unwrap_or_default().to_vec(), events.ended)
    }

    /// All events so far, as text.
    pub(crate) fn told(&self) -> Vec<String> {
        let (told, _) = self.since(0);
        told.iter().map(|event| String::from_utf8_lossy(event).into_owned()).collect()
    }

    /// Resolves when something changes after it was subscribed to.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Ends the run.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Resolves when the run is to end.
    pub(crate) async fn cancelled(&self) {
        // The sender is here as long as this is.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

/// All that run here, by the ids of their responses.
#[derive(Debug, Default)]
pub(crate) struct LiveResponses(Mutex<HashMap<String, Arc<LiveResponse>>>);

impl LiveResponses {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveResponse>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events of a response that is to run here.
    pub(crate) fn begin(&self, id: &str) -> Arc<LiveResponse> {
        let live = Arc::new(LiveResponse::default());
        self.all().insert(id.to_owned(), Arc::clone(&live));
        live
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<LiveResponse>> {
        self.all().get(id).cloned()
    }

    /// Forgets a response; its readers still read to the end.
    pub(crate) fn forget(&self, id: &str) {
        self.all().remove(id);
    }
}

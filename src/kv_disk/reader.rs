//! The thread that loads: one file after the other, in the order in which they were asked for.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use super::file::{self, Payload};
use super::shared::{LoadId, Loaded, Shared};
use crate::kv_cache::content::Content;

/// What to load.
pub(super) struct LoadJob {
    pub(super) id: LoadId,
    pub(super) contents: Vec<Content>,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// Why there is no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    /// The file is not there, or can't be read.
    Unread,
    /// It is not what it should be, and was removed.
    Corrupt,
}

/// The thread's state.
pub(super) struct Reader {
    shared: Arc<Shared>,
    jobs: Receiver<LoadJob>,
    loaded: SyncSender<Loaded>,
}

impl Reader {
    pub(super) fn new(
        shared: Arc<Shared>,
        jobs: Receiver<LoadJob>,
        loaded: SyncSender<Loaded>,
    ) -> Self {
        Self { shared, jobs, loaded }
    }

    /// Loads until the store is gone.
    pub(super) fn run(self) {
        while let Ok(LoadJob { id, contents, cancelled }) = self.jobs.recv() {
            let is_wanted = |_: &Content| !cancelled.load(Ordering::Relaxed);
            let mut contents = contents.into_iter().take_while(is_wanted);
            while let Some(content) = contents.next() {
                match self.read(content) {
                    Ok(payload) => {
                        if !self.send(Loaded { id, part: Some((content, payload)) }) {
                            return;
                        }
                    }
                    // Others that were written with it may be corrupt too: once they are removed
                    // better ones are stored.
                    Err(Miss::Corrupt) => {
                        contents.by_ref().for_each(|other| drop(self.read(other)));
                    }
                    Err(Miss::Unread) => break,
                }
            }
            // What was missing or corrupt is told.
            self.shared.report();
            if !self.send(Loaded { id, part: None }) {
                return;
            }
        }
    }

    /// Waits while the engine has as much as it may; false when it is gone.
    fn send(&self, loaded: Loaded) -> bool {
        let sent = self.loaded.send(loaded).is_ok();
        self.shared.wake();
        sent
    }

    /// A file's payload.
    fn read(&self, content: Content) -> Result<Payload, Miss> {
        let (key, config) = (self.shared.key(content), &self.shared.config);
        let path = key.path(&config.root);
        let bytes = match config.files.read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.shared.index().forget(&key);
                // Another process has evicted it.
                if error.kind() != ErrorKind::NotFound {
                    config.metrics.add_error();
                    tracing::warn!(path = %path.display(), %error, "a stored block can't be read");
                }
                return Err(Miss::Unread);
            }
        };
        match file::check(&key, bytes) {
            Ok(payload) => {
                config.metrics.add_loaded(payload.bytes().len());
                Ok(payload)
            }
            Err(fault) => {
                self.shared.index().forget(&key);
                config.metrics.add_corrupt();
                tracing::warn!(path = %path.display(), "a stored block is not used: {fault}");
                // It would be found again and again; if it can't be removed, nothing is lost.
                let _ = config.files.remove(&path);
                Err(Miss::Corrupt)
            }
        }
    }
}

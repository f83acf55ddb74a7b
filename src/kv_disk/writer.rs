//! The thread that stores, evicts, and looks for what other processes did.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use super::file::{HEADER, header};
use super::files::Files;
use super::folder::{ABOUT, FileKey, Found, TEMPORARY, micros, namespaces, scan};
use super::namespace::Namespace;
use super::shared::Shared;
use super::{folder, namespace::About};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;

/// Time between two looks at the folder; more where looking takes long.
const RESCAN: Duration = Duration::from_secs(1);
/// A look takes no more than this share of the thread's time.
const RESCAN_SHARE: u32 = 20;
/// A folder that changed so shortly before a look may have changed again within the tick of its clock.
const TICK: Duration = Duration::from_secs(2);
/// A temporary file that is older was left by a process that was killed.
const ABANDONED: Duration = Duration::from_mins(10);
/// Uses are told to the file system, and so to other processes, so often for each file.
const TOUCH: Duration = Duration::from_mins(1);

/// What the thread is asked to do.
pub(super) enum Job {
    Store { content: Content, payload: Vec<u8> },
    Touch(Vec<BlockHash>),
}

/// The thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    /// Ours alone: processes in containers of their own have equal numbers.
    name: String,
    /// The last write failed; only the first of several failures is told in the log.
    failing: bool,
    /// When each namespace's list of names had last changed at the last look.
    changed: HashMap<Namespace, SystemTime>,
    next_scan: Instant,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, jobs: Receiver<Job>) -> Self {
        let name = format!("{:016x}", rand::random::<u64>());
        let (changed, next_scan) = (HashMap::new(), Instant::now());
        Self { shared, jobs, name, failing: false, changed, next_scan }
    }

    fn files(&self) -> Arc<dyn Files> {
        self.shared.config.files.clone()
    }

    /// Makes the subfolder and looks at what is there.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let config = &self.shared.config;
        let folder = config.root.join(config.namespace.to_string());
        config.files.create_folder(&folder)?;
        write_about(config.files.as_ref(), &folder, &self.name, &config.about)?;
        self.scan()?;
        self.make_room(0);
        self.shared.report();
        Ok(())
    }

    /// Works until the store is gone and all is written.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            match self.jobs.recv_timeout(self.next_scan.saturating_duration_since(now)) {
                Ok(Job::Store { content, payload }) => {
                    self.store(content, &payload);
                    self.shared.dequeue(payload.len());
                }
                Ok(Job::Touch(chain)) => self.touch(&chain),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= self.next_scan {
                if let Err(error) = self.scan() {
                    tracing::debug!(%error, "the folder of --kv-disk can't be listed");
                }
                self.make_room(0);
            }
            self.shared.report();
        }
    }

    fn store(&mut self, content: Content, payload: &[u8]) {
        let (shared, key) = (self.shared.clone(), self.shared.key(content));
        let bytes = (HEADER + payload.len()) as u64;
        if shared.index().contains(&key) {
            return;
        }
        if bytes > shared.config.max_bytes {
            return shared.config.metrics.add_dropped(1);
        }
        self.make_room(bytes);
        match self.write(&key, payload) {
            Ok(()) => {
                let used = micros(SystemTime::now());
                shared.index().insert(Found { key, bytes, used });
                shared.config.metrics.add_stored(payload.len());
                self.failing = false;
            }
            Err(error) => {
                shared.config.metrics.add_error();
                if !self.failing {
                    let path = shared.config.root.display();
                    tracing::warn!(%path, %error, "blocks can't be stored, and are left out");
                }
                self.failing = true;
            }
        }
    }

    /// Writes a file under another name and renames it: whoever sees it sees all of it.
    fn write(&self, key: &FileKey, payload: &[u8]) -> io::Result<()> {
        let config = &self.shared.config;
        let temporary = key.temporary_path(&config.root, &self.name);
        let path = key.path(&config.root);
        let header = header(key, payload);
        let write = || config.files.write(&temporary, [&header, payload]);
        let mut result = write();
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // The subfolder was removed while this process runs.
            let folder = config.root.join(config.namespace.to_string());
            config.files.create_folder(&folder)?;
            write_about(config.files.as_ref(), &folder, &self.name, &config.about)?;
            result = write();
        }
        let result = result.and_then(|()| config.files.rename(&temporary, &path));
        if result.is_err() {
            // What was written of it takes room; it may not exist at all.
            let _ = config.files.remove(&temporary);
        }
        result
    }

    /// Evicts what was not used for longest until so many bytes more fit.
    fn make_room(&self, bytes: u64) {
        let config = &self.shared.config;
        loop {
            let mut index = self.shared.index();
            if index.bytes() + bytes <= config.max_bytes {
                return;
            }
            let Some(oldest) = index.oldest() else { return };
            let evicted = index.forget(&oldest);
            drop(index);
            let path = oldest.path(&config.root);
            match config.files.remove(&path) {
                Ok(()) => config.metrics.add_evicted(evicted.unwrap_or(0)),
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    config.metrics.add_error();
                    tracing::warn!(path = %path.display(), %error, "a block can't be evicted");
                }
            }
        }
    }

    fn touch(&self, chain: &[BlockHash]) {
        let now = micros(SystemTime::now());
        let config = &self.shared.config;
        for (hash, behind) in chain.iter().zip(0..) {
            // The beginning of a chain is what the others are of no use without.
            let used = now - behind;
            for content in [Content::Block(*hash), Content::Snapshot(*hash)] {
                let key = self.shared.key(content);
                let before = self.shared.index().touch(&key, used);
                let told = |before: u64| now.saturating_sub(before) < micros_of(TOUCH);
                if before.is_some_and(|before| !told(before)) {
                    // Without it other processes, and the next one, only know less.
                    let _ = config.files.touch(&key.path(&config.root), folder::time(used));
                }
            }
        }
    }

    /// Looks at what is in the folder, and removes what killed processes left.
    fn scan(&mut self) -> io::Result<()> {
        let began = Instant::now();
        self.next_scan = began + RESCAN;
        let (files, shared) = (self.files(), self.shared.clone());
        let root = &shared.config.root;
        let all = namespaces(files.as_ref(), root)?;
        let (mut looked, mut found) = (HashSet::new(), HashMap::new());
        for namespace in &all {
            let folder = root.join(namespace.to_string());
            let changed = files.modified(&folder)?;
            if self.changed.get(namespace) == Some(&changed) {
                continue;
            }
            let settled = changed.elapsed().is_ok_and(|age| age > TICK);
            let scan = scan(files.as_ref(), root, *namespace)?;
            found.extend(scan.found.into_iter().map(|found| (found.key, found)));
            looked.insert(*namespace);
            let abandoned = scan
                .temporary
                .iter()
                .filter(|entry| entry.modified.elapsed().is_ok_and(|age| age > ABANDONED));
            for entry in abandoned {
                let _ = files.remove(&folder.join(&entry.name));
            }
            if settled {
                self.changed.insert(*namespace, changed);
            } else {
                self.changed.remove(namespace);
            }
        }
        self.changed.retain(|namespace, _| all.contains(namespace));
        // Those that are as they were stay known; those that are gone have nothing any more.
        let unchanged = self.changed.keys().filter(|namespace| !looked.contains(namespace));
        shared.index().replace(&unchanged.copied().collect(), &found);
        self.next_scan = Instant::now() + RESCAN.max(began.elapsed() * RESCAN_SHARE);
        Ok(())
    }
}

fn micros_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Writes what a namespace stands for, unless it is there.
fn write_about(files: &dyn Files, folder: &Path, writer: &str, about: &About) -> io::Result<()> {
    let path = folder.join(ABOUT);
    if files.read(&path).is_ok() {
        return Ok(());
    }
    let text = serde_json::to_vec_pretty(about)?;
    let temporary = folder.join(format!("{ABOUT}.{writer}.{TEMPORARY}"));
    files.write(&temporary, [&text, b"\n"])?;
    files.rename(&temporary, &path)
}

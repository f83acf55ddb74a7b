//! Where files lie, and what is in the folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::files::{Entry, Files};
use super::namespace::{Namespace, from_hex, hex};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;

/// The file that says what a namespace stands for.
pub(super) const ABOUT: &str = "about.json";
/// The ending of files that are being written.
pub(super) const TEMPORARY: &str = "tmp";

/// One file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Its subfolder.
    pub namespace: Namespace,
    /// What it holds.
    pub content: Content,
}

impl FileKey {
    /// The name in the subfolder.
    fn name(&self) -> String {
        let ending = match self.content {
            Content::Block(_) => "block",
            Content::Snapshot(_) => "state",
        };
        format!("{}.{ending}", hex(self.content.hash().bytes()))
    }

    /// The key of a name in a subfolder, if it is one.
    fn of(namespace: Namespace, name: &str) -> Option<Self> {
        let (digits, ending) = name.split_once('.')?;
        let hash = BlockHash::from_bytes(from_hex(digits)?);
        let content = match ending {
            "block" => Content::Block(hash),
            "state" => Content::Snapshot(hash),
            _ => return None,
        };
        Some(Self { namespace, content })
    }

    /// Where the file lies.
    pub(super) fn path(&self, root: &Path) -> PathBuf {
        root.join(self.namespace.to_string()).join(self.name())
    }

    /// Where it lies until it is complete; `writer` is the name of who writes it.
    pub(super) fn temporary_path(&self, root: &Path, writer: &str) -> PathBuf {
        let name = format!("{}.{writer}.{TEMPORARY}", self.name());
        root.join(self.namespace.to_string()).join(name)
    }
}

/// A file that a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) key: FileKey,
    pub(super) bytes: u64,
    /// When it was last used, in microseconds since 1970.
    pub(super) used: u64,
}

/// What is in a subfolder.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    pub(super) found: Vec<Found>,
    /// Files that were not complete, or whose process ended before they were.
    pub(super) temporary: Vec<Entry>,
    /// Names of entries that are not ours.
    pub(super) foreign: Vec<String>,
}

/// The subfolders that are namespaces.
pub(super) fn namespaces(files: &dyn Files, root: &Path) -> io::Result<Vec<Namespace>> {
    let folders = files.list(root)?.into_iter().filter(|entry| entry.is_folder);
    let mut namespaces: Vec<Namespace> =
        folders.filter_map(|entry| from_hex(&entry.name)).map(Namespace::from_bytes).collect();
    namespaces.sort_unstable();
    Ok(namespaces)
}

/// The files of a namespace.
pub(super) fn scan(files: &dyn Files, root: &Path, namespace: Namespace) -> io::Result<Scan> {
    let mut scan = Scan::default();
    for entry in files.list(&root.join(namespace.to_string()))? {
        let key = FileKey::of(namespace, &entry.name).filter(|_| !entry.is_folder);
        if let Some(key) = key {
            let used = micros(entry.modified);
            scan.found.push(Found { key, bytes: entry.bytes, used });
        } else if is_temporary(&entry) {
            scan.temporary.push(entry);
        } else if entry.name != ABOUT {
            scan.foreign.push(entry.name);
        }
    }
    Ok(scan)
}

/// Whether an entry is a file of ours that was not complete.
fn is_temporary(entry: &Entry) -> bool {
    let parts: Vec<&str> = entry.name.split('.').collect();
    let ours = |first: &str| from_hex(first).is_some() || first == "about";
    !entry.is_folder && parts.len() == 4 && parts[3] == TEMPORARY && ours(parts[0])
}

/// Microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time that lies so many microseconds behind 1970.
pub(super) fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

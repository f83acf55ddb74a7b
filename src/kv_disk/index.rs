//! What is in the folder, as far as this process knows, in order of use. Pure: reads no file.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::folder::{FileKey, Found};
use super::namespace::Namespace;
use crate::kv_cache::content::Content;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    bytes: u64,
    // The time of its last use, in microseconds; with the key that of `by_use`.
    used: u64,
}

/// The files of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Index {
    known: HashMap<FileKey, Known>,
    by_use: BTreeSet<(u64, FileKey)>,
    bytes: u64,
    // The namespace whose changes are noted, and those since they were last taken.
    watched: Option<Namespace>,
    changes: Vec<(Content, bool)>,
}

impl Index {
    /// An empty index that notes what comes to this namespace and what goes.
    pub(super) fn watching(watched: Option<Namespace>) -> Self {
        Self { watched, ..Self::default() }
    }

    /// What has come to the watched namespace (`true`) or gone from it since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<(Content, bool)> {
        std::mem::take(&mut self.changes)
    }

    fn note(&mut self, key: &FileKey, is_there: bool) {
        if self.watched == Some(key.namespace) {
            self.changes.push((key.content, is_there));
        }
    }

    pub(super) fn contains(&self, key: &FileKey) -> bool {
        self.known.contains_key(key)
    }

    /// Files.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a file, or says again how large it is; it was used no earlier than `used`.
    pub(super) fn insert(&mut self, Found { key, bytes, used }: Found) {
        let is_known = |known: &Known| known.bytes == bytes && known.used >= used;
        if self.known.get(&key).is_some_and(is_known) {
            return;
        }
        let before = self.remove(&key);
        if before.is_none() {
            self.note(&key, true);
        }
        let used = used.max(before.map_or(0, |known| known.used));
        self.bytes += bytes;
        self.known.insert(key, Known { bytes, used });
        self.by_use.insert((used, key));
    }

    /// Forgets a file; returns its bytes.
    pub(super) fn forget(&mut self, key: &FileKey) -> Option<u64> {
        let known = self.remove(key)?;
        self.note(key, false);
        Some(known.bytes)
    }

    /// Marks a file as used. Returns when it was used before, if it is known.
    pub(super) fn touch(&mut self, key: &FileKey, used: u64) -> Option<u64> {
        let known = *self.known.get(key)?;
        self.insert(Found { key: *key, bytes: known.bytes, used });
        Some(known.used)
    }

    /// The file that was not used for longest.
    pub(super) fn oldest(&self) -> Option<FileKey> {
        self.by_use.first().map(|(_, key)| *key)
    }

    /// Replaces what is known of all namespaces but the `unchanged` ones by what was found.
    pub(super) fn replace(
        &mut self,
        unchanged: &HashSet<Namespace>,
        found: &HashMap<FileKey, Found>,
    ) {
        let gone =
            |key: &&FileKey| !unchanged.contains(&key.namespace) && !found.contains_key(*key);
        let gone: Vec<FileKey> = self.known.keys().filter(gone).copied().collect();
        for key in gone {
            self.forget(&key);
        }
        for found in found.values() {
            self.insert(*found);
        }
    }

    fn remove(&mut self, key: &FileKey) -> Option<Known> {
        let known = self.known.remove(key)?;
        self.by_use.remove(&(known.used, *key));
        self.bytes -= known.bytes;
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_cache::block_hash::BlockHash;

    fn found(number: u8, bytes: u64, used: u64) -> Found {
        let namespace = Namespace::from_bytes([number % 2; 16]);
        let content = Content::Block(BlockHash::from_bytes([number; 16]));
        Found { key: FileKey { namespace, content }, bytes, used }
    }

    #[test]
    fn the_least_recently_used_is_the_oldest_and_bytes_add_up() {
        let mut index = Index::default();
        let files = [found(1, 10, 5), found(2, 20, 3), found(3, 30, 4)];
        for file in files {
            index.insert(file);
        }
        assert_eq!((index.len(), index.bytes()), (3, 60));
        assert_eq!(index.oldest(), Some(files[1].key));
        assert_eq!(index.touch(&files[1].key, 9), Some(3));
        assert_eq!(index.oldest(), Some(files[2].key));
        // What a scan saw earlier does not undo a later use.
        index.insert(found(2, 20, 1));
        assert_eq!(index.forget(&files[2].key), Some(30));
        assert_eq!(index.forget(&files[2].key), None);
        assert_eq!(index.oldest(), Some(files[0].key));
        assert_eq!((index.len(), index.bytes()), (2, 30));
        assert_eq!(index.touch(&files[2].key, 1), None);
    }

    #[test]
    fn changes_of_the_watched_namespace_are_told_once() {
        let mut index = Index::watching(Some(Namespace::from_bytes([1; 16])));
        for file in [found(1, 1, 1), found(2, 2, 2), found(3, 3, 3), found(3, 3, 4)] {
            index.insert(file);
        }
        index.touch(&found(1, 1, 1).key, 9);
        let content = |number| found(number, 0, 0).key.content;
        assert_eq!(index.take_changes(), [(content(1), true), (content(3), true)]);
        index.forget(&found(3, 0, 0).key);
        index.forget(&found(3, 0, 0).key);
        index.replace(&HashSet::new(), &HashMap::new());
        assert_eq!(index.take_changes(), [(content(3), false), (content(1), false)]);
    }

    #[test]
    fn a_scan_leaves_what_is_unchanged() {
        let mut index = Index::default();
        for file in [found(1, 1, 1), found(2, 2, 2), found(3, 3, 3)] {
            index.insert(file);
        }
        let even = HashSet::from([Namespace::from_bytes([0; 16])]);
        let there = [found(3, 3, 1), found(5, 5, 5)];
        index.replace(&even, &there.into_iter().map(|file| (file.key, file)).collect());
        let has = |number| index.contains(&found(number, 0, 0).key);
        assert_eq!([1, 2, 3, 5].map(has), [false, true, true, true]);
        assert_eq!(index.bytes(), 10);
    }
}

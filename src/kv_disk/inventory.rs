//! What people ask of the folder: what is in it, whether it is whole, and to empty it.

use std::io;
use std::path::Path;

use super::file;
use super::files::{Disk, Files};
use super::folder::{ABOUT, namespaces, scan, time};
use super::namespace::{About, Namespace};
use crate::kv_cache::content::Content;

/// What a namespace holds.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The namespace.
    pub namespace: Namespace,
    /// What it stands for, where the file that says so can be read.
    pub about: Option<About>,
    /// Blocks.
    pub blocks: usize,
    /// Snapshots of recurrent states.
    pub snapshots: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// When one of them was last used.
    pub used: Option<std::time::SystemTime>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files that are what their names say.
    pub good: usize,
    /// Paths of the others, with what is wrong with each.
    pub bad: Vec<(String, String)>,
    /// Files that are being written, or were when a process was killed.
    pub temporary: usize,
    /// Entries that no program of ours has made.
    pub foreign: Vec<String>,
}

/// What all namespaces of a folder hold.
pub fn list(root: &Path) -> io::Result<Vec<Holding>> {
    let holding = |namespace| {
        let scan = scan(&Disk, root, namespace)?;
        let about = Disk.read(&root.join(namespace.to_string()).join(ABOUT)).ok();
        let is_block = |content| matches!(content, Content::Block(_));
        let blocks = scan.found.iter().filter(|found| is_block(found.key.content)).count();
        Ok(Holding {
            namespace,
            about: about.and_then(|text| serde_json::from_slice(&text).ok()),
            blocks,
            snapshots: scan.found.len() - blocks,
            bytes: scan.found.iter().map(|found| found.bytes).sum(),
            used: scan.found.iter().map(|found| time(found.used)).max(),
        })
    };
    namespaces(&Disk, root)?.into_iter().map(holding).collect()
}

/// Reads all files of a folder and checks them.
pub fn verify(root: &Path) -> io::Result<Verified> {
    let mut verified = Verified::default();
    for namespace in namespaces(&Disk, root)? {
        let scan = scan(&Disk, root, namespace)?;
        verified.temporary += scan.temporary.len();
        let foreign = scan.foreign.iter().map(|name| format!("{namespace}/{name}"));
        verified.foreign.extend(foreign);
        for found in scan.found {
            let path = found.key.path(root);
            let checked = match Disk.read(&path) {
                // It was evicted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(error.to_string()),
                Ok(bytes) => file::check(&found.key, bytes).map_err(|fault| fault.to_string()),
            };
            match checked {
                Ok(_) => verified.good += 1,
                Err(reason) => verified.bad.push((path.display().to_string(), reason)),
            }
        }
    }
    Ok(verified)
}

/// Removes what these namespaces hold, and nothing that is not ours. Returns files and bytes.
pub fn remove(root: &Path, namespaces: &[Namespace]) -> io::Result<(usize, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for namespace in namespaces {
        let folder = root.join(namespace.to_string());
        let scan = scan(&Disk, root, *namespace)?;
        let own = scan.found.iter().map(|found| (found.key.path(root), found.bytes));
        let temporary = scan.temporary.iter().map(|entry| (folder.join(&entry.name), entry.bytes));
        for (path, size) in own.chain(temporary) {
            remove_file(&path)?;
            (count, bytes) = (count + 1, bytes + size);
        }
        remove_file(&folder.join(ABOUT))?;
        if scan.foreign.is_empty() {
            // A server that runs may have stored something meanwhile.
            let _ = Disk.remove_folder(&folder);
        }
    }
    Ok((count, bytes))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match Disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

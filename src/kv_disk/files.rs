//! How the folder is read and written: the file system, or what a test puts in its place.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, where that is text.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Bytes of a file.
    pub bytes: u64,
    /// When it was last changed, or marked as used.
    pub modified: SystemTime,
}

/// The operations on files that the tier needs.
pub trait Files: Send + Sync {
    /// The content of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Writes a new file of two parts.
    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()>;
    /// Gives a file another name in the same folder, in place of one that may be there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder and those above it, unless they exist.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// What is in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;
    /// When a folder's list of names last changed.
    fn modified(&self, folder: &Path) -> io::Result<SystemTime>;
    /// Marks a file as used.
    fn touch(&self, path: &Path, used: SystemTime) -> io::Result<()>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        parts.into_iter().try_for_each(|part| file.write_all(part))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Another process may have removed it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (is_folder, bytes) = (metadata.is_dir(), metadata.len());
            entries.push(Entry { name, is_folder, bytes, modified: metadata.modified()? });
        }
        Ok(entries)
    }

    fn modified(&self, folder: &Path) -> io::Result<SystemTime> {
        fs::metadata(folder)?.modified()
    }

    fn touch(&self, path: &Path, used: SystemTime) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.set_modified(used)
    }
}

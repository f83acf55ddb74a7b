//! Files in host memory: the same tier without a disk, between the memory of a GPU and the folder.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::files::{Entry, Files};

struct Stored {
    bytes: Arc<Vec<u8>>,
    modified: SystemTime,
}

/// One folder and its subfolders.
struct Folders {
    files: HashMap<PathBuf, Stored>,
    /// When each folder's list of names last changed.
    folders: HashMap<PathBuf, SystemTime>,
}

impl Folders {
    fn stored(&mut self, path: &Path) -> io::Result<&mut Stored> {
        self.files.get_mut(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Notes that a name has come to the folder of this path, or gone from it.
    fn changed(&mut self, path: &Path) -> io::Result<()> {
        let folder = path.parent().and_then(|folder| self.folders.get_mut(folder));
        *folder.ok_or(ErrorKind::NotFound)? = SystemTime::now();
        Ok(())
    }
}

/// What is written is kept in memory, and gone with the last of who uses it.
pub struct HostMemory(Mutex<Folders>);

impl HostMemory {
    /// An empty folder of this name.
    pub fn new(root: &Path) -> Self {
        let folders = HashMap::from([(root.to_owned(), SystemTime::now())]);
        Self(Mutex::new(Folders { files: HashMap::new(), folders }))
    }

    // Nothing is held that could be half changed.
    fn lock(&self) -> MutexGuard<'_, Folders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for HostMemory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Copied without the lock: the engine's end never waits for a copy.
        let bytes = self.lock().stored(path)?.bytes.clone();
        Ok(bytes.to_vec())
    }

    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let needed = parts.iter().map(|part| part.len()).sum();
        bytes.try_reserve_exact(needed).map_err(|_| ErrorKind::OutOfMemory)?;
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let mut folders = self.lock();
        if folders.files.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        folders.changed(path)?;
        let stored = Stored { bytes: Arc::new(bytes), modified: SystemTime::now() };
        folders.files.insert(path.to_owned(), stored);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut folders = self.lock();
        let stored = folders.files.remove(from).ok_or(ErrorKind::NotFound)?;
        folders.changed(to)?;
        folders.files.insert(to.to_owned(), stored);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut folders = self.lock();
        folders.files.remove(path).ok_or(ErrorKind::NotFound)?;
        folders.changed(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut folders = self.lock();
        if folders.files.keys().any(|file| file.parent() == Some(path)) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        folders.folders.remove(path).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.lock().folders.entry(path.to_owned()).or_insert_with(SystemTime::now);
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let folders = self.lock();
        let inside = |path: &Path| path.parent() == Some(folder);
        let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        let files = folders.files.iter().filter(|(path, _)| inside(path));
        let files = files.filter_map(|(path, stored)| {
            let (bytes, modified) = (stored.bytes.len() as u64, stored.modified);
            Some(Entry { name: name(path)?, is_folder: false, bytes, modified })
        });
        let below = folders.folders.iter().filter(|(path, _)| inside(path));
        let below = below.filter_map(|(path, modified)| {
            Some(Entry { name: name(path)?, is_folder: true, bytes: 0, modified: *modified })
        });
        Ok(files.chain(below).collect())
    }

    fn modified(&self, folder: &Path) -> io::Result<SystemTime> {
        self.lock().folders.get(folder).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn touch(&self, path: &Path, used: SystemTime) -> io::Result<()> {
        self.lock().stored(path)?.modified = used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Disk;
    use super::*;

    /// What can be seen of a folder after these operations.
    fn seen(files: &dyn Files, root: &Path) -> Vec<String> {
        let [folder, other] = ["a", "b"].map(|name| root.join(name));
        let [one, two] = ["one", "two"].map(|name| folder.join(name));
        let mut seen = Vec::new();
        let mut told = |result: io::Result<String>| {
            seen.push(result.unwrap_or_else(|error| error.kind().to_string()));
        };
        let done = |result: io::Result<()>| result.map(|()| "done".to_owned());
        told(done(files.write(&one, [b"x", b""])));
        told(done(files.create_folder(&folder)));
        told(done(files.create_folder(&other)));
        told(done(files.write(&one, [b"first ", b"part"])));
        told(done(files.write(&one, [b"again", b""])));
        told(files.read(&one).map(|bytes| String::from_utf8(bytes).unwrap()));
        told(done(files.remove_folder(&folder)));
        told(done(files.rename(&one, &two)));
        told(done(files.rename(&one, &two)));
        told(done(files.remove(&one)));
        told(files.read(&one).map(|_| String::new()));
        told(done(files.touch(&one, SystemTime::now())));
        let hour = SystemTime::now() - std::time::Duration::from_hours(1);
        told(done(files.touch(&two, hour)));
        for folder in [root, &folder, &other] {
            let mut entries = files.list(folder).unwrap();
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            let sizes = entries.iter().map(|entry| {
                let Entry { name, is_folder, bytes, modified } = entry;
                if *is_folder {
                    name.clone()
                } else {
                    format!("{name} {bytes} {}", *modified == hour)
                }
            });
            told(Ok(sizes.collect::<Vec<_>>().join(", ")));
        }
        let before = files.modified(&folder).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        told(done(files.remove(&two)));
        assert!(files.modified(&folder).unwrap() > before);
        told(done(files.remove_folder(&folder)));
        told(files.modified(&folder).map(|_| String::new()));
        seen
    }

    #[test]
    fn it_answers_as_the_file_system_does() {
        let folder = tempfile::tempdir().unwrap();
        let memory = HostMemory::new(folder.path());
        assert_eq!(seen(&memory, folder.path()), seen(&Disk, folder.path()));
    }
}

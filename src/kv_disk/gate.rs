//! A file system for tests, which answers when the test says so.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::SystemTime;

use super::files::{Disk, Entry, Files};

/// The file system, whose reads and writes wait while it is closed and whose writes fail while it is full.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    pub(crate) full: AtomicBool,
}

impl Gate {
    pub(crate) fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }
}

impl Files for Gate {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.pass();
        Disk.read(path)
    }
    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
        self.pass();
        if self.full.load(Ordering::Relaxed) {
            Disk.write(path, [parts[0], &parts[1][..parts[1].len() / 2]])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Disk.write(path, parts)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        Disk.remove_folder(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Disk.create_folder(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        Disk.list(folder)
    }
    fn modified(&self, folder: &Path) -> io::Result<SystemTime> {
        Disk.modified(folder)
    }
    fn touch(&self, path: &Path, used: SystemTime) -> io::Result<()> {
        Disk.touch(path, used)
    }
}

//! One file's bytes: memory-mapped from disk, or embedded in the binary.
//!
//! Refuses empty files and git-lfs pointers, since neither ever holds weights or a vocabulary.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::WeightError;

const LFS_POINTER_START: &[u8] = b"version https://git-lfs.github.com/spec/";

/// A file that is read by slices.
#[derive(Debug)]
pub(crate) struct FileBytes {
    path: PathBuf,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Mapped(Mmap),
    Embedded(&'static [u8]),
}

impl FileBytes {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightError> {
        let file = File::open(path).map_err(|source| WeightError::io(path, source))?;
        let metadata = file.metadata().map_err(|source| WeightError::io(path, source))?;
        if !metadata.is_file() {
            return Err(WeightError::corrupt(path, "not a regular file"));
        }
        if metadata.len() == 0 {
            return Err(WeightError::corrupt(path, "the file is empty; download it again"));
        }
        // SAFETY: the mapping is private and read-only. Soundness asks that nobody shortens or
        // rewrites the file while it is mapped: checkpoints are written once (the hub cache even
        // renames finished files into place), and the mapping lives only while a model loads.
        let map = unsafe { Mmap::map(&file) }.map_err(|source| WeightError::io(path, source))?;
        let bytes = Self { path: path.to_owned(), content: Content::Mapped(map) };
        bytes.refuse_lfs_pointer()?;
        Ok(bytes)
    }

    /// Bytes that are part of the binary; `name` is for messages.
    pub(crate) fn embedded(name: &Path, bytes: &'static [u8]) -> Self {
        Self { path: name.to_owned(), content: Content::Embedded(bytes) }
    }

    /// The bytes of the whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(map) => map,
            Content::Embedded(bytes) => bytes,
        }
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the physical memory of `range` back to the system. A later read of the range gets the
    /// same bytes from the page cache.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Content::Mapped(map) = &self.content {
            // SAFETY: for a private file mapping that nobody writes to, "don't need" only drops
            // pages that the next read faults in again from the file; no borrowed byte changes.
            let advised = unsafe {
                map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    range.start,
                    range.len(),
                )
            };
            if let Err(error) = advised {
                tracing::debug!(path = %self.path.display(), %error, "pages were not released");
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    fn refuse_lfs_pointer(&self) -> Result<(), WeightError> {
        let bytes = self.bytes();
        if !bytes.starts_with(LFS_POINTER_START) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]);
        let size = text.lines().find_map(|line| line.strip_prefix("size "));
        let size = size.map_or(String::new(), |size| format!(" of {size} bytes"));
        Err(WeightError::corrupt(
            &self.path,
            format!(
                "this is a git-lfs pointer, not the file{size} it stands for; run `git lfs pull` \
                 in the folder, or `sconce download` the model"
            ),
        ))
    }
}

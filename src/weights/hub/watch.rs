//! How far a download is, for those who don't look at its bars.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::ProgressBar;

/// The files of downloads, as they come. Clones see the same files.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Vec<(String, ProgressBar)>>>);

/// How much of a file is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProgress {
    /// The file's name in its repository.
    pub file: String,
    /// Bytes that are here.
    pub done: u64,
    /// All bytes of the file.
    pub total: u64,
}

impl Watch {
    /// The files so far, in the order in which their transfers began.
    pub fn files(&self) -> Vec<FileProgress> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = |(file, bar): &(String, ProgressBar)| FileProgress {
            file: file.clone(),
            done: bar.position(),
            total: bar.length().unwrap_or_default(),
        };
        files.iter().map(progress).collect()
    }

    #[cfg(feature = "hub")]
    pub(crate) fn add(&self, file: &str, bar: ProgressBar) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((file.to_owned(), bar));
    }
}

/// Who watches makes no difference to what is downloaded.
impl PartialEq for Watch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Watch {}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files()).finish()
    }
}

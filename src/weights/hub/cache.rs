//! The cache that all programs with a hub client share: blobs by hash, snapshots of links.
//!
//! hf-hub shows no path of its layout, and a build without it reads the cache too, so the few paths
//! are spelled here.
//!
//! Layout: <https://huggingface.co/docs/huggingface_hub/guides/manage-cache>.
//!
//! ```text
//! models--org--name/refs/main                     the commit that `main` was last seen at
//! models--org--name/snapshots/<commit>/<path>     a link to
//! models--org--name/blobs/<hash>
//! ```

use std::path::{Path, PathBuf};

use crate::folder::ModelFolder;
use crate::lora::files as lora;
use crate::model_ref::HubFile;
use crate::safetensors;

use super::selection::{self, Selection, WeightFiles};

/// Deepest folder below a snapshot that is looked into.
const MAX_DEPTH: usize = 8;

/// One repository's part of the cache.
#[derive(Clone, Debug)]
pub(crate) struct RepoCache {
    repository: String,
    root: PathBuf,
    #[cfg(feature = "hub")]
    locks: PathBuf,
}

/// Whether a revision is a whole commit hash, which always means the same files.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, repository: &str) -> Self {
        let folder = format!("models--{}", repository.replace('/', "--"));
        Self {
            repository: repository.to_owned(),
            root: cache.join(&folder),
            #[cfg(feature = "hub")]
            locks: cache.join(".locks").join(&folder),
        }
    }

    /// The folder of a commit's files.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// The folder or GGUF file of a model that is here as a whole, or what is missing.
    pub(crate) fn find(&self, revision: &str, file: Option<&HubFile>) -> Result<PathBuf, String> {
        let commit = if is_commit(revision) {
            revision.to_owned()
        } else {
            self.commit(revision).ok_or_else(|| format!("revision `{revision}`"))?
        };
        let snapshot = self.snapshot(&commit);
        let mut files = Vec::new();
        list(&snapshot, "", MAX_DEPTH, &mut files);
        if files.is_empty() {
            return Err(format!("commit {commit} of revision `{revision}`"));
        }
        let selection = selection::select(&self.repository, &files, file)
            .map_err(|error| format!("a model (of commit {commit}, {error})"))?;
        match selection {
            Selection::Gguf(parts) => Ok(snapshot.join(&parts[0])),
            Selection::Checkpoint { small, weights } => {
                let wanted =
                    if file == Some(&HubFile::Adapter) { lora::CONFIG } else { "config.json" };
                if !small.iter().any(|name| name == wanted) {
                    return Err(wanted.to_owned());
                }
                if weights == WeightFiles::Indexed {
                    let folder = ModelFolder::Disk(snapshot.clone());
                    let shards = safetensors::shard_names(&folder).map_err(|e| e.to_string())?;
                    if let Some(missing) = shards.into_iter().find(|name| !files.contains(name)) {
                        return Err(missing);
                    }
                }
                Ok(snapshot)
            }
        }
    }

    /// The commit that a revision was last seen at.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join("refs").join(revision)).ok()?;
        Some(text.trim().to_owned()).filter(|commit| is_plain(commit))
    }
}

/// Whether `name` is one part of a path that leads nowhere else.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

/// Files below `folder` that can be opened, as paths with `/`.
pub(crate) fn list(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = format!("{prefix}{name}");
        // `is_file` follows links, so a link to a missing blob is not counted.
        if path.is_file() {
            files.push(name);
        } else if path.is_dir() && depth > 0 {
            list(&path, &format!("{name}/"), depth - 1, files);
        }
    }
}

#[cfg(feature = "hub")]
mod writing {
    use std::fs::File;
    use std::io;
    use std::path::{Path, PathBuf};

    use crate::hub::cache::RepoCache;

    impl RepoCache {
        /// The path of the content with this hash.
        pub(crate) fn blob(&self, hash: &str) -> PathBuf {
            self.root.join("blobs").join(hash)
        }

        /// Where that content grows.
        pub(crate) fn incomplete(&self, hash: &str) -> PathBuf {
            self.root.join("blobs").join(format!("{hash}.incomplete"))
        }

        /// Remembers what commit a revision stands for.
        pub(crate) fn write_ref(&self, revision: &str, commit: &str) -> io::Result<()> {
            let path = self.root.join("refs").join(revision);
            create_parent(&path)?;
            std::fs::write(path, commit)
        }

        /// Makes `file` of `commit` stand for a blob.
        pub(crate) fn link(&self, commit: &str, file: &str, hash: &str) -> io::Result<()> {
            let pointer = self.snapshot(commit).join(file);
            create_parent(&pointer)?;
            match std::fs::remove_file(&pointer) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Relative, so that the cache can be moved: out of the file's folders, out of
            // `snapshots/<commit>`, into `blobs`.
            let up = "../".repeat(file.split('/').count() + 1);
            #[cfg(unix)]
            return std::os::unix::fs::symlink(format!("{up}blobs/{hash}"), &pointer);
            #[cfg(not(unix))]
            {
                let _ = up;
                std::fs::hard_link(self.blob(hash), &pointer)
                    .or_else(|_| std::fs::copy(self.blob(hash), &pointer).map(|_| ()))
            }
        }

        /// Waits until no other process downloads this content; dropping the file ends the claim.
        pub(crate) fn lock(&self, hash: &str) -> io::Result<File> {
            let path = self.locks.join(format!("{hash}.lock"));
            create_parent(&path)?;
            let file = File::create(&path)?;
            if file.try_lock().is_err() {
                tracing::info!(path = %path.display(), "waiting for another download of this file");
                file.lock()?;
            }
            Ok(file)
        }
    }

    fn create_parent(path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)
    }
}

//! What the hub's cache has: models by the ids that load them, and their removal.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::DEFAULT_REVISION;
use super::cache::{RepoCache, list};
use crate::gguf::split;
use crate::model_ref::{HubFile, HubRef, has_gguf_ending};

/// Deepest folder below a snapshot that is looked into.
const MAX_DEPTH: usize = 8;
/// How names of GGUF files begin that are parts of a model, and no model by themselves.
const PARTS_OF_MODELS: [&str; 2] = ["mmproj", "mtp-"];
/// How names of quantizations begin.
const QUANTIZATIONS: [&str; 8] = ["q", "iq", "f16", "f32", "bf16", "tq", "mxfp4", "nvfp4"];

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// What `--model` takes for it: `org/name`, or `org/name:Q4_K_M`.
    pub id: String,
    /// Its folder, or its GGUF file.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// When its newest file was written.
    pub modified: Option<SystemTime>,
}

/// All models of the cache that are there as a whole, by id.
pub fn models(cache: &Path) -> Vec<CachedModel> {
    let Ok(entries) = std::fs::read_dir(cache) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let repositories: BTreeSet<String> = names
        .filter_map(|name| Some(name.strip_prefix("models--")?.replacen("--", "/", 1)))
        .collect();
    repositories.iter().flat_map(|repository| models_of(cache, repository)).collect()
}

fn models_of(cache: &Path, repository: &str) -> Vec<CachedModel> {
    let repo = RepoCache::new(cache, repository);
    let find = |file: Option<&HubFile>| repo.find(DEFAULT_REVISION, file).ok();
    let Some(commit) = repo.commit(DEFAULT_REVISION) else { return Vec::new() };
    let snapshot = repo.snapshot(&commit);
    let mut files = Vec::new();
    list(&snapshot, "", MAX_DEPTH, &mut files);
    let mut models = Vec::new();
    if let Some(path) =
        find(None).filter(|path| path.is_dir() && files.iter().any(|file| is_weights(file)))
    {
        models.push(model(repository.to_owned(), path, &snapshot, &files));
    }
    for file in files.iter().filter(|file| has_gguf_ending(file)) {
        let base = file.rsplit('/').next().unwrap_or(file);
        let parts = split::parts(file).unwrap_or_else(|| vec![file.clone()]);
        let is_part = PARTS_OF_MODELS.iter().any(|begin| base.starts_with(begin));
        if is_part || parts[0] != *file || parts.iter().any(|part| !files.contains(part)) {
            continue;
        }
        let path = snapshot.join(file);
        let tag = quantization(base)
            .map(|tag| HubFile::Quantization(tag.to_owned()))
            .filter(|tag| find(Some(tag)).as_ref() == Some(&path));
        let file = tag.unwrap_or_else(|| HubFile::Path(file.clone()));
        let reference =
            HubRef { repository: repository.to_owned(), revision: None, file: Some(file) };
        models.push(model(reference.to_string(), path, &snapshot, &parts));
    }
    models
}

fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors")
}

fn model(id: String, path: PathBuf, snapshot: &Path, files: &[String]) -> CachedModel {
    let of_files = files.iter().filter_map(|file| snapshot.join(file).metadata().ok());
    let (mut bytes, mut modified) = (0, None);
    for metadata in of_files {
        bytes += metadata.len();
        modified = modified.max(metadata.modified().ok());
    }
    CachedModel { id, path, bytes, modified }
}

/// The quantization in a file's name, such as `Q4_K_M`.
fn quantization(file: &str) -> Option<&str> {
    let stem = file.get(..file.len() - ".gguf".len())?;
    // Parts are counted behind it.
    let stem = stem.find("-00001-of-").map_or(stem, |at| &stem[..at]);
    let tag = stem.rsplit(['-', '.']).next()?;
    let lower = tag.to_ascii_lowercase();
    let known = QUANTIZATIONS.iter().any(|begin| lower.starts_with(begin));
    (known && lower.len() > 1).then_some(tag)
}

/// Removes a model: the whole repository of a checkpoint, or the files of one GGUF model and, with the
/// last of them, its repository. Gives the bytes that are free then.
///
/// # Errors
/// The cache has no such model, or a file can't be removed.
pub fn remove(cache: &Path, id: &str) -> io::Result<u64> {
    let all = models(cache);
    let found = all.iter().find(|model| model.id == id);
    let found = found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the hub's cache has no model {id}"))
    })?;
    let repository = |id: &str| id.split(':').next().unwrap_or_default().to_owned();
    let of = repository(id);
    let others = all.iter().filter(|model| model.id != id && repository(&model.id) == of);
    let folder = cache.join(format!("models--{}", of.replace('/', "--")));
    if others.count() == 0 || found.path.is_dir() {
        std::fs::remove_dir_all(folder)?;
        return Ok(found.bytes);
    }
    let name = found.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parts = split::parts(name).unwrap_or_else(|| vec![name.to_owned()]);
    for part in parts {
        let link = found.path.with_file_name(part);
        let blob = link.canonicalize();
        std::fs::remove_file(&link)?;
        if let Ok(blob) = blob.and_then(|blob| Ok((blob, folder.canonicalize()?)))
            && blob.0.starts_with(&blob.1)
            && blob.0 != link
        {
            // A copy in the place of a link is gone with it.
            let _ = std::fs::remove_file(blob.0);
        }
    }
    Ok(found.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, bytes: usize) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; bytes]).unwrap();
    }

    fn cached(cache: &Path, repository: &str, files: &[(&str, usize)]) {
        let root = cache.join(format!("models--{}", repository.replace('/', "--")));
        let commit = "c".repeat(40);
        put(&root.join("refs/main"), 0);
        std::fs::write(root.join("refs/main"), &commit).unwrap();
        for (file, bytes) in files {
            put(&root.join("snapshots").join(&commit).join(file), *bytes);
        }
    }

    #[test]
    fn models_are_listed_by_the_ids_that_load_them_and_removed_by_those() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        cached(cache, "org/full", &[("config.json", 2), ("model.safetensors", 8)]);
        cached(
            cache,
            "org/m-GGUF",
            &[("m-Q4_K_M.gguf", 5), ("m-Q8_0.gguf", 9), ("mmproj-F16.gguf", 1), ("odd.gguf", 3)],
        );
        cached(cache, "org/begun", &[("config.json", 2)]);
        let ids = || models(cache).into_iter().map(|model| (model.id, model.bytes)).collect();
        let named = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
            names.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
        };
        let ids: &dyn Fn() -> Vec<(String, u64)> = &ids;
        let mut found = ids();
        found.sort();
        let gguf = [("org/m-GGUF:Q4_K_M", 5), ("org/m-GGUF:Q8_0", 9), ("org/m-GGUF:odd.gguf", 3)];
        assert_eq!(found, named(&[&[("org/full", 10)], &gguf[..]].concat()));
        assert_eq!(remove(cache, "org/m-GGUF:Q8_0").unwrap(), 9);
        assert_eq!(remove(cache, "org/full").unwrap(), 10);
        let mut found = ids();
        found.sort();
        assert_eq!(found, named(&[gguf[0], gguf[2]]));
        assert_eq!(remove(cache, "org/full").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!cache.join("models--org--full").exists());
    }
}

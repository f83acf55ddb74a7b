//! What models there are: in a folder of folders and GGUF files, and in the hub's cache.

use std::path::Path;

use anyhow::Context;

use super::model::{ModelFacts, ModelSpec, Origin};
use crate::weights::hub::{HubOptions, inventory};

/// How names of GGUF files begin that belong to another file.
const PARTS: [&str; 1] = ["mmproj"];

/// A model by the name of its folder or file, with nothing special.
pub fn plain(name: String, model: String, origin: Origin) -> ModelSpec {
    ModelSpec {
        name,
        aliases: Vec::new(),
        model,
        origin,
        pinned: false,
        ttl: None,
        arguments: Vec::new(),
        facts: ModelFacts::default(),
    }
}

/// The models that lie in a folder: GGUF files, and folders with a checkpoint or a GGUF file in them; by
/// name.
///
/// # Errors
/// The folder can't be read.
pub fn in_folder(folder: &Path) -> anyhow::Result<Vec<ModelSpec>> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("--models {}", folder.display()))?;
    let mut models = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let (Some(name), Some(text)) =
            (path.file_name().and_then(|name| name.to_str()), path.to_str())
        else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let name = if path.is_dir() {
            if !has_model(&path) {
                continue;
            }
            name
        } else {
            match name.strip_suffix(".gguf") {
                Some(stem) if is_whole(stem) => stem,
                _ => continue,
            }
        };
        let origin = Origin::Folder(folder.to_owned());
        models.push(plain(name.to_owned(), text.to_owned(), origin));
    }
    models.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(models)
}

/// Whether a GGUF file is a model by itself, or the first part of one.
fn is_whole(stem: &str) -> bool {
    let later = stem.rsplit_once("-of-").and_then(|(begin, _)| begin.rsplit_once('-'));
    let later = later.is_some_and(|(_, number)| {
        number.len() == 5 && number.bytes().all(|digit| digit.is_ascii_digit()) && number != "00001"
    });
    !later && !PARTS.iter().any(|begin| stem.starts_with(begin))
}

/// Whether a folder is one of a model.
fn has_model(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name == "config.json" || name.ends_with(".gguf")
    })
}

/// The models of the hub's cache.
pub fn in_hub_cache(options: &HubOptions) -> Vec<ModelSpec> {
    let cached = inventory::models(&options.cache);
    cached.into_iter().map(|cached| plain(cached.id.clone(), cached.id, Origin::Hub)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_models_that_lie_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b/config.json", "a/m.gguf", "empty/readme", ".hidden/config.json"] {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), "").unwrap();
        }
        let files =
            ["c.gguf", "mmproj-c.gguf", "d-00001-of-00002.gguf", "d-00002-of-00002.gguf", "x.txt"];
        for name in files {
            std::fs::write(at(name), "").unwrap();
        }
        let names: Vec<_> =
            in_folder(folder.path()).unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["a", "b", "c", "d-00001-of-00002"]);
        let error = in_folder(&at("none")).unwrap_err();
        assert!(error.to_string().contains("none"));
    }
}

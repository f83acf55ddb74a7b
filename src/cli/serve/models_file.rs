//! The file that lists models: `sconce serve --models FILE`.
//!
//! ```toml
//! hub = true                      # those of the hub's cache, too
//! folders = ["/srv/models"]       # those that lie there, too
//!
//! [[model]]
//! name = "small"
//! path = "qwen3-0.6b"             # a folder or a GGUF file, from here on; or a hub id
//! aliases = ["gpt-4o-mini"]
//! pin = true
//! ttl = 600
//! flags = { max-num-seqs = 4, quantize = "q8_0" }
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Command;
use serde::Deserialize;

use super::models_args::is_own;
use crate::cli::settings::words_of_table;
use crate::fleet::{ModelSpec, Origin, catalog};

/// What a file lists.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) models: Vec<ModelSpec>,
    pub(super) folders: Vec<PathBuf>,
    pub(super) hub: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsFile {
    #[serde(default)]
    hub: bool,
    #[serde(default)]
    folders: Vec<PathBuf>,
    #[serde(default)]
    model: Vec<ListedModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedModel {
    name: String,
    path: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    pin: bool,
    ttl: Option<u64>,
    #[serde(default)]
    flags: toml::Table,
}

/// Reads a list. `command` judges flags; `ttl` is for models that say nothing.
///
/// # Errors
/// The file can't be read, is no such list, or a flag of a model is none or is one of the whole server.
pub(super) fn read(
    path: &Path,
    command: &Command,
    ttl: Option<Duration>,
) -> anyhow::Result<Listed> {
    let at = || format!("--models {}", path.display());
    let text = std::fs::read_to_string(path).with_context(at)?;
    let ModelsFile { hub, folders, model } = toml::from_str(&text).with_context(at)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let models =
        model.into_iter().map(|listed| spec(listed, folder, command, ttl).with_context(at));
    Ok(Listed {
        models: models.collect::<anyhow::Result<_>>()?,
        folders: folders.into_iter().map(|inner| folder.join(inner)).collect(),
        hub,
    })
}

fn spec(
    listed: ListedModel,
    folder: &Path,
    command: &Command,
    default_ttl: Option<Duration>,
) -> anyhow::Result<ModelSpec> {
    let ListedModel { name, path, aliases, pin, ttl, flags } = listed;
    let of = format!("model {name:?}");
    ensure!(!name.is_empty(), "a model has no name");
    for flag in flags.keys() {
        ensure!(!is_own(flag), "{of}: {flag} is for the whole server, not for one model");
    }
    let arguments = words_of_table(command, &flags, &of).map_err(|error| anyhow!(error))?;
    // What is there wins over a hub id, as everywhere.
    let inner = folder.join(&path);
    let model = if inner.exists() { inner.to_string_lossy().into_owned() } else { path };
    let ttl = match ttl {
        None => default_ttl,
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
    };
    Ok(ModelSpec {
        aliases,
        pinned: pin,
        ttl,
        arguments,
        ..catalog::plain(name, model, Origin::Listed)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn read_text(text: &str) -> Result<Vec<ModelSpec>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("here")).unwrap();
        let path = folder.path().join("models.toml");
        std::fs::write(&path, text).unwrap();
        let command = <crate::cli::Cli as CommandFactory>::command();
        let read = read(&path, &command, Some(Duration::from_secs(7)));
        read.map(|listed| listed.models).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn models_have_names_aliases_pins_times_and_flags() {
        let models = read_text(
            "[[model]]\nname = \"a\"\npath = \"here\"\naliases = [\"b\"]\npin = true\nttl = 0\n\
             flags = { max-num-seqs = 4, no-prefix-cache = true }\n\
             [[model]]\nname = \"c\"\npath = \"org/c\"\n",
        )
        .unwrap();
        let [a, c] = &models[..] else { panic!("{models:?}") };
        assert!(a.model.ends_with("/here") && a.pinned && a.ttl.is_none());
        assert_eq!(a.aliases, ["b"]);
        assert_eq!(a.arguments, ["--max-num-seqs=4", "--no-prefix-cache"]);
        assert_eq!((c.model.as_str(), c.ttl), ("org/c", Some(Duration::from_secs(7))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |flags: &str| {
            read_text(&format!("[[model]]\nname = \"a\"\npath = \"p\"\n{flags}")).unwrap_err()
        };
        assert!(error("flags = { max-num-seq = 4 }").contains("model \"a\": `max-num-seq`"));
        assert!(error("flags = { port = 4 }").contains("port is for the whole server"));
        assert!(error("flags = { max-num-seqs = \"x\" }").contains("an integer"));
        assert!(error("pinned = true").contains("unknown field"));
    }
}

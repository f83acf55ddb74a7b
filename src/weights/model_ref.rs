//! What the user typed after `--model`: a folder, a GGUF file, or a hub id.
//!
//! Decides by looking at the disk first, so an existing folder always wins over a hub id.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::WeightError;

/// Where to find a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelRef {
    /// An existing folder.
    Folder(PathBuf),
    /// An existing GGUF file.
    GgufFile(PathBuf),
    /// A repository on the hub.
    Hub(HubRef),
}

/// A repository on the hub, and what of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRef {
    /// `org/name`.
    pub repository: String,
    /// A branch, a tag or a commit; `None` is the default branch.
    pub revision: Option<String>,
    /// Which file; `None` takes the safetensors checkpoint, or the only GGUF file.
    pub file: Option<HubFile>,
}

/// What is meant of a repository, if it is not its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubFile {
    /// A GGUF file by its path inside the repository.
    Path(String),
    /// A GGUF file by the quantization in its name, such as `Q4_K_M`.
    Quantization(String),
    /// The files of a LoRA adapter.
    Adapter,
}

impl ModelRef {
    /// Understands `text`:
    ///
    /// - an existing folder, or an existing `.gguf` file;
    /// - `org/name`, `org/name@revision`: a checkpoint on the hub;
    /// - `org/name/file.gguf`, `org/name:file.gguf`, `org/name:Q4_K_M`: a GGUF file on the hub.
    ///
    /// `revision` stands for `@revision`.
    ///
    /// # Errors
    /// When nothing of this fits; the message says what was looked for.
    pub fn parse(text: &str, revision: Option<&str>) -> Result<Self, WeightError> {
        let path = Path::new(text);
        let local = if path.is_dir() {
            Self::Folder(path.to_owned())
        } else if path.exists() {
            existing_file(text, path)?
        } else {
            return HubRef::parse(text, revision).map(Self::Hub);
        };
        match revision {
            None => Ok(local),
            Some(revision) => Err(not_a_model(
                text,
                &format!("a revision (`{revision}`) belongs to a hub id, and this path exists"),
            )),
        }
    }
}

impl HubRef {
    /// Understands `org/name[@revision]`, `org/name/file.gguf` and `org/name:file-or-quantization`.
    ///
    /// # Errors
    /// When `text` has another form.
    pub fn parse(text: &str, revision: Option<&str>) -> Result<Self, WeightError> {
        let (id, file) = split_file(text);
        let (id, typed_revision) = match id.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (id, None),
        };
        if !is_repository(id) {
            return Err(not_a_model(text, &refusal(text)));
        }
        let revision = match (typed_revision, revision) {
            (Some(typed), Some(given)) if typed != given => {
                let reason = format!("two revisions are given, `{typed}` and `{given}`");
                return Err(not_a_model(text, &reason));
            }
            (typed, given) => typed.or(given).map(str::to_owned),
        };
        if revision.as_deref().is_some_and(|revision| !is_revision(revision)) {
            let reason = "a revision is a branch, a tag or a commit hash, without spaces or `..`";
            return Err(not_a_model(text, reason));
        }
        let file = file.map(|file| hub_file(text, file)).transpose()?;
        Ok(Self { repository: id.to_owned(), revision, file })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) | Self::GgufFile(path) => path.display().fmt(f),
            Self::Hub(hub) => hub.fmt(f),
        }
    }
}

impl fmt::Display for HubRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.file {
            None | Some(HubFile::Adapter) => Ok(()),
            Some(HubFile::Path(name) | HubFile::Quantization(name)) => write!(f, ":{name}"),
        }
    }
}

fn existing_file(text: &str, path: &Path) -> Result<ModelRef, WeightError> {
    if has_gguf_ending(text) {
        return Ok(ModelRef::GgufFile(path.to_owned()));
    }
    let reason = if text.ends_with(".safetensors") {
        "give the folder that holds this file, since config.json and the tokenizer are needed too"
    } else {
        "the file exists, but a model is a folder, a .gguf file or a hub id"
    };
    Err(not_a_model(text, reason))
}

/// Splits `org/name/path.gguf` and `org/name:file` into the id (with `@revision`) and the file.
fn split_file(text: &str) -> (&str, Option<&str>) {
    if let Some((id, file)) = text.split_once(':') {
        return (id, Some(file));
    }
    let second_slash = text.match_indices('/').nth(1).map(|(at, _)| at);
    match second_slash {
        Some(at) if has_gguf_ending(text) => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    }
}

fn hub_file(text: &str, file: &str) -> Result<HubFile, WeightError> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if has_gguf_ending(file) && file.split('/').all(plain) && !file.contains('\\') {
        return Ok(HubFile::Path(file.to_owned()));
    }
    let is_tag = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !file.is_empty() && file.chars().all(is_tag) {
        return Ok(HubFile::Quantization(file.to_owned()));
    }
    let reason = format!("`{file}` is neither a .gguf file name nor a quantization like Q4_K_M");
    Err(not_a_model(text, &reason))
}

/// Whether a name ends in `.gguf`, in any case.
pub(crate) fn has_gguf_ending(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// The hub's own rule for ids: two parts of letters, digits, `-`, `_` and `.`.
fn is_repository(id: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
            && !part.contains("--")
            && !part.contains("..")
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    id.split_once('/').is_some_and(|(organisation, name)| part(organisation) && part(name))
}

/// Git's rule, as far as a revision becomes part of a path and of a URL.
fn is_revision(revision: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains("..");
    revision.split('/').all(plain)
        && revision.chars().all(|c| c.is_ascii_graphic() && !"\\~^:?*[@{".contains(c))
}

fn refusal(text: &str) -> String {
    let is_path = text.starts_with(['/', '.', '~', '\\']) || text.contains('\\');
    match (is_path, has_gguf_ending(text)) {
        (_, true) => "no such file, and a hub file is written org/name/file.gguf".to_owned(),
        (true, false) => "no such folder".to_owned(),
        (false, false) => "no such folder or file, and a hub id is written org/name".to_owned(),
    }
}

fn not_a_model(text: &str, reason: &str) -> WeightError {
    WeightError::NotAModel { reference: text.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(text: &str) -> HubRef {
        match ModelRef::parse(text, None).unwrap() {
            ModelRef::Hub(hub) => hub,
            other => panic!("{other:?}"),
        }
    }

    fn refused(text: &str) -> String {
        ModelRef::parse(text, None).unwrap_err().to_string()
    }

    #[test]
    fn reads_hub_ids_with_revision_and_file() {
        let plain = HubRef { repository: "org/name-1.5".into(), revision: None, file: None };
        assert_eq!(hub("org/name-1.5"), plain);
        assert_eq!(hub("org/name@refs/pr/3").revision.as_deref(), Some("refs/pr/3"));
        let path = Some(HubFile::Path("sub/x.Q4.gguf".into()));
        assert_eq!(hub("org/name/sub/x.Q4.gguf").file, path);
        assert_eq!(hub("org/name:x.gguf").file, Some(HubFile::Path("x.gguf".into())));
        let quantization = hub("org/name@v1:Q4_K_M");
        assert_eq!(quantization.file, Some(HubFile::Quantization("Q4_K_M".into())));
        assert_eq!(quantization.revision.as_deref(), Some("v1"));
        assert_eq!(quantization.to_string(), "org/name@v1:Q4_K_M");
    }

    #[test]
    fn refuses_what_is_neither_path_nor_hub_id() {
        assert!(refused("./nowhere").ends_with("no such folder"));
        assert!(refused("/nowhere/x.gguf").contains("no such file"));
        assert!(refused("gpt2").contains("org/name"));
        assert!(refused("a/b/c").contains("org/name"));
        assert!(refused("a/../b").contains("org/name"));
        assert!(refused("org/name:../x.gguf").contains("neither"));
        assert!(refused("org/name@../../x").contains("revision"));
        assert!(refused("org/na me").contains("org/name"));
        assert!(refused("").contains("org/name"));
    }

    #[test]
    fn an_existing_path_wins_and_takes_no_revision() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap();
        let parsed = ModelRef::parse(text, None).unwrap();
        assert_eq!(parsed, ModelRef::Folder(folder.path().to_owned()));
        assert!(ModelRef::parse(text, Some("main")).unwrap_err().to_string().contains("revision"));
        let file = folder.path().join("model.safetensors");
        std::fs::write(&file, "x").unwrap();
        assert!(refused(file.to_str().unwrap()).contains("folder that holds"));
    }

    #[test]
    fn two_different_revisions_are_refused() {
        let error = ModelRef::parse("org/name@a", Some("b")).unwrap_err().to_string();
        assert!(error.contains("`a` and `b`"), "{error}");
        assert!(ModelRef::parse("org/name@a", Some("a")).is_ok());
    }
}

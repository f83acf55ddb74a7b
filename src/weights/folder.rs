//! A model's files by name, in a folder on disk or embedded in the binary.
//!
//! Knows names and JSON; never what a file is for.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::WeightError;
use super::file_bytes::FileBytes;
use super::python_json;

/// Where a model's files lie.
#[derive(Clone, Debug)]
pub(crate) enum ModelFolder {
    Disk(PathBuf),
    Embedded(Vec<(String, &'static [u8])>),
}

impl ModelFolder {
    /// The path of a file, for messages; it need not exist.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The folder itself, for messages.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::Disk(folder) => folder,
            Self::Embedded(_) => Path::new("(embedded)"),
        }
    }

    /// Names of all files, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>, WeightError> {
        let mut names = match self {
            Self::Disk(folder) => disk_names(folder)?,
            Self::Embedded(files) => files.iter().map(|(name, _)| name.clone()).collect(),
        };
        names.sort();
        Ok(names)
    }

    /// A file's bytes, `None` if it doesn't exist.
    pub(crate) fn open(&self, name: &str) -> Result<Option<FileBytes>, WeightError> {
        match self {
            Self::Disk(folder) => {
                let path = folder.join(name);
                if path.exists() { FileBytes::open(&path).map(Some) } else { Ok(None) }
            }
            Self::Embedded(files) => Ok(files
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, bytes)| FileBytes::embedded(&self.path(name), bytes))),
        }
    }

    /// A file's bytes in memory, `None` if it doesn't exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, WeightError> {
        Ok(self.open(name)?.map(|file| file.bytes().to_vec()))
    }

    /// A JSON file, `None` if it doesn't exist.
    pub(crate) fn json(&self, name: &str) -> Result<Option<Value>, WeightError> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let value = python_json::parse(file.bytes()).map_err(|error| {
            WeightError::corrupt(file.path(), format!("not valid JSON: {error}"))
        })?;
        Ok(Some(value))
    }

    /// A JSON file that must hold an object, `None` if it doesn't exist.
    pub(crate) fn json_object(&self, name: &str) -> Result<Option<Value>, WeightError> {
        let Some(value) = self.json(name)? else { return Ok(None) };
        if value.is_object() {
            return Ok(Some(value));
        }
        let found = json_kind(&value);
        Err(WeightError::corrupt(
            &self.path(name),
            format!("expected a JSON object, found {found}"),
        ))
    }
}

/// What a JSON value is, in a word.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn disk_names(folder: &Path) -> Result<Vec<String>, WeightError> {
    let entries = std::fs::read_dir(folder).map_err(|source| WeightError::io(folder, source))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| WeightError::io(folder, source))?;
        // A name that is not Unicode is no file of a checkpoint.
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

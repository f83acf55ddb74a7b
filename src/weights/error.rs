//! Why a model can't be loaded, in words that a user can act on.
//!
//! Every message names the file, what was found and what was expected; where there is a usual
//! remedy, the message ends with it.

use std::path::{Path, PathBuf};

use super::hub::error::HubError;

/// Why a checkpoint can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// What the user typed names no model.
    #[error("`{reference}` is not a model: {reason}")]
    NotAModel {
        /// The reference as it was typed.
        reference: String,
        /// What was looked for, and where.
        reason: String,
    },
    /// A folder lacks a file that every checkpoint has.
    #[error("{folder}: {reason}", folder = folder.display())]
    Incomplete {
        /// The folder that was opened.
        folder: PathBuf,
        /// What is missing and how to get it.
        reason: String,
    },
    /// A file is absent or unreadable.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not what its name says: truncated, corrupt, inconsistent.
    #[error("{path}: {reason}", path = path.display())]
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// What was found and what was expected.
        reason: String,
    },
    /// The checkpoint lacks a tensor.
    #[error("tensor `{name}` is missing from {origin}")]
    MissingTensor {
        /// The tensor's Hugging Face name.
        name: String,
        /// The file or folder.
        origin: String,
    },
    /// A tensor has another shape than the configuration implies.
    #[error("tensor `{name}` in {origin} has shape {found:?}, expected {expected:?}")]
    WrongShape {
        /// The tensor's Hugging Face name.
        name: String,
        /// The file that the tensor is in.
        origin: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// A tensor holds values that can't be weights (NaN scales) or has an unsupported dtype.
    #[error("tensor `{name}` in {origin}: {reason}")]
    BadTensor {
        /// The tensor's Hugging Face name.
        name: String,
        /// The file that the tensor is in.
        origin: String,
        /// What is wrong with the tensor.
        reason: String,
    },
    /// The hub, or the cache that stands for it, did not give the files.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The tensor library refused.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// A part of a model, loaded from weights.
pub type Loaded<T> = Result<T, WeightError>;

impl WeightError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// A file at `path` whose content is not what its format says, and why.
    pub fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), reason: reason.into() }
    }
}

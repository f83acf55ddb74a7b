//! Models by hub id: which files are needed, where the shared cache keeps them, how to get them.
//!
//! The cache is the one of `huggingface_hub` (`HF_HOME`, `HF_HUB_CACHE`), so what another program
//! downloaded is found here and the other way round.

pub mod error;

use std::path::{Path, PathBuf};

use error::HubError;

use super::error::WeightError;
use super::model_ref::HubRef;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// How to reach the hub and its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOptions {
    /// Use the cache only.
    pub offline: bool,
    /// Show progress bars when standard error is a terminal.
    pub progress: bool,
    /// The hub's address.
    pub endpoint: String,
    /// The cache folder (`.../hub`).
    pub cache: PathBuf,
    /// The access token.
    pub token: Option<String>,
}

impl HubOptions {
    /// The cache at `cache` and no network.
    pub fn offline(cache: &Path) -> Self {
        Self {
            offline: true,
            progress: false,
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            cache: cache.to_owned(),
            token: None,
        }
    }
}

/// Downloads what `reference` needs and the cache lacks; gives the folder, or the GGUF file.
///
/// # Errors
/// When the hub refuses, can't be reached, or lacks a file.
pub fn fetch_blocking(reference: &HubRef, _options: &HubOptions) -> Result<PathBuf, WeightError> {
    Err(HubError::NotBuilt { repository: reference.repository.clone() }.into())
}

//! What is known of a model before it is loaded.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// One model that the server can load.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The name that requests use.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// A folder, a GGUF file or a hub id, as `--model` takes it.
    pub model: String,
    /// Where it is from.
    pub origin: Origin,
    /// Loaded at the start, and never made to go.
    pub pinned: bool,
    /// How long it stays without requests; `None` is for ever.
    pub ttl: Option<Duration>,
    /// Further flags of its process.
    pub arguments: Vec<String>,
    /// What its files say.
    pub facts: ModelFacts,
}

/// Who named a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line, or a file with a list of models.
    Listed,
    /// A folder that models lie in.
    Folder(PathBuf),
    /// The hub's cache: it can be deleted, and others can be fetched.
    Hub,
}

/// What a model's files say of it, without its weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFacts {
    /// Bytes of all of its process when it is loaded, as planned.
    pub need: u64,
    /// Bytes of the weights as stored.
    pub bytes: u64,
    /// `model_type` of its configuration.
    pub architecture: String,
    /// `gguf` or `safetensors`.
    pub format: &'static str,
    /// What its matrices are stored as.
    pub stored_as: String,
    /// The longest context that it was made for.
    pub context: usize,
    /// The chat template.
    pub template: Option<String>,
    /// The configuration.
    pub config: Value,
    /// Why the files can't be used, which its requests are told.
    pub fault: Option<String>,
}

impl ModelSpec {
    /// Whether a request means this model: by a name, or by one with Ollama's `:latest` behind it.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let is = |name: &str| self.name == name || self.aliases.iter().any(|alias| alias == name);
        is(name) || name.strip_suffix(":latest").is_some_and(is)
    }
}

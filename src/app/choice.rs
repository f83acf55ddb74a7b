//! Which model a user chose, and where its files are.

use super::adapters::LoraModule;
use super::generation_config::GenerationConfig;
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

/// The name that the embedded demo model is served under.
const DEMO_NAME: &str = "sconce-demo";

/// Which model to serve, where to find it, and what replaces parts of it.
#[derive(Clone, Debug, Default)]
pub struct ModelChoice {
    /// A folder, a GGUF file or a hub id; `None` is the embedded demo model.
    pub model: Option<String>,
    /// A folder, a GGUF file or a hub id of a small model that drafts its tokens.
    pub draft_model: Option<String>,
    /// Branch, tag or commit on the hub.
    pub revision: Option<String>,
    /// Take what the hub's cache has and ask no network.
    pub offline: bool,
    /// The name to serve the model under, instead of its own.
    pub name: Option<String>,
    /// A chat template, or a file with one, that replaces the model's own.
    pub chat_template: Option<String>,
    /// Where the sampling parameters that requests leave out come from.
    pub generation_config: GenerationConfig,
    /// LoRA adapters to load beside the model.
    pub adapters: Vec<LoraModule>,
}

impl ModelChoice {
    /// Opens the model's files; downloads them where the cache lacks them. Blocks.
    pub(super) fn open(&self) -> anyhow::Result<ModelSource> {
        let Some(model) = &self.model else {
            return Ok(ModelSource::embedded(DEMO_NAME, crate::demo::files())?);
        };
        let model = ModelRef::parse(model, self.revision.as_deref())?;
        Ok(ModelSource::open(&model, &self.hub_options())?)
    }

    /// Opens the files of the draft model, if one is chosen. Blocks.
    pub(super) fn open_draft(&self) -> anyhow::Result<Option<ModelSource>> {
        let Some(model) = &self.draft_model else { return Ok(None) };
        Ok(Some(ModelSource::open(&ModelRef::parse(model, None)?, &self.hub_options())?))
    }

    /// How the hub is asked for files of this model.
    pub(super) fn hub_options(&self) -> HubOptions {
        let options = HubOptions::from_env();
        HubOptions { offline: options.offline || self.offline, ..options }
    }
}

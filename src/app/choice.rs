//! Which model a user chose, and where its files are.

use anyhow::ensure;

use super::adapters::LoraModule;
use super::generation_config::GenerationConfig;
use crate::config::SpeechConfig;
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::projector::ProjectorChoice;
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
    /// Where the vision tower of a model in GGUF is.
    pub projector: ProjectorChoice,
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
    /// A model that transcribes, beside it, and how any does.
    pub speech: SpeechChoice,
}

impl ModelChoice {
    /// Opens the model's files; downloads them where the cache lacks them. Blocks.
    pub(super) fn open(&self) -> anyhow::Result<ModelSource> {
        let Some(model) = &self.model else {
            return Ok(ModelSource::embedded(DEMO_NAME, crate::demo::files())?);
        };
        let model = ModelRef::parse(model, self.revision.as_deref())?;
        let source = ModelSource::open_with(&model, &self.hub_options(), &self.projector)?;
        ensure!(
            !source.is_draft_head,
            "{} has only a head that drafts: serve its model, with this file as --draft-model",
            source.name
        );
        Ok(source)
    }

    /// Opens the files of the draft model, if one is chosen. Blocks.
    pub(super) fn open_draft(&self) -> anyhow::Result<Option<ModelSource>> {
        let Some(model) = &self.draft_model else { return Ok(None) };
        let options = HubOptions { projector: false, ..self.hub_options() };
        let model = ModelRef::parse(model, None)?;
        Ok(Some(ModelSource::open_with(&model, &options, &ProjectorChoice::Absent)?))
    }

    /// How the hub is asked for files of this model.
    pub(super) fn hub_options(&self) -> HubOptions {
        let options = HubOptions::from_env();
        let projector = self.projector == ProjectorChoice::Beside;
        HubOptions { offline: options.offline || self.offline, projector, ..options }
    }
}

/// Which model transcribes, and within which bounds.
#[derive(Clone, Debug, Default)]
pub struct SpeechChoice {
    /// A folder or a hub id of a model beside the one that is served; `None` for none.
    pub model: Option<String>,
    /// Names that requests use for it, instead of its own.
    pub names: Vec<String>,
    /// Bounds, also where it is the only model.
    pub config: SpeechConfig,
}

//! From a model's files to a running engine.
//!
//! [`Loaded::load`] reads the weights, [`Loaded::start`] plans memory and starts the engine thread;
//! between the two adapters can be loaded, which take memory too.

mod absent;
pub mod adapters;
mod cgroup;
mod classifier;
mod decoder;
pub mod device;
pub mod draft;
mod encoder;
mod engine;
mod error;
pub mod forecast;
mod head;
mod late_interaction;
mod ranks;
pub mod speed;
pub mod tiers;
mod token_heads;
mod tower;

use std::sync::Arc;

use candle_core::Device;

use crate::config::EngineConfig;
use crate::metrics::MetricsHandle;
pub use crate::models::classifier::labels as class_names;
use crate::runner::ranks::Leader;
use crate::weights::hub::HubOptions;
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;
use adapters::AdapterLoader;
pub use decoder::{LoadedModel, follow};
use draft::LoadedDraft;
pub use draft::goes_on_from_layers;
pub use encoder::LoadedEncoder;
pub use engine::{Engine, cpu_level};
pub use error::StartupError;

/// A model that is ready to run.
pub enum Loaded {
    /// A decoder, which continues texts and embeds them.
    Decoder(LoadedModel),
    /// An encoder, which embeds texts.
    Encoder(LoadedEncoder),
}

impl Loaded {
    /// Builds the model that `source` describes and reads its weights; `progress` is told of every
    /// tensor. With a leader the result is rank 0's part of the model.
    pub fn load(
        source: &ModelSource,
        config: &EngineConfig,
        progress: ProgressSink,
        leader: Option<Arc<Leader>>,
    ) -> Result<Self, StartupError> {
        ranks::refuse_encoder(source, config)?;
        if encoder::reads_whole_texts(source) {
            LoadedEncoder::load(source, config, progress).map(Self::Encoder)
        } else {
            LoadedModel::load(source, config, progress, leader).map(Self::Decoder)
        }
    }

    /// The same model, with the draft model that `source` describes.
    ///
    /// # Errors
    ///
    /// The draft model can't be loaded, or the model has no use for one.
    pub fn with_draft(
        self,
        source: &ModelSource,
        config: &EngineConfig,
        progress: ProgressSink,
    ) -> Result<Self, StartupError> {
        match self {
            Self::Decoder(loaded) => {
                let (model, device) = (loaded.model.as_ref(), &loaded.device);
                let draft = LoadedDraft::load(source, config, model, device, progress)?;
                Ok(Self::Decoder(LoadedModel { draft: Some(draft), ..loaded }))
            }
            Self::Encoder(_) => Err(StartupError::Setting {
                setting: "--draft-model",
                reason: "it continues no texts".to_owned(),
            }),
        }
    }

    /// Number of tokens that the draft model knows, if there is one.
    pub fn draft_vocab_size(&self) -> Option<usize> {
        match self {
            Self::Decoder(loaded) => loaded.draft.as_ref().map(|draft| draft.model.vocab_size()),
            Self::Encoder(_) => None,
        }
    }

    /// A loader of adapters for this model.
    pub fn adapter_loader(&self, config: &EngineConfig, hub: HubOptions) -> AdapterLoader {
        let (layout, device) = match self {
            Self::Decoder(loaded) => (loaded.model.adapter_layout(), &loaded.device.device),
            Self::Encoder(loaded) => (loaded.adapter_layout(), &Device::Cpu),
        };
        AdapterLoader::new(layout, device, config, hub)
    }

    /// Whether a GPU computes the model.
    pub fn is_on_gpu(&self) -> bool {
        match self {
            Self::Decoder(loaded) => !loaded.device.device.is_cpu(),
            Self::Encoder(_) => false,
        }
    }

    /// The same model, with so many bytes of adapters counted beside its weights.
    #[must_use]
    pub fn with_adapters(self, bytes: usize) -> Self {
        match self {
            Self::Decoder(loaded) => {
                Self::Decoder(LoadedModel { weight_bytes: loaded.weight_bytes + bytes, ..loaded })
            }
            Self::Encoder(loaded) => Self::Encoder(loaded),
        }
    }

    /// Starts the engine thread.
    pub fn start(
        self,
        config: &EngineConfig,
        metrics: MetricsHandle,
    ) -> Result<Engine, StartupError> {
        match self {
            Self::Decoder(loaded) => loaded.start(config, metrics),
            Self::Encoder(loaded) => loaded.start(config, metrics),
        }
    }
}

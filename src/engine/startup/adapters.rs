//! From an adapter's folder to matrices in memory, beside the engine and without its thread.

use std::sync::Arc;

use candle_core::Device;

use crate::config::{EngineConfig, WeightKind};
use crate::engine::adapter::Adapter;
use crate::models::adapter::{AdapterForm, AdapterLayout};
use crate::weights::WeightError;
use crate::weights::hub::HubOptions;
use crate::weights::lora::{self, LoraFolder};
use crate::weights::stored::dense_dtype;
use crate::weights::task_adapters::TaskAdapter;

/// Why an adapter can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// There is nothing at the adapter's path.
    #[error("no adapter found for {0}")]
    NotFound(String),
    /// The model takes no adapters.
    #[error("the model takes no LoRA adapters")]
    NoAdapters,
    /// The adapter's files can't be used with this model.
    #[error(transparent)]
    Files(#[from] WeightError),
}

/// Loads adapters of one model; cheap to clone.
#[derive(Clone, Debug)]
pub struct AdapterLoader {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    layout: Option<AdapterLayout>,
    form: AdapterForm,
    hub: HubOptions,
}

impl AdapterLoader {
    /// A loader for a model whose linear layers are laid out so, if it takes adapters.
    pub fn new(
        layout: Option<AdapterLayout>,
        device: &Device,
        config: &EngineConfig,
        hub: HubOptions,
    ) -> Self {
        // Adapters of matrices that are quantized stay as stored: they are small.
        let kind = config.weight_kind.map(WeightKind::ggml);
        let kind = kind.filter(|kind| dense_dtype(*kind).is_some());
        let form = AdapterForm { device: device.clone(), kind, max_rank: config.max_lora_rank };
        Self { parts: Arc::new(Parts { layout, form, hub }) }
    }

    /// Loads the adapter at `path`, a folder or a hub id. Blocks.
    ///
    /// # Errors
    /// When there is none, or it doesn't fit the model; the message names what and the bound.
    pub fn load(&self, name: &str, path: &str) -> Result<Adapter, AdapterError> {
        let Parts { layout, form, hub } = &*self.parts;
        let layout = layout.as_ref().ok_or(AdapterError::NoAdapters)?;
        let folder = match lora::find(path, hub) {
            Ok(Some(folder)) => folder,
            Ok(None) => return Err(AdapterError::NotFound(path.to_owned())),
            Err(WeightError::Hub(error)) => {
                return Err(AdapterError::NotFound(format!("{path}: {error}")));
            }
            Err(error) => return Err(error.into()),
        };
        Ok(read(name, &LoraFolder::open(&folder)?, layout, form)?)
    }

    /// Loads the adapter that the model has for a task, of whatever rank. Blocks.
    ///
    /// # Errors
    /// When it doesn't fit the model; the message names what and the bound.
    pub fn load_own(&self, own: &TaskAdapter) -> Result<Adapter, AdapterError> {
        let Parts { layout, form, .. } = &*self.parts;
        let layout = layout.as_ref().ok_or(AdapterError::NoAdapters)?;
        let form = AdapterForm { max_rank: usize::MAX, ..form.clone() };
        Ok(read(&own.task, &own.open()?, layout, &form)?)
    }
}

fn read(
    name: &str,
    folder: &LoraFolder,
    layout: &AdapterLayout,
    form: &AdapterForm,
) -> Result<Adapter, WeightError> {
    let adapter = layout.load(folder, form)?;
    Ok(Adapter::new(name, folder.digest()?, adapter))
}

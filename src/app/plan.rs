//! What a model would take, from the headers of its files: known before anything is loaded, and before
//! anything large is fetched.

use std::sync::Arc;

use super::choice::ModelChoice;
use crate::config::EngineConfig;
use crate::engine::memory::{MemoryPlan, PlanError};
use crate::engine::startup::device::OpenDevice;
use crate::engine::startup::forecast::Forecast;
use crate::weights::hub;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

/// A model with all that is known of it before it is loaded.
pub struct ModelPlan {
    /// The name that it would be served under.
    pub name: String,
    /// Its files, or headers of them.
    pub source: Arc<ModelSource>,
    /// Bytes of the weights and of the KV cache.
    pub forecast: Forecast,
    /// How memory would be shared out, or why it can't be.
    pub memory: Result<Option<MemoryPlan>, PlanError>,
    /// Whether only headers were fetched.
    pub remote: bool,
}

impl ModelPlan {
    /// Plans a model. Of one that the hub's cache lacks only small files and headers are fetched, which
    /// are forgotten again. Blocks.
    ///
    /// # Errors
    /// The model can't be found or isn't supported, or the device isn't there.
    pub fn new(
        choice: &ModelChoice,
        config: &EngineConfig,
        device: &OpenDevice,
    ) -> anyhow::Result<Self> {
        let (source, remote) = open(choice)?;
        let forecast = Forecast::new(&source, config, device)?;
        let memory = forecast.plan(config);
        Ok(Self {
            name: choice.name.clone().unwrap_or_else(|| source.name.clone()),
            source: Arc::new(source),
            forecast,
            memory,
            remote,
        })
    }

    /// Bytes of all of the model's process, as far as it can be known before.
    pub fn process_bytes(&self) -> usize {
        let memory = self.memory.as_ref().ok().and_then(Option::as_ref);
        self.forecast.process_bytes(memory)
    }
}

/// The model's files, and whether only their headers are here.
fn open(choice: &ModelChoice) -> anyhow::Result<(ModelSource, bool)> {
    let Some(model) = &choice.model else { return Ok((choice.open()?, false)) };
    let ModelRef::Hub(reference) = ModelRef::parse(model, choice.revision.as_deref())? else {
        return Ok((choice.open()?, false));
    };
    let options = choice.hub_options();
    if options.offline || hub::is_cached(&reference, &options) {
        return Ok((ModelChoice { offline: true, ..choice.clone() }.open()?, false));
    }
    #[cfg(feature = "hub")]
    {
        let headers = hub::fetch_headers_blocking(&reference, &options)?;
        Ok((ModelSource::open_headers(&headers, reference.repository)?, true))
    }
    // The error says that this build can't ask the hub.
    #[cfg(not(feature = "hub"))]
    Ok((choice.open()?, false))
}

//! What the handlers of a server of several models share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, SecondsFormat};

use super::keeper::Keeper;
use super::model::ModelSpec;
use crate::config::ServerConfig;
use crate::http::front::ApiError;
use crate::weights::hub::HubOptions;

/// Reads what models there are. Blocks.
pub type ReadModels = dyn Fn() -> anyhow::Result<Vec<ModelSpec>> + Send + Sync;

/// Where the list of models comes from.
#[derive(Clone)]
pub struct Catalog {
    /// Reads it, at the start and whenever somebody asks for that.
    pub read: Arc<ReadModels>,
    /// How the hub is reached, if models of its cache are served.
    pub hub: Option<HubOptions>,
}

/// What handlers share.
#[derive(Clone)]
pub(super) struct FleetState {
    pub(super) keeper: Keeper,
    pub(super) catalog: Catalog,
    pub(super) config: Arc<ServerConfig>,
    /// The only model, which every request is for.
    pub(super) single: Option<Arc<String>>,
    /// When the server started, in seconds.
    pub(super) created: u64,
    pub(super) leaving: Arc<AtomicBool>,
}

impl FleetState {
    pub(super) fn check_not_leaving(&self) -> Result<(), ApiError> {
        if self.leaving.load(Ordering::Relaxed) {
            return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
        }
        Ok(())
    }

    /// When the server started, as Ollama's clients read it.
    pub(super) fn started(&self) -> String {
        let seconds = i64::try_from(self.created).unwrap_or_default();
        let time = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Secs, true)
    }
}

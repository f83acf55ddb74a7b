//! LoRA adapters as models of their own: which names there are, and `/v1/load_lora_adapter` and
//! `/v1/unload_lora_adapter`, which answer as vLLM does.
//!
//! A request that runs keeps its adapter, so unloading takes away a name and no answer.

use std::sync::{PoisonError, RwLock};

use axum::extract::State;

use super::body::{JsonBody, field_names};
use super::error::ApiError;
use super::prompt::off_thread;
use super::state::{AppState, unix_seconds};
use super::types::adapters::{LoadAdapterRequest, UnloadAdapterRequest};
use super::types::fields::IgnoredFields;
use crate::engine::adapter::Adapter;
use crate::engine::startup::adapters::{AdapterError, AdapterLoader};

/// An adapter that requests can name.
#[derive(Clone, Debug)]
pub struct ServedAdapter {
    /// Its name and its matrices.
    pub adapter: Adapter,
    /// Where it was loaded from, as it was given.
    pub path: String,
    /// The name of the model that it belongs to, where it is not the first one.
    pub base_model_name: Option<String>,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

impl ServedAdapter {
    /// An adapter that was loaded now.
    pub fn new(adapter: Adapter, path: String, base_model_name: Option<String>) -> Self {
        Self { adapter, path, base_model_name, created: unix_seconds() }
    }
}

/// What a server needs to serve adapters.
#[derive(Debug)]
pub struct AdapterParts {
    /// Loads them.
    pub loader: AdapterLoader,
    /// Those that are there from the start, in the order of the list.
    pub served: Vec<ServedAdapter>,
}

impl AdapterParts {
    /// Bytes that those from the start take in memory.
    pub fn size_in_bytes(&self) -> usize {
        bytes_of(&self.served)
    }
}

/// The adapters by their names.
#[derive(Debug)]
pub(crate) struct AdapterRegistry {
    loader: AdapterLoader,
    served: RwLock<Vec<ServedAdapter>>,
    /// Held while one is loaded: the bound counts those that are under way, too.
    changing: tokio::sync::Mutex<()>,
    most: usize,
}

impl AdapterRegistry {
    pub(crate) fn new(loader: AdapterLoader, served: Vec<ServedAdapter>, most: usize) -> Self {
        Self { loader, served: RwLock::new(served), changing: tokio::sync::Mutex::default(), most }
    }

    /// All of them, in the order in which they were loaded.
    pub(crate) fn all(&self) -> Vec<ServedAdapter> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<ServedAdapter> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.iter().find(|served| served.adapter.name() == name).cloned()
    }

    /// Changes the list; the bytes of what is on it then.
    fn change(&self, change: impl FnOnce(&mut Vec<ServedAdapter>)) -> usize {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut served);
        bytes_of(&served)
    }
}

/// Bytes that these take in memory.
pub(crate) fn bytes_of(served: &[ServedAdapter]) -> usize {
    served.iter().map(|served| served.adapter.size_in_bytes()).sum()
}

/// `POST /v1/load_lora_adapter`.
pub(crate) async fn load(
    State(state): State<AppState>,
    body: JsonBody,
) -> Result<String, ApiError> {
    check_allowed(&state)?;
    let request: LoadAdapterRequest = body.read()?;
    let ignored = IgnoredFields::judge(body.unknown(&[field_names::<LoadAdapterRequest>()]))?;
    ignored.check_strict(true)?;
    if request.is_3d_lora_weight == Some(true) {
        return Err(ApiError::unsupported("is_3d_lora_weight", "an adapter of stacked experts"));
    }
    let name = required("lora_name", request.lora_name)?;
    let path = required("lora_path", request.lora_path)?;
    let registry = state.adapters();
    let _changing = registry.changing.lock().await;
    check_name(&state, &name, request.load_inplace == Some(true))?;
    let loader = registry.loader.clone();
    let (own_name, own_path) = (name.clone(), path.clone());
    let adapter = off_thread(move || {
        loader.load(&own_name, &own_path).map_err(|error| refusal(&own_name, &error))
    })
    .await?;
    tracing::info!(name, path, bytes = adapter.size_in_bytes(), "a LoRA adapter was loaded");
    let bytes = registry.change(|served| {
        let new = ServedAdapter::new(adapter, path, None);
        match served.iter_mut().find(|served| served.adapter.name() == name) {
            Some(served) => *served = new,
            None => served.push(new),
        }
    });
    state.metrics().set_lora_bytes(bytes);
    Ok(format!("Success: LoRA adapter '{name}' added successfully."))
}

/// `POST /v1/unload_lora_adapter`.
pub(crate) async fn unload(
    State(state): State<AppState>,
    body: JsonBody,
) -> Result<String, ApiError> {
    check_allowed(&state)?;
    let request: UnloadAdapterRequest = body.read()?;
    let ignored = IgnoredFields::judge(body.unknown(&[field_names::<UnloadAdapterRequest>()]))?;
    ignored.check_strict(true)?;
    if request.lora_int_id.is_some() {
        return Err(ApiError::unsupported("lora_int_id", "a number in place of a name"));
    }
    let name = required("lora_name", request.lora_name)?;
    let registry = state.adapters();
    let _changing = registry.changing.lock().await;
    if registry.find(&name).is_none() {
        return Err(ApiError::AdapterNotFound(format!(
            "The lora adapter '{name}' cannot be found."
        )));
    }
    let bytes = registry.change(|served| served.retain(|served| served.adapter.name() != name));
    state.metrics().set_lora_bytes(bytes);
    tracing::info!(name, "a LoRA adapter was unloaded");
    Ok(format!("Success: LoRA adapter '{name}' removed successfully."))
}

fn check_allowed(state: &AppState) -> Result<(), ApiError> {
    if state.config().lora.at_run_time {
        return Ok(());
    }
    let message = "adapters are not loaded or unloaded at run time unless the server was started \
                   with --allow-runtime-lora-updating";
    Err(ApiError::Permission(message))
}

fn required(field: &'static str, value: Option<String>) -> Result<String, ApiError> {
    let given = value.filter(|value| !value.is_empty());
    given
        .ok_or_else(|| ApiError::field(field, format!("{field} is required and must not be empty")))
}

fn check_name(state: &AppState, name: &str, in_place: bool) -> Result<(), ApiError> {
    if state.config().served_model_names.iter().any(|known| known == name) {
        let message = format!("The lora adapter '{name}' conflicts with a served base model.");
        return Err(ApiError::field("lora_name", message));
    }
    let registry = state.adapters();
    if registry.find(name).is_some() {
        if in_place {
            return Ok(());
        }
        let message = format!(
            "The lora adapter '{name}' has already been loaded. If you want to load the adapter \
             in place, set 'load_inplace' to True."
        );
        return Err(ApiError::field("lora_name", message));
    }
    let (count, most) = (registry.all().len(), registry.most);
    if count >= most {
        let message = format!("{count} adapters are loaded, max-loras is {most}; unload one first");
        return Err(ApiError::field("lora_name", message));
    }
    Ok(())
}

fn refusal(name: &str, error: &AdapterError) -> ApiError {
    let message = format!("Loading lora {name} failed: {error}");
    match error {
        AdapterError::NotFound(_) => ApiError::AdapterNotFound(message),
        AdapterError::NoAdapters | AdapterError::Files(_) => ApiError::field("lora_path", message),
    }
}

//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, which answer as vLLM does.

use axum::extract::{FromRequest, Request, State};

use crate::engine::startup::adapters::AdapterError;
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::state::AppState;
use crate::http::state::adapter_registry::ServedAdapter;
use crate::http::wire::adapters::{LoadAdapterRequest, UnloadAdapterRequest};

/// `POST /v1/load_lora_adapter`.
pub(crate) async fn load(
    State(state): State<AppState>,
    request: Request,
) -> Result<String, ApiError> {
    let request: LoadAdapterRequest = read(&state, request).await?;
    if request.is_3d_lora_weight == Some(true) {
        return Err(ApiError::unsupported("is_3d_lora_weight", "an adapter of stacked experts"));
    }
    let name = required("lora_name", request.lora_name)?;
    let path = required("lora_path", request.lora_path)?;
    let registry = &state.adapters;
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
    state.metrics.set_lora_bytes(bytes);
    Ok(format!("Success: LoRA adapter '{name}' added successfully."))
}

/// `POST /v1/unload_lora_adapter`.
pub(crate) async fn unload(
    State(state): State<AppState>,
    request: Request,
) -> Result<String, ApiError> {
    let request: UnloadAdapterRequest = read(&state, request).await?;
    if request.lora_int_id.is_some() {
        return Err(ApiError::unsupported("lora_int_id", "a number in place of a name"));
    }
    let name = required("lora_name", request.lora_name)?;
    let registry = &state.adapters;
    let _changing = registry.changing.lock().await;
    if registry.find(&name).is_none() {
        return Err(ApiError::AdapterNotFound(format!(
            "The lora adapter '{name}' cannot be found."
        )));
    }
    let bytes = registry.change(|served| served.retain(|served| served.adapter.name() != name));
    state.metrics.set_lora_bytes(bytes);
    tracing::info!(name, "a LoRA adapter was unloaded");
    Ok(format!("Success: LoRA adapter '{name}' removed successfully."))
}

impl RequestBody for LoadAdapterRequest {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

impl RequestBody for UnloadAdapterRequest {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

/// Reads a request that changes what is served, if the server allows any. What nobody knows is
/// always refused.
async fn read<T: RequestBody>(state: &AppState, request: Request) -> Result<T, ApiError> {
    check_allowed(state)?;
    let Extracted { body, fields, .. } = Extracted::<T>::from_request(request, state).await?;
    fields.finish(true)?;
    Ok(body)
}

fn check_allowed(state: &AppState) -> Result<(), ApiError> {
    if state.config.lora.at_run_time {
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
    if state.config.served_model_names.iter().any(|known| known == name) {
        let message = format!("The lora adapter '{name}' conflicts with a served base model.");
        return Err(ApiError::field("lora_name", message));
    }
    let registry = &state.adapters;
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

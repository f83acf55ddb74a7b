//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter` as JSON, in vLLM's words.

use serde::Deserialize;
use utoipa::ToSchema;

use super::number::Int;

/// The body of `POST /v1/load_lora_adapter`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct LoadAdapterRequest {
    /// What requests will call it.
    #[schema(required, min_length = 1)]
    pub(crate) lora_name: Option<String>,
    /// A folder on the server, or a hub id.
    #[schema(required, min_length = 1)]
    pub(crate) lora_path: Option<String>,
    /// Take the place of an adapter of this name.
    pub(crate) load_inplace: Option<bool>,
    /// Not supported.
    pub(crate) is_3d_lora_weight: Option<bool>,
}

/// The body of `POST /v1/unload_lora_adapter`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct UnloadAdapterRequest {
    /// What requests call it.
    #[schema(required, min_length = 1)]
    pub(crate) lora_name: Option<String>,
    /// Not supported.
    pub(crate) lora_int_id: Option<Int>,
}

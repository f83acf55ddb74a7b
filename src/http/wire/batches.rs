//! Batches as JSON.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;
use super::schema::responses::Metadata;

/// The body of `POST /v1/batches`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct BatchRequest {
    pub(crate) input_file_id: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// `24h`, which is the only one.
    pub(crate) completion_window: Option<String>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Map<String, Value>>,
    pub(crate) output_expires_after: Option<ExpiresAfter>,
}

/// How long a file is kept.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ExpiresAfter {
    /// `created_at`, which is the only one.
    pub(crate) anchor: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 3600, maximum = 2_592_000)]
    pub(crate) seconds: Option<Int>,
}

/// The body of `POST /v1/messages/batches`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessageBatchRequest {
    pub(crate) requests: Option<Vec<MessageBatchLine>>,
}

/// One request of a batch of messages.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessageBatchLine {
    pub(crate) custom_id: Option<String>,
    /// The body of `POST /v1/messages`.
    #[schema(value_type = Object)]
    pub(crate) params: Option<Value>,
}

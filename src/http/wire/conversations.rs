//! Conversations as JSON.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::schema::responses::{Metadata, ResponseInputItem};

/// The body of `POST /v1/conversations`, and of what changes one.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ConversationRequest {
    #[schema(value_type = Option<Vec<ResponseInputItem>>)]
    pub(crate) items: Option<Vec<Value>>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// The body of `POST /v1/conversations/{id}/items`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = ConversationItemsRequest)]
pub(crate) struct ItemsRequest {
    #[schema(value_type = Vec<ResponseInputItem>)]
    pub(crate) items: Option<Vec<Value>>,
}

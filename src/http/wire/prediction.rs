//! A text that the answer is expected to be like.

use serde::Deserialize;
use utoipa::ToSchema;

/// OpenAI's predicted output. Tokens are drafted from it first; what the answer is doesn't depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = Prediction)]
pub(crate) struct PredictionField {
    #[serde(rename = "type")]
    pub(crate) kind: PredictionKind,
    pub(crate) content: PredictedContent,
}

/// The only kind of prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PredictionKind {
    Content,
}

/// The predicted text, as a whole or in parts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PredictedContent {
    Text(String),
    Parts(Vec<PredictedPart>),
}

/// A part of a predicted text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
pub(crate) struct PredictedPart {
    #[serde(rename = "type")]
    pub(crate) kind: PredictedPartKind,
    pub(crate) text: String,
}

/// The only kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PredictedPartKind {
    Text,
}

impl PredictionField {
    /// The whole text.
    pub(crate) fn text(&self) -> String {
        match &self.content {
            PredictedContent::Text(text) => text.clone(),
            PredictedContent::Parts(parts) => parts.iter().map(|part| part.text.as_str()).collect(),
        }
    }
}

//! Requests and answers in the shape of text-embeddings-inference.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::number::Int;
use super::texts::Texts;

/// What every request may say.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiFields {
    /// Whether texts that are too long are cut; else they are refused.
    pub(crate) truncate: Option<bool>,
    /// `Left` or `Right`: the side that loses tokens.
    pub(crate) truncation_direction: Option<String>,
}

/// The body of `POST /rerank` with `texts`, beside [`TeiFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiRerankRequest {
    #[schema(value_type = String)]
    pub(crate) query: Option<String>,
    #[schema(value_type = Vec<String>, min_items = 1)]
    pub(crate) texts: Option<Vec<String>>,
    pub(crate) raw_scores: Option<bool>,
    pub(crate) return_text: Option<bool>,
}

/// A text's place.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TeiRank {
    pub(crate) index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    pub(crate) score: f32,
}

/// The body of `POST /predict`, beside [`TeiFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiPredictRequest {
    #[schema(value_type = PredictInputs)]
    pub(crate) inputs: Option<PredictInputs>,
    pub(crate) raw_scores: Option<bool>,
}

/// A text, a pair of texts, or a list of lists of one or two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PredictInputs {
    /// One or two texts each.
    pub(crate) all: Vec<Vec<String>>,
    /// Whether it was a list of them.
    pub(crate) batch: bool,
}

/// How well a text fits a class.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TeiPrediction {
    pub(crate) score: f32,
    pub(crate) label: String,
}

/// The body of `POST /embed` and of `POST /embed_all`, beside [`TeiFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiEmbedRequest {
    #[schema(value_type = Texts)]
    pub(crate) inputs: Option<Texts>,
    /// Whether vectors have the length 1; true, if it isn't said.
    pub(crate) normalize: Option<bool>,
    /// Which of the model's prompts is put before every text.
    pub(crate) prompt_name: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) dimensions: Option<Int>,
}

/// The body of `POST /embed_sparse`, beside [`TeiFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiEmbedSparseRequest {
    #[schema(value_type = Texts)]
    pub(crate) inputs: Option<Texts>,
    /// Which of the model's prompts is put before every text.
    pub(crate) prompt_name: Option<String>,
}

/// The weight of a token of the vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct TeiSparseValue {
    pub(crate) index: usize,
    pub(crate) value: f32,
}

/// The body of `POST /similarity`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiSimilarityRequest {
    #[schema(value_type = TeiSentences)]
    pub(crate) inputs: Option<TeiSentences>,
    #[schema(value_type = Option<TeiFields>)]
    pub(crate) parameters: Option<TeiFields>,
}

/// A text, and those that it is compared with.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TeiSentences {
    pub(crate) source_sentence: String,
    #[schema(min_items = 1)]
    pub(crate) sentences: Vec<String>,
}

/// Why a request failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TeiErrorObject {
    pub(crate) error: String,
    pub(crate) error_type: &'static str,
}

const EXPECTED: &str = "expected a string, a pair of strings [string, string] or a batch of mixed \
                        strings and pairs [[string], [string, string], ...]";

impl<'de> Deserialize<'de> for PredictInputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let batch = value.get(0).is_some_and(Value::is_array);
        let all = match value {
            Value::String(text) => Ok(vec![vec![text]]),
            list if batch => serde_json::from_value(list),
            pair => serde_json::from_value(pair).map(|pair: Vec<String>| vec![pair]),
        };
        let all = all.map_err(|_| D::Error::custom(EXPECTED))?;
        if all.iter().any(|texts| !(1..=2).contains(&texts.len())) {
            return Err(D::Error::custom(EXPECTED));
        }
        Ok(Self { all, batch })
    }
}

impl PartialSchema for PredictInputs {
    fn schema() -> RefOr<Schema> {
        let texts = json!({"type": "array", "items": {"type": "string"},
            "minItems": 1, "maxItems": 2});
        let any = json!({"anyOf": [{"type": "string"}, texts,
            {"type": "array", "items": texts, "minItems": 1}]});
        serde_json::from_value(any).unwrap_or_else(|_| ObjectBuilder::new().into())
    }
}

impl ToSchema for PredictInputs {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_texts_pairs_or_lists_of_them() {
        let read = |value: Value| serde_json::from_value::<PredictInputs>(value);
        let counts = |inputs: PredictInputs| {
            (inputs.all.iter().map(Vec::len).collect::<Vec<_>>(), inputs.batch)
        };
        assert_eq!(counts(read(json!("a")).unwrap()), (vec![1], false));
        assert_eq!(counts(read(json!(["a", "b"])).unwrap()), (vec![2], false));
        assert_eq!(counts(read(json!([["a"], ["a", "b"]])).unwrap()), (vec![1, 2], true));
        for bad in [json!(3), json!([]), json!(["a", "b", "c"]), json!([["a"], "b"]), json!([[]])] {
            assert!(read(bad).is_err());
        }
    }
}

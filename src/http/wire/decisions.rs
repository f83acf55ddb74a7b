//! Decisions as JSON: questions about one input, answered by probabilities, in the two shapes that
//! clients have for them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;
use super::schema::constants;
use super::schema::decisions::{DecisionInput, DecisionQuestion, DecisionText, SystemOneQuestions};
use super::schema::served::RequestedModel;

/// The body of `POST /v1/decisions`, beside [`DecisionFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DecisionRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// What all questions are about: a text, or the items of a conversation.
    #[schema(value_type = DecisionInput)]
    pub(crate) input: Option<Value>,
    #[schema(value_type = Vec<DecisionQuestion>, min_items = 1, max_items = 400)]
    pub(crate) questions: Option<Vec<Value>>,
}

/// The body of `POST /v1/systemone`, beside [`DecisionFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SystemOneRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// What all questions are about: a text, or any JSON.
    #[schema(value_type = DecisionText)]
    pub(crate) state: Option<Value>,
    /// The questions by their names, in the order in which they are answered.
    #[schema(value_type = SystemOneQuestions)]
    pub(crate) questions: Option<Map<String, Value>>,
    /// A message of the system's before the input.
    pub(crate) instructions: Option<String>,
}

/// The fields that both routes have besides.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DecisionFields {
    /// As in chat completions, but for `enable_thinking`: nothing is thought before an answer.
    #[schema(value_type = Option<Object>)]
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
}

/// A question of the type `predicate`.
#[derive(Debug, Deserialize)]
pub(crate) struct PredicateQuestion {
    pub(crate) name: Option<String>,
    pub(crate) instructions: Option<Value>,
}

/// A question of the type `choice`.
#[derive(Debug, Deserialize)]
pub(crate) struct ChoiceQuestion {
    pub(crate) name: Option<String>,
    pub(crate) instructions: Option<Value>,
    pub(crate) choices: Option<Vec<ChoiceField>>,
}

/// Something to choose.
#[derive(Debug, Deserialize)]
pub(crate) struct ChoiceField {
    pub(crate) value: Option<ChoiceValue>,
    pub(crate) description: Option<String>,
}

/// The value of a choice; a text and a bool of the same letters are two.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ChoiceValue {
    Flag(bool),
    Text(String),
}

/// A question of the type `score`.
#[derive(Debug, Deserialize)]
pub(crate) struct ScoreQuestion {
    pub(crate) name: Option<String>,
    pub(crate) instructions: Option<Value>,
    pub(crate) levels: Option<Vec<LevelField>>,
}

/// A level of a score.
#[derive(Debug, Deserialize)]
pub(crate) struct LevelField {
    pub(crate) label: Option<String>,
    pub(crate) description: Option<String>,
}

/// A part of the type `input_json`.
#[derive(Debug, Deserialize)]
pub(crate) struct JsonPart {
    pub(crate) data: Option<Value>,
}

/// A question to `POST /v1/systemone`.
#[derive(Debug, Deserialize)]
pub(crate) struct SystemOneField {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) instructions: Option<Value>,
    pub(crate) criteria: Option<Value>,
}

/// The answer of `POST /v1/decisions`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Decision<'a> {
    pub(crate) model: &'a str,
    /// In the order of the questions.
    pub(crate) answers: Vec<DecisionAnswer>,
    pub(crate) usage: DecisionUsage,
}

/// The answer to one question. `label_mass` is how much of its probability the model gave to
/// answers that the question allows.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum DecisionAnswer {
    Predicate {
        #[schema(required)]
        name: Option<String>,
        probability: f64,
        label_mass: f64,
    },
    Choice {
        #[schema(required)]
        name: Option<String>,
        choice: ChoiceValue,
        confidence: f64,
        probabilities: Vec<ChoiceProbability>,
        label_mass: f64,
    },
    Score {
        #[schema(required)]
        name: Option<String>,
        /// The mean of the levels' values.
        score: f64,
        confidence: f64,
        probabilities: Vec<LevelProbability>,
        label_mass: f64,
    },
}

/// How likely a choice is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct ChoiceProbability {
    pub(crate) value: ChoiceValue,
    pub(crate) probability: f64,
}

/// How likely a level is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct LevelProbability {
    /// From 0, in the order of the levels.
    pub(crate) value: usize,
    pub(crate) label: String,
    pub(crate) probability: f64,
}

/// Token counts of a request; the input counts once for all of its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DecisionUsage {
    pub(crate) input_tokens: usize,
    pub(crate) input_tokens_details: DecisionInputDetails,
    /// 0: nothing is said.
    pub(crate) output_tokens: usize,
    pub(crate) output_tokens_details: DecisionOutputDetails,
    pub(crate) total_tokens: usize,
}

/// Part of [`DecisionUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DecisionInputDetails {
    /// Tokens of the input that an earlier request had computed.
    pub(crate) cached_tokens: usize,
    /// What is cached costs nothing here, so nothing is counted as written.
    pub(crate) cache_write_tokens: usize,
}

/// Part of [`DecisionUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DecisionOutputDetails {
    pub(crate) reasoning_tokens: usize,
}

/// The answer of `POST /v1/systemone`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SystemOneDecision<'a> {
    pub(crate) id: String,
    #[schema(schema_with = constants::structured_decision)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    /// By the names of the questions.
    #[schema(value_type = std::collections::BTreeMap<String, SystemOneAnswer>)]
    pub(crate) answers: Map<String, Value>,
    pub(crate) usage: SystemOneUsage,
    #[schema(value_type = std::collections::BTreeMap<String, SystemOneDiagnostics>)]
    pub(crate) diagnostics: Map<String, Value>,
}

/// The answer to one question of `POST /v1/systemone`. The confidence is the probability of the
/// most likely answer among all tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum SystemOneAnswer {
    Noul {
        /// Of yes.
        noul: f64,
        #[schema(value_type = std::collections::BTreeMap<String, f64>)]
        probabilities: Map<String, Value>,
        confidence: f64,
    },
    Choice {
        choice: String,
        #[schema(value_type = std::collections::BTreeMap<String, f64>)]
        probabilities: Map<String, Value>,
        confidence: f64,
    },
    Score {
        /// The mean of the levels, which are counted from 0.
        score: f64,
        #[schema(value_type = std::collections::BTreeMap<String, String>)]
        legend: Map<String, Value>,
        #[schema(value_type = std::collections::BTreeMap<String, f64>)]
        probabilities: Map<String, Value>,
        confidence: f64,
    },
}

/// Token counts of all prompts, each with the input.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct SystemOneUsage {
    pub(crate) input_tokens: usize,
    pub(crate) output_tokens: usize,
}

/// What is told of how a question was answered.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct SystemOneDiagnostics {
    /// How much of its probability the model gave to answers that the question allows.
    pub(crate) label_mass: f64,
    /// Whether the most likely token of all is one of those answers.
    pub(crate) argmax_is_label: bool,
}

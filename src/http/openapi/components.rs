//! The schemas of all bodies, from the types that read and write them.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::engine::EngineLimits;
use crate::http::wire::adapters::{LoadAdapterRequest, UnloadAdapterRequest};
use crate::http::wire::audio::{Transcript, TranscriptLogprob, VerboseTranscript};
use crate::http::wire::batches::{BatchRequest, MessageBatchRequest};
use crate::http::wire::chat::{
    ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, ChatMessage, PromptTokenLogprob,
};
use crate::http::wire::cohere::{CohereEmbedAnswer, CohereEmbedRequest};
use crate::http::wire::completions::{Completion, CompletionRequest};
use crate::http::wire::conversations::{ConversationRequest, ItemsRequest};
use crate::http::wire::decisions::{
    Decision, DecisionFields, DecisionRequest, SystemOneAnswer, SystemOneDecision,
    SystemOneDiagnostics, SystemOneRequest,
};
use crate::http::wire::embeddings::{ConversationFields, EmbeddingList, EmbeddingsRequest};
use crate::http::wire::messages::{
    CountedTokens, ErrorObject, Message, MessagesRequest, StreamEvent,
};
use crate::http::wire::ollama::{
    OllamaChatAnswer, OllamaChatRequest, OllamaEmbedAnswer, OllamaEmbedRequest,
    OllamaEmbeddingsAnswer, OllamaEmbeddingsRequest, OllamaError, OllamaFields,
    OllamaGenerateAnswer, OllamaGenerateRequest, OllamaShowRequest, OptionFields,
};
use crate::http::wire::ranking::{
    ClassifyAnswer, ClassifyRequest, PoolingAnswer, PoolingFields, PoolingRequest, RerankAnswer,
    RerankRequest, ScoreAnswer, ScoreRequest,
};
use crate::http::wire::response_format::StructuredAliases;
use crate::http::wire::responses::{CompactedResponse, ItemList, ResponseObject, ResponsesRequest};
use crate::http::wire::sampling::{CommonFields, SamplingFields};
use crate::http::wire::synonyms::Synonyms;
use crate::http::wire::tei::{
    TeiEmbedRequest, TeiEmbedSparseRequest, TeiErrorObject, TeiFields, TeiPredictRequest,
    TeiPrediction, TeiRank, TeiRerankRequest, TeiSimilarityRequest, TeiSparseValue,
};
use crate::http::wire::tokenize::{DetokenizeRequest, Detokenized, Tokenized};
use crate::http::wire::{scalars, schema};

/// What the document of a server depends on.
pub(super) struct Facts<'a> {
    /// Whether the server asks for keys.
    pub(super) keys: bool,
    /// The names that the model and its adapters answer to.
    pub(super) models: &'a [String],
    pub(super) limits: &'a EngineLimits,
}

/// All schemas that the routes name, and those that these name.
pub(super) fn schemas(facts: &Facts<'_>) -> Value {
    let mut schemas = Vec::new();
    collect::<ChatCompletionRequest>(&mut schemas);
    collect::<ChatMessage>(&mut schemas);
    collect::<SamplingFields>(&mut schemas);
    collect::<StructuredAliases>(&mut schemas);
    collect::<Synonyms>(&mut schemas);
    collect::<ChatCompletion>(&mut schemas);
    collect::<ChatCompletionChunk<'static>>(&mut schemas);
    collect::<PromptTokenLogprob>(&mut schemas);
    collect::<CompletionRequest>(&mut schemas);
    collect::<Completion<'static>>(&mut schemas);
    collect::<ResponsesRequest>(&mut schemas);
    collect::<CompactedResponse>(&mut schemas);
    collect::<ResponseObject>(&mut schemas);
    collect::<ItemList<'static>>(&mut schemas);
    collect::<ConversationRequest>(&mut schemas);
    collect::<ItemsRequest>(&mut schemas);
    collect::<BatchRequest>(&mut schemas);
    collect::<MessageBatchRequest>(&mut schemas);
    collect::<MessagesRequest>(&mut schemas);
    collect::<CommonFields>(&mut schemas);
    collect::<Message<'static>>(&mut schemas);
    collect::<StreamEvent<'static>>(&mut schemas);
    collect::<ErrorObject<'static>>(&mut schemas);
    collect::<CountedTokens>(&mut schemas);
    collect::<DecisionRequest>(&mut schemas);
    collect::<SystemOneRequest>(&mut schemas);
    collect::<DecisionFields>(&mut schemas);
    collect::<Decision<'static>>(&mut schemas);
    collect::<SystemOneDecision<'static>>(&mut schemas);
    collect::<SystemOneAnswer>(&mut schemas);
    collect::<SystemOneDiagnostics>(&mut schemas);
    collect::<OllamaChatRequest>(&mut schemas);
    collect::<OllamaGenerateRequest>(&mut schemas);
    collect::<OllamaFields>(&mut schemas);
    collect::<OptionFields>(&mut schemas);
    collect::<OllamaChatAnswer<'static>>(&mut schemas);
    collect::<OllamaGenerateAnswer<'static>>(&mut schemas);
    collect::<OllamaEmbedRequest>(&mut schemas);
    collect::<OllamaEmbedAnswer<'static>>(&mut schemas);
    collect::<OllamaEmbeddingsRequest>(&mut schemas);
    collect::<OllamaEmbeddingsAnswer>(&mut schemas);
    collect::<OllamaShowRequest>(&mut schemas);
    collect::<OllamaError>(&mut schemas);
    collect_vectors(&mut schemas);
    collect::<Transcript>(&mut schemas);
    collect::<TranscriptLogprob>(&mut schemas);
    collect::<VerboseTranscript>(&mut schemas);
    collect::<LoadAdapterRequest>(&mut schemas);
    collect::<UnloadAdapterRequest>(&mut schemas);
    collect::<Tokenized>(&mut schemas);
    collect::<DetokenizeRequest>(&mut schemas);
    collect::<Detokenized>(&mut schemas);
    let mut described = Map::new();
    for (name, schema) in schemas {
        let mut schema = serde_json::to_value(schema).expect("schemas are plain data");
        any_may_be_null(&mut schema);
        in_plain_words(&mut schema);
        described.insert(name, schema);
    }
    for (name, schema) in schema::components() {
        described.insert(name.to_owned(), schema);
    }
    let mut described = Value::Object(described);
    add_fields(&mut described);
    described["ModelName"]["enum"] = json!(facts.models);
    let requested = facts.models.iter().map(String::as_str).chain([""]);
    described["RequestedModel"]["enum"] = requested.collect();
    described["TokenId"]["maximum"] = json!(facts.limits.vocab_size.saturating_sub(1));
    described["EmbeddingDimensions"]["maximum"] = json!(facts.limits.embedding_size);
    described["TruncatedLength"]["anyOf"][1]["maximum"] = json!(facts.limits.max_text_len);
    described
}

/// The schemas of routes that make vectors, scores and classes of texts.
fn collect_vectors(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    collect::<EmbeddingList<'static>>(schemas);
    collect::<EmbeddingsRequest>(schemas);
    collect::<ConversationFields>(schemas);
    collect::<RerankRequest>(schemas);
    collect::<RerankAnswer<'static>>(schemas);
    collect::<ScoreRequest>(schemas);
    collect::<ScoreAnswer<'static>>(schemas);
    collect::<ClassifyRequest>(schemas);
    collect::<ClassifyAnswer<'static>>(schemas);
    collect::<PoolingRequest>(schemas);
    collect::<PoolingAnswer<'static>>(schemas);
    collect::<PoolingFields>(schemas);
    collect::<CohereEmbedRequest>(schemas);
    collect::<CohereEmbedAnswer>(schemas);
    collect::<TeiFields>(schemas);
    collect::<TeiRerankRequest>(schemas);
    collect::<TeiRank>(schemas);
    collect::<TeiPredictRequest>(schemas);
    collect::<TeiPrediction>(schemas);
    collect::<TeiEmbedRequest>(schemas);
    collect::<TeiEmbedSparseRequest>(schemas);
    collect::<TeiSparseValue>(schemas);
    collect::<TeiSimilarityRequest>(schemas);
    collect::<TeiErrorObject>(schemas);
}

/// The scalar parameters are fields of every generating route, and OpenAI's routes have what all
/// protocols have.
fn add_fields(described: &mut Value) {
    let common = &mut described["CommonFields"]["properties"];
    for (name, schema) in scalars::properties() {
        common[name] = schema;
    }
    let common = common.as_object().cloned().unwrap_or_default();
    let aliases = ["StructuredAliases", "Synonyms"]
        .into_iter()
        .filter_map(|of| described[of]["properties"].as_object().cloned());
    let aliases: Vec<_> = aliases.flatten().collect();
    for (name, schema) in common.into_iter().chain(aliases) {
        described["SamplingFields"]["properties"][name] = schema;
    }
}

fn collect<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// What is null or something else may be both, where the something else can be null: `anyOf`, not
/// `oneOf`.
fn any_may_be_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let choices = object.get("oneOf").and_then(Value::as_array);
            if choices.is_some_and(|choices| choices.iter().any(|one| one["type"] == "null")) {
                let choices = object.shift_remove("oneOf").unwrap_or_default();
                object.insert("anyOf".to_owned(), choices);
            }
            object.values_mut().for_each(any_may_be_null);
        }
        Value::Array(list) => list.iter_mut().for_each(any_may_be_null),
        _ => {}
    }
}

/// Descriptions without the marks that only the source's documentation has.
fn in_plain_words(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = plain(text);
            }
            object.values_mut().for_each(in_plain_words);
        }
        Value::Array(list) => list.iter_mut().for_each(in_plain_words),
        _ => {}
    }
}

/// One line, and names in place of links to them: ``[`Usage`](super::Usage)`` is `Usage`.
fn plain(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        words.push_str(before);
        let (name, after) = link.split_once("`]").unwrap_or((link, ""));
        words.push_str(name);
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    words.push_str(rest);
    words.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_names() {
        let text = "Beside\n[`Fields`](super::Fields), part of [`Usage`].";
        assert_eq!(plain(text), "Beside Fields, part of Usage.");
        assert_eq!(plain("a [b] (c)"), "a [b] (c)");
    }
}

//! The API of text-embeddings-inference: its routes, its shapes and its errors.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::config::Pooling;
use crate::engine::Outputs;
use crate::engine::request::Wanted;
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, Input, tokenize};
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::late_interaction;
use crate::http::generate::scoring::{Pairs, ScoringOptions, best_first};
use crate::http::generate::token_outputs::EmptyTokens;
use crate::http::openai::embeddings::{Prompts, checked_inputs};
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::state::AppState;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::completions::Prompt;
use crate::http::wire::embeddings::InputsField;
use crate::http::wire::number::integer;
use crate::http::wire::tei::{
    PredictInputs, TeiEmbedRequest, TeiEmbedSparseRequest, TeiFields, TeiPredictRequest,
    TeiPrediction, TeiRank, TeiRerankRequest, TeiSimilarityRequest, TeiSparseValue,
};
use crate::http::wire::texts::Texts;
use crate::text::tokenizer::{CutSide, EncodedPair};

pub(crate) mod error;

/// What this API calls the fields of all protocols.
const NAMES: FieldNames = FieldNames {
    prompt: "texts",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

type Answered = Result<Response, ApiError>;

/// A request's own fields, and those that all have.
#[derive(Debug)]
pub(crate) struct Body<T> {
    own: T,
    fields: TeiFields,
}

impl<T: serde::de::DeserializeOwned> RequestBody for Body<T> {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { own: body.take()?, fields: body.take()? })
    }
}

/// The body of a request for similarities, whose other fields stand in an object of their own.
#[derive(Debug)]
pub(crate) struct SimilarityBody(TeiSimilarityRequest);

impl RequestBody for SimilarityBody {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self(body.take()?))
    }
}

/// `POST /rerank` with `texts`: the texts' scores, best first.
pub(crate) async fn rerank(
    state: &AppState,
    extracted: Extracted<Body<TeiRerankRequest>>,
) -> Answered {
    let Extracted { body: Body { own, fields }, arrival, fields: left, .. } = extracted;
    let ignored = left.finish(state.config.strict)?;
    let query = own.query.ok_or_else(|| ApiError::field("query", "query is required"))?;
    let texts = counted(own.texts.unwrap_or_default(), "texts")?;
    let raw = own.raw_scores.unwrap_or(false);
    let scores =
        scored(state, &fields, arrival, "texts", Pairs::of_query(query, texts.clone()), raw);
    let scores = scores.await?;
    let shown = own.return_text.unwrap_or(false);
    let ranks = best_first(&scores).into_iter().map(|index| TeiRank {
        index,
        text: shown.then(|| texts[index].clone()),
        score: scores[index],
    });
    Ok(ignored.tell(axum::Json(ranks.collect::<Vec<_>>()).into_response()))
}

/// `POST /similarity`: how similar sentences are to one.
pub(crate) async fn similarity(
    State(state): State<AppState>,
    extracted: Extracted<SimilarityBody>,
) -> Answered {
    let Extracted { body: SimilarityBody(body), arrival, fields: left, .. } = extracted;
    let ignored = left.finish(state.config.strict)?;
    let inputs = body.inputs.ok_or_else(|| ApiError::field("inputs", "inputs is required"))?;
    let sentences = counted(inputs.sentences, "inputs.sentences")?;
    let pairs = Pairs::of_query(inputs.source_sentence, sentences);
    let fields = body.parameters.unwrap_or_default();
    let scores = scored(&state, &fields, arrival, "inputs", pairs, false).await?;
    Ok(ignored.tell(axum::Json(scores).into_response()))
}

async fn scored(
    state: &AppState,
    fields: &TeiFields,
    arrival: Arrival,
    field: &'static str,
    pairs: Pairs,
    raw: bool,
) -> Result<Vec<f32>, ApiError> {
    let options = ScoringOptions {
        embedding: embedding(
            &arrival,
            Wanted { activation: raw.then_some(false), ..Wanted::default() },
        )?,
        cutting: cutting(fields, state.longest_text(), field)?,
        most_tokens: [None; 2],
        instruction: None,
        variables: Map::new(),
        task: None,
        names: &NAMES,
        arrival,
    };
    Ok(options.run(state, pairs).await?.scores)
}

/// `POST /predict`: the classes of texts or of pairs of texts, the most likely first.
pub(crate) async fn predict(
    State(state): State<AppState>,
    extracted: Extracted<Body<TeiPredictRequest>>,
) -> Answered {
    let Extracted { body: Body { own, fields }, arrival, fields: left, .. } = extracted;
    let ignored = left.finish(state.config.strict)?;
    if state.engine.limits().outputs != Outputs::Classes {
        let error = ApiError::unsupported("model", "classes from a model that has none for texts");
        return Err(error);
    }
    let inputs = own.inputs.ok_or_else(|| ApiError::field("inputs", "inputs is required"))?;
    let PredictInputs { all, batch } = inputs;
    let all = counted(all, "inputs")?;
    let raw = own.raw_scores.unwrap_or(false);
    let options =
        embedding(&arrival, Wanted { activation: raw.then_some(false), ..Wanted::default() })?;
    let cutting = cutting(&fields, state.longest_text(), "inputs")?;
    let permit = state.admit(all.len())?;
    let tokenizer = state.tokenizer.clone();
    let encoded = off_thread(move || {
        all.iter()
            .map(|texts| {
                let ids = match &texts[..] {
                    [first, second] => {
                        let most = cutting.truncate.map(|most| (most, cutting.side));
                        tokenizer.encode_pair([first, second], most)
                    }
                    texts => {
                        let most = cutting.truncate.unwrap_or(usize::MAX);
                        let ids =
                            tokenizer.encode_within(&texts.concat(), true, most, cutting.side);
                        ids.map(|ids| EncodedPair { ids, second: None })
                    }
                };
                let ids = ids.map_err(|error| cutting.refusal(error, "inputs"))?;
                cutting.check(&ids.ids, "inputs")?;
                Ok(ids)
            })
            .collect::<Result<Vec<_>, ApiError>>()
    });
    let scores = options.run_pairs(&state, permit, encoded.await?).await?;
    let mut predictions = scores.into_iter().map(|scores| predictions(&scores, &state));
    let answer = match predictions.next() {
        Some(only) if !batch => axum::Json(only).into_response(),
        first => {
            axum::Json(first.into_iter().chain(predictions).collect::<Vec<_>>()).into_response()
        }
    };
    Ok(ignored.tell(answer))
}

fn predictions(scores: &[f32], state: &AppState) -> Vec<TeiPrediction> {
    let label = |at: usize| state.model.labels.get(at).cloned().unwrap_or_default();
    let order = best_first(scores).into_iter();
    order.map(|at| TeiPrediction { score: scores[at], label: label(at) }).collect()
}

/// `POST /embed`: texts as vectors.
pub(crate) async fn embed(
    State(state): State<AppState>,
    extracted: Extracted<Body<TeiEmbedRequest>>,
) -> Answered {
    embedded(state, extracted, false).await
}

/// `POST /embed_all`: the hidden states of every token of texts.
pub(crate) async fn embed_all(
    State(state): State<AppState>,
    extracted: Extracted<Body<TeiEmbedRequest>>,
) -> Answered {
    embedded(state, extracted, true).await
}

async fn embedded(
    state: AppState,
    extracted: Extracted<Body<TeiEmbedRequest>>,
    each_token: bool,
) -> Answered {
    let Extracted { body: Body { own, fields }, arrival, fields: left, .. } = extracted;
    let ignored = left.finish(state.config.strict)?;
    let limits = state.engine.limits();
    let outputs = match limits.outputs {
        Outputs::Embedding if each_token => Outputs::HiddenStates,
        own @ Outputs::Embedding => own,
        own @ Outputs::TokenEmbeddings if each_token => own,
        _ => {
            let error = ApiError::unsupported("model", "embeddings from a model that makes none");
            return Err(error);
        }
    };
    let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("dimensions", own.dimensions, 1, most)?;
    let activation = if each_token { None } else { Some(own.normalize.unwrap_or(true)) };
    let dimensions = dimensions.and_then(|dimensions| usize::try_from(dimensions).ok());
    let outputs = Some(outputs);
    let options = embedding(&arrival, Wanted { outputs, dimensions, activation })?;
    let cutting = cutting(&fields, state.longest_text(), "inputs")?;
    let named = own.prompt_name.as_deref();
    if let Some(late) = state.embedding_prompts.sides() {
        let side = late_interaction::side(named)?;
        let inputs = checked_texts(own.inputs, None, &state)?;
        let how = (cutting, &options);
        let (vectors, _) = late_interaction::vectors(&state, late, side, inputs, how).await?;
        let width = limits.embedding_size.max(1);
        let by_token = |vectors: Vec<f32>| vectors.chunks(width).map(<[f32]>::to_vec).collect();
        let by_text: Vec<Vec<Vec<f32>>> = vectors.into_iter().map(by_token).collect();
        return Ok(ignored.tell(axum::Json(by_text).into_response()));
    }
    let inputs = checked_texts(own.inputs, named, &state)?;
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, cutting).await?;
    let rows: Vec<usize> = texts.iter().map(Vec::len).collect();
    let vectors = options.run(&state, permit, texts).await?;
    if !each_token {
        return Ok(ignored.tell(axum::Json(vectors).into_response()));
    }
    let by_token = vectors.iter().zip(rows).map(|(vector, rows)| {
        let size = vector.len() / rows.max(1);
        vector.chunks(size.max(1)).map(<[f32]>::to_vec).collect()
    });
    Ok(ignored.tell(axum::Json(by_token.collect::<Vec<Vec<Vec<f32>>>>()).into_response()))
}

/// `POST /embed_sparse`: how much each token of the vocabulary says what texts are about.
pub(crate) async fn embed_sparse(
    State(state): State<AppState>,
    extracted: Extracted<Body<TeiEmbedSparseRequest>>,
) -> Answered {
    let Extracted { body: Body { own, fields }, arrival, fields: left, .. } = extracted;
    let ignored = left.finish(state.config.strict)?;
    let limits = state.engine.limits();
    let given =
        [Outputs::Lexical, Outputs::TokenWeights].into_iter().find(|one| limits.gives(*one));
    let Some(outputs) = given else {
        let what = "sparse embeddings from a model that makes none (--pooling splade)";
        return Err(ApiError::unsupported("model", what));
    };
    let options = embedding(&arrival, Wanted { outputs: given, ..Wanted::default() })?;
    let cutting = cutting(&fields, state.longest_text(), "inputs")?;
    let inputs = checked_texts(own.inputs, own.prompt_name.as_deref(), &state)?;
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, cutting).await?;
    let vectors = options.run(&state, permit, texts.clone()).await?;
    let empty = EmptyTokens::of(&state.tokenizer);
    let elements = |(vector, ids): (&Vec<f32>, &Vec<u32>)| -> Vec<TeiSparseValue> {
        let element = |(index, value)| TeiSparseValue { index, value };
        if outputs == Outputs::TokenWeights {
            let weights = empty.by_id(ids, vector).into_iter();
            weights.map(|(id, value)| element((id as usize, value))).collect()
        } else {
            let all = vector.iter().copied().enumerate();
            all.filter(|(_, value)| *value != 0.0).map(element).collect()
        }
    };
    let answer: Vec<Vec<TeiSparseValue>> = vectors.iter().zip(&texts).map(elements).collect();
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// The texts of a request, with the prompt of this name before each.
fn checked_texts(
    texts: Option<Texts>,
    prompt_name: Option<&str>,
    state: &AppState,
) -> Result<Vec<Input>, ApiError> {
    let texts = texts.ok_or_else(|| ApiError::field("inputs", "inputs is required"))?;
    let texts = counted(texts.all, "inputs")?.into_iter().map(Prompt::Text).collect();
    checked_inputs(Some(&InputsField(texts)), Prompts::named(prompt_name), state)
}

/// `GET /info`: what is served.
pub(crate) async fn info(State(state): State<AppState>) -> axum::Json<Value> {
    let limits = state.engine.limits();
    let labels = || -> Value {
        let names = state.model.labels.iter().enumerate();
        let ids = names.clone().map(|(at, name)| (at.to_string(), json!(name)));
        let by_name = names.map(|(at, name)| (name.clone(), json!(at)));
        json!({"id2label": ids.collect::<serde_json::Map<_, _>>(),
            "label2id": by_name.collect::<serde_json::Map<_, _>>()})
    };
    let kind = match limits.outputs {
        Outputs::Classes if limits.embedding_size == 1 => json!({"reranker": labels()}),
        Outputs::Classes | Outputs::TokenClasses => json!({"classifier": labels()}),
        Outputs::Embedding
        | Outputs::TokenEmbeddings
        | Outputs::Lexical
        | Outputs::TokenWeights
        | Outputs::HiddenStates => {
            json!({"embedding": {"pooling": pooling(limits.pooling)}})
        }
    };
    axum::Json(json!({
        "model_id": state.model_name(),
        "model_sha": null,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": state.admission.capacity(),
        "max_input_length": state.longest_text(),
        "max_batch_tokens": limits.max_batch_tokens,
        "max_batch_requests": limits.max_num_seqs,
        "max_client_batch_size": MAX_INPUTS,
        "auto_truncate": false,
        "tokenization_workers": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
    }))
}

/// What this API calls a way of pooling.
fn pooling(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Last => "last_token",
        other => other.name(),
    }
}

fn embedding(arrival: &Arrival, wanted: Wanted) -> Result<EmbeddingOptions, ApiError> {
    Ok(EmbeddingOptions {
        adapter: None,
        wanted,
        priority: arrival.priority(0),
        cache_salt: None,
        arrival: arrival.at,
        deadline: arrival.deadline(None)?,
    })
}

fn cutting(fields: &TeiFields, longest: usize, field: &'static str) -> Result<Cutting, ApiError> {
    let side = match fields.truncation_direction.as_deref() {
        None | Some("Right" | "right") => CutSide::Right,
        Some("Left" | "left") => CutSide::Left,
        Some(other) => {
            let message = format!("truncation_direction must be Left or Right, got {other:?}");
            return Err(ApiError::field("truncation_direction", message));
        }
    };
    let cuts = fields.truncate.unwrap_or(false);
    Ok(Cutting {
        truncate: cuts.then_some(longest),
        side,
        longest,
        add_special_tokens: true,
        field,
        cut_by: "truncate",
    })
}

/// The items of a field: at least one, and none too many.
fn counted<T>(items: Vec<T>, field: &str) -> Result<Vec<T>, ApiError> {
    if items.is_empty() || items.len() > MAX_INPUTS {
        let message = format!("{field} must have 1 to {MAX_INPUTS} texts, got {}", items.len());
        return Err(ApiError::field(field, message));
    }
    Ok(items)
}

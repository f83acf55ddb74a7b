//! `/pooling`: whatever the model makes of texts, as numbers, in vLLM's shape: embeddings, classes, or
//! one of these for every token; weights of tokens are one number each.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::options::field;
use crate::engine::{EngineLimits, Outputs};
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions, Input, tokenize};
use crate::http::generate::late_interaction;
use crate::http::generate::token_outputs::EmptyTokens;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::openai::embeddings::encoding::Encoding;
use crate::http::openai::embeddings::{Prompts, conversation, inputs};
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::embeddings::{ConversationFields, EmbeddingUsage};
use crate::http::wire::number::integer;
use crate::http::wire::ranking::{
    Pooled, PooledNumbers, PoolingAnswer, PoolingFields, PoolingRequest,
};

/// The body of a request for pooling.
#[derive(Debug)]
pub(crate) struct PoolingBody {
    request: PoolingRequest,
    conversation: ConversationFields,
    fields: PoolingFields,
}

impl RequestBody for PoolingBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, conversation: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /pooling`.
pub(crate) async fn pooling(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    extracted: Extracted<PoolingBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = extracted;
    let PoolingBody { request, conversation, fields: own } = body;
    let conversation = conversation::read(&conversation, request.input.is_some(), &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let limits = state.engine.limits();
    let outputs = outputs(request.task.as_deref(), limits)?;
    let encoding = Encoding::new(
        request.encoding_format.as_deref(),
        request.embed_dtype.as_deref(),
        request.endianness.as_deref(),
    )?;
    let mut options = own.embedding(adapter, &arrival)?;
    options.wanted.outputs = Some(outputs);
    options.wanted.dimensions = dimensions(&request, outputs, limits)?;
    let cutting = own.cutting(state.longest_text(), field(conversation.is_some()))?;
    let named = request.prompt_name.as_deref();
    let sides = state.embedding_prompts.sides();
    let late = sides.filter(|_| outputs == Outputs::TokenEmbeddings);
    let prompts = if late.is_some() { Prompts::default() } else { Prompts::named(named) };
    let inputs = inputs(conversation, request.input.as_ref(), prompts, &state).await?;
    let (vectors, prompt_tokens) = match late {
        Some(own) => {
            let side = late_interaction::side(named)?;
            late_interaction::vectors(&state, own, side, inputs, (cutting, &options)).await?
        }
        None => vectors(&state, inputs, cutting, &options, outputs).await?,
    };
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    if encoding.is_bytes() {
        return Ok(ignored.tell(encoding.answer(vectors, &model, usage)));
    }
    // The numbers of each token's vector; weights stand one beside the other.
    let size = match outputs {
        Outputs::TokenWeights => None,
        Outputs::HiddenStates => Some(limits.hidden_size),
        outputs if outputs.is_of_tokens() => {
            Some(limits.further_size(outputs).unwrap_or(limits.embedding_size))
        }
        _ => None,
    };
    let pooled = |(index, vector): (usize, Vec<f32>)| {
        let data = match (encoding.base64(&vector), size) {
            (Some(text), _) => PooledNumbers::Base64(text),
            (None, Some(size)) => {
                PooledNumbers::OfTokens(vector.chunks(size.max(1)).map(<[f32]>::to_vec).collect())
            }
            (None, None) => PooledNumbers::One(vector),
        };
        Pooled { index, object: "pooling", data }
    };
    let answer = PoolingAnswer {
        id: id.or_in_body("pool-", None),
        object: "list",
        created: unix_seconds(),
        model: &model,
        data: vectors.into_iter().enumerate().map(pooled).collect(),
        usage,
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// The vectors of inputs, and how many tokens they have.
async fn vectors(
    state: &AppState,
    inputs: Vec<Input>,
    cutting: Cutting,
    options: &EmbeddingOptions,
    outputs: Outputs,
) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(state, inputs, cutting).await?;
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    // A further head's vectors are of tokens of which not all count.
    let counted = state.engine.limits().further_size(outputs).map(|_| texts.clone());
    let mut vectors = options.run(state, permit, texts).await?;
    if let Some(texts) = counted {
        let empty = EmptyTokens::of(&state.tokenizer);
        for (vector, ids) in vectors.iter_mut().zip(&texts) {
            *vector = empty.without(outputs, ids, vector);
        }
    }
    Ok((vectors, prompt_tokens))
}

/// What a task asks for, which must be something that the model gives.
fn outputs(task: Option<&str>, limits: &EngineLimits) -> Result<Outputs, ApiError> {
    let own = limits.outputs;
    // The first of several that it has.
    let wanted: &[Outputs] = match task {
        None => return Ok(own),
        Some("embed") => &[Outputs::Embedding, Outputs::Lexical],
        Some("classify" | "score") => &[Outputs::Classes],
        Some("token_classify") => &[Outputs::TokenClasses, Outputs::TokenWeights],
        Some("encode") if own.is_of_classes() => &[Outputs::TokenClasses],
        Some("token_embed" | "encode") => &[Outputs::TokenEmbeddings, Outputs::HiddenStates],
        Some(other) => {
            let message = format!(
                "task must be one of embed, classify, score, token_embed, token_classify and \
                 encode, got {other:?}"
            );
            return Err(ApiError::field("task", message));
        }
    };
    wanted.iter().copied().find(|one| limits.gives(*one)).ok_or_else(|| {
        let task = task.unwrap_or_default();
        ApiError::unsupported("task", &format!("{task:?} from a model that gives {own:?}"))
    })
}

fn dimensions(
    request: &PoolingRequest,
    outputs: Outputs,
    limits: &EngineLimits,
) -> Result<Option<usize>, ApiError> {
    if request.dimensions.is_some() && !matches!(outputs, Outputs::Embedding | Outputs::Lexical) {
        return Err(ApiError::unsupported("dimensions", "fewer numbers of other than embeddings"));
    }
    let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("dimensions", request.dimensions, 1, most)?;
    Ok(dimensions.and_then(|dimensions| usize::try_from(dimensions).ok()))
}

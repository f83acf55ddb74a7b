//! `/pooling`: whatever the model makes of texts, as numbers, in vLLM's shape: embeddings, classes, or
//! one of these for every token.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::engine::{EngineLimits, Outputs};
use crate::http::error::ApiError;
use crate::http::generate::embedding::tokenize;
use crate::http::openai::embeddings::checked_inputs;
use crate::http::openai::embeddings::encoding::Encoding;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::embeddings::EmbeddingUsage;
use crate::http::wire::number::integer;
use crate::http::wire::ranking::{
    Pooled, PooledNumbers, PoolingAnswer, PoolingFields, PoolingRequest,
};

/// The body of a request for pooling.
#[derive(Debug)]
pub(crate) struct PoolingBody {
    request: PoolingRequest,
    fields: PoolingFields,
}

impl RequestBody for PoolingBody {
    const RULES: &'static [Rules] = &[COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, fields: body.take()? })
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
    let Extracted { body, model, adapter, arrival, fields } = extracted;
    let PoolingBody { request, fields: own } = body;
    let ignored = fields.finish(state.config.strict)?;
    let limits = state.engine.limits();
    let outputs = outputs(request.task.as_deref(), limits.outputs)?;
    let encoding = Encoding::new(
        request.encoding_format.as_deref(),
        request.embed_dtype.as_deref(),
        request.endianness.as_deref(),
    )?;
    let mut options = own.embedding(adapter, &arrival)?;
    options.wanted.each_token = outputs.is_of_tokens();
    options.wanted.dimensions = dimensions(&request, outputs, limits)?;
    let cutting = own.cutting(state.longest_text(), "input")?;
    let inputs = checked_inputs(request.input.as_ref(), None, &state)?;
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, cutting).await?;
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    let rows: Vec<usize> = texts.iter().map(Vec::len).collect();
    let vectors = options.run(&state, permit, texts).await?;
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    if encoding.is_bytes() {
        return Ok(ignored.tell(encoding.answer(vectors, &model, usage)));
    }
    let pooled = |((index, vector), rows): ((usize, Vec<f32>), usize)| {
        let data = match encoding.base64(&vector) {
            Some(text) => PooledNumbers::Base64(text),
            None if outputs.is_of_tokens() => {
                let size = vector.len() / rows.max(1);
                PooledNumbers::OfTokens(vector.chunks(size.max(1)).map(<[f32]>::to_vec).collect())
            }
            None => PooledNumbers::One(vector),
        };
        Pooled { index, object: "pooling", data }
    };
    let answer = PoolingAnswer {
        id: id.or_in_body("pool-", None),
        object: "list",
        created: unix_seconds(),
        model: &model,
        data: vectors.into_iter().enumerate().zip(rows).map(pooled).collect(),
        usage,
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// What a task asks for, which must be something that the model gives.
fn outputs(task: Option<&str>, own: Outputs) -> Result<Outputs, ApiError> {
    let wanted = match task {
        None => return Ok(own),
        Some("embed") => Outputs::Embedding,
        Some("classify" | "score") => Outputs::Classes,
        Some("token_classify") => Outputs::TokenClasses,
        Some("encode") if own.is_of_classes() => Outputs::TokenClasses,
        Some("token_embed" | "encode") => Outputs::TokenEmbeddings,
        Some(other) => {
            let message = format!(
                "task must be one of embed, classify, score, token_embed, token_classify and \
                 encode, got {other:?}"
            );
            return Err(ApiError::field("task", message));
        }
    };
    // Any embedding model has hidden states of tokens.
    let has = wanted == own
        || (wanted, own) == (Outputs::TokenEmbeddings, Outputs::Embedding)
        || (wanted, own) == (Outputs::Embedding, Outputs::Lexical);
    if has {
        Ok(wanted)
    } else {
        let task = task.unwrap_or_default();
        Err(ApiError::unsupported("task", &format!("{task:?} from a model that gives {own:?}")))
    }
}

fn dimensions(
    request: &PoolingRequest,
    outputs: Outputs,
    limits: &EngineLimits,
) -> Result<Option<usize>, ApiError> {
    if request.dimensions.is_some() && outputs != Outputs::Embedding {
        return Err(ApiError::unsupported("dimensions", "fewer numbers of other than embeddings"));
    }
    let most = i64::try_from(limits.embedding_size).unwrap_or(i64::MAX);
    let dimensions = integer("dimensions", request.dimensions, 1, most)?;
    Ok(dimensions.and_then(|dimensions| usize::try_from(dimensions).ok()))
}

//! `/classify` and `/v1/classify`: how well texts fit each class of the model, in vLLM's shape.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::options::field;
use crate::engine::Outputs;
use crate::http::error::ApiError;
use crate::http::generate::embedding::tokenize;
use crate::http::generate::scoring::best_first;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::openai::embeddings::{Prompts, conversation, inputs};
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::embeddings::{ConversationFields, EmbeddingUsage};
use crate::http::wire::ranking::{Classified, ClassifyAnswer, ClassifyRequest, PoolingFields};

/// The body of a request for classes.
#[derive(Debug)]
pub(crate) struct ClassifyBody {
    request: ClassifyRequest,
    conversation: ConversationFields,
    fields: PoolingFields,
}

impl RequestBody for ClassifyBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, conversation: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /classify`.
pub(crate) async fn classify(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    extracted: Extracted<ClassifyBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = extracted;
    let ClassifyBody { request, conversation, fields: own } = body;
    let conversation = conversation::read(&conversation, request.input.is_some(), &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    if state.engine.limits().outputs != Outputs::Classes {
        return Err(ApiError::unsupported("model", "classes from a model that has none for texts"));
    }
    let options = own.embedding(adapter, &arrival)?;
    let cutting = own.cutting(state.longest_text(), field(conversation.is_some()))?;
    let prompts = Prompts::default();
    let inputs = inputs(conversation, request.input.as_ref(), prompts, &state).await?;
    let permit = state.admit(inputs.len())?;
    let texts = tokenize(&state, inputs, cutting).await?;
    let prompt_tokens = texts.iter().map(Vec::len).sum();
    let scores = options.run(&state, permit, texts).await?;
    let answer = ClassifyAnswer {
        id: id.or_in_body("classify-", None),
        object: "list",
        created: unix_seconds(),
        model: &model,
        data: scores.into_iter().enumerate().map(|(at, row)| classified(at, row, &state)).collect(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

fn classified(index: usize, probs: Vec<f32>, state: &AppState) -> Classified<'_> {
    let best = best_first(&probs).first().copied().unwrap_or(0);
    let label = state.model.labels.get(best).map_or("", String::as_str);
    Classified { index, label, num_classes: probs.len(), probs }
}

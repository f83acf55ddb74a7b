//! `/score` and `/v1/score`: how well texts go together, pair by pair, in vLLM's shape.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::input::texts;
use super::options::Asked;
use crate::http::error::ApiError;
use crate::http::generate::scoring::{Pairs, Scores};
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::embeddings::EmbeddingUsage;
use crate::http::wire::ranking::{PairScore, PoolingFields, ScoreAnswer, ScoreRequest};

/// The body of a request for scores.
#[derive(Debug)]
pub(crate) struct ScoreBody {
    request: ScoreRequest,
    fields: PoolingFields,
}

impl RequestBody for ScoreBody {
    const RULES: &'static [Rules] = &[COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /score`.
pub(crate) async fn score(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    extracted: Extracted<ScoreBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, fields } = extracted;
    let ScoreBody { mut request, fields: own } = body;
    let ignored = fields.finish(state.config.strict)?;
    let asked = Asked {
        max_tokens_per_query: request.max_tokens_per_query,
        max_tokens_per_doc: request.max_tokens_per_doc,
        instruction: request.instruction.take(),
        chat_template_kwargs: request.chat_template_kwargs.take(),
        task: request.task.take(),
    };
    let cutting = own.cutting(state.longest_text(), "text_2")?;
    let options = own.scoring(asked, cutting, adapter, arrival)?;
    let Scores { scores, prompt_tokens } = options.run(&state, pairs(request)?).await?;
    let scored = |(index, score)| PairScore { index, object: "score", score };
    let answer = ScoreAnswer {
        id: id.or_in_body("score-", None),
        object: "list",
        created: unix_seconds(),
        model: &model,
        data: scores.into_iter().enumerate().map(scored).collect(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// One text beside several, or as many beside as many.
fn pairs(request: ScoreRequest) -> Result<Pairs, ApiError> {
    let ScoreRequest { text_1, text_2, queries, documents, items, data_1, data_2, .. } = request;
    let first = texts(queries.or(text_1).or(data_1), "text_1")?;
    let second = texts(documents.or(items).or(text_2).or(data_2), "text_2")?;
    let (left, right) = (first.len(), second.len());
    match <[String; 1]>::try_from(first) {
        Ok([query]) => Ok(Pairs::of_query(query, second)),
        Err(first) if left == right => Ok(Pairs::side_by_side(first, second)),
        Err(_) => {
            let message = format!(
                "text_1 and text_2 must have as many texts, or text_1 one: got {left} and {right}"
            );
            Err(ApiError::field("text_1", message))
        }
    }
}

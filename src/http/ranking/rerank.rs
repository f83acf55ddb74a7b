//! `/rerank`, `/v1/rerank` and `/v2/rerank`: documents in the order in which they answer a query.
//!
//! One answer has the fields that vLLM, Jina and Cohere give. A body with `texts` in place of
//! `documents` is text-embeddings-inference's, which has a shape of its own.

use axum::Extension;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap};
use axum::response::{IntoResponse, Response};

use super::input::{one_text, texts};
use super::options::Asked;
use crate::http::error::ApiError;
use crate::http::generate::scoring::{Pairs, Scores, best_first};
use crate::http::request::arrival::Arrival;
use crate::http::request::body::JsonBody;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::tei;
use crate::http::wire::embeddings::EmbeddingUsage;
use crate::http::wire::number::integer;
use crate::http::wire::ranking::{
    ApiVersion, InputTokens, PoolingFields, RerankAnswer, RerankMeta, RerankRequest, RerankResult,
    SearchUnits,
};
use crate::http::wire::texts::DocumentText;

/// Documents that Cohere counts as one search.
const DOCUMENTS_PER_SEARCH: usize = 100;

/// The body of a request to rerank.
#[derive(Debug)]
pub(crate) struct RerankBody {
    request: RerankRequest,
    fields: PoolingFields,
}

impl RequestBody for RerankBody {
    const RULES: &'static [Rules] = &[COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /rerank`, whose body says whose shape it has.
pub(crate) async fn rerank(
    State(state): State<AppState>,
    id: Extension<RequestId>,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(json): JsonBody,
) -> Result<Response, ApiError> {
    let arrival = Arrival::now(&headers, &extensions)?;
    if json.get("texts").is_some() && json.get("documents").is_none() {
        let answered = match Extracted::read(&json, arrival, &state) {
            Ok(read) => tei::rerank(&state, read).await,
            Err(error) => Err(error),
        };
        return Ok(answered.unwrap_or_else(tei::error::response));
    }
    let read = Extracted::read(&json, arrival, &state)?;
    rerank_documents(State(state), id, read).await
}

/// `POST /v1/rerank` and `POST /v2/rerank`.
pub(crate) async fn rerank_documents(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    extracted: Extracted<RerankBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, fields } = extracted;
    let RerankBody { request, fields: own } = body;
    let ignored = fields.finish(state.config.strict)?;
    let query = one_text(request.query.as_ref(), "query")?;
    let documents = texts(request.documents, "documents")?;
    let most = i64::try_from(documents.len()).unwrap_or(i64::MAX);
    let top_n = integer("top_n", request.top_n, 0, i64::MAX)?.filter(|count| *count > 0);
    let top_n = usize::try_from(top_n.unwrap_or(most)).unwrap_or(usize::MAX);
    let asked = Asked {
        max_tokens_per_query: request.max_tokens_per_query,
        max_tokens_per_doc: request.max_tokens_per_doc,
        instruction: request.instruction,
        chat_template_kwargs: request.chat_template_kwargs,
        task: request.task,
    };
    let cutting = own.cutting(state.longest_text(), "documents")?;
    let options = own.scoring(asked, cutting, adapter, arrival)?;
    let pairs = Pairs::of_query(query, documents.clone());
    let Scores { scores, prompt_tokens } = options.run(&state, pairs).await?;
    let searches = documents.len().div_ceil(DOCUMENTS_PER_SEARCH);
    let shown = request.return_documents.unwrap_or(true);
    let mut documents: Vec<_> =
        documents.into_iter().map(|text| Some(DocumentText { text })).collect();
    let results = best_first(&scores).into_iter().take(top_n).map(|index| RerankResult {
        index,
        relevance_score: scores[index],
        document: if shown { documents[index].take() } else { None },
    });
    let answer = RerankAnswer {
        id: id.or_in_body("rerank-", None),
        object: "list",
        model: &model,
        results: results.collect(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
        meta: RerankMeta {
            api_version: ApiVersion { version: "2" },
            billed_units: SearchUnits { search_units: searches },
            tokens: InputTokens { input_tokens: prompt_tokens },
        },
    };
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

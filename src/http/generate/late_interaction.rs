//! Texts to the tokens of a query or of a document, where a model compares texts token by token and
//! reads each in its own way. See [`crate::text::late_interaction`].

use tracing::Instrument;

use super::embedding::{Cutting, EmbeddingOptions, Input, name};
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::telemetry;
use crate::text::late_interaction::{LateInteraction, Side, SidedIds};

/// The side that the name of a prompt says; without one a text is a document.
pub(crate) fn side(prompt_name: Option<&str>) -> Result<Side, ApiError> {
    match prompt_name {
        Some("query") => Ok(Side::Query),
        None | Some("document") => Ok(Side::Document),
        Some(other) => {
            let message = format!("prompt_name must be query or document, got {other:?}");
            Err(ApiError::field("prompt_name", message))
        }
    }
}

/// The tokens of texts, each of its side. Token ids are taken as they are.
pub(crate) async fn tokenize(
    state: &AppState,
    own: &LateInteraction,
    texts: Vec<(Side, Input)>,
    cutting: Cutting,
) -> Result<Vec<SidedIds>, ApiError> {
    let tokenizer = state.tokenizer.clone();
    let own = own.clone();
    let context = state.engine.limits().max_text_len;
    let Cutting { truncate, side: cut, add_special_tokens, field, .. } = cutting;
    off_thread(move || {
        let count = texts.len();
        let encoded = texts.into_iter().enumerate().map(|(index, (side, input))| {
            let name = name(field, index, count);
            let text = match input {
                Input::Ids(ids) => {
                    let ids = cut.keep(&ids, truncate.unwrap_or(usize::MAX)).to_vec();
                    Cutting { longest: context, ..cutting }.check(&ids, &name)?;
                    return Ok(SidedIds { ids, unseen: 0 });
                }
                Input::Text(text) => format!("{}{text}", own.prompt(side)),
            };
            let room = own.room(side, truncate.unwrap_or(usize::MAX).min(context));
            let ids = match truncate {
                None => tokenizer.encode_at_most(&text, add_special_tokens, room),
                Some(_) => tokenizer.encode_within(&text, add_special_tokens, room, cut),
            };
            let bounded = Cutting { longest: room, ..cutting };
            let ids = ids.map_err(|error| bounded.refusal(error, &name))?;
            bounded.check(&ids, &name)?;
            Ok(own.finish(side, ids, context))
        });
        encoded.collect()
    })
    .instrument(telemetry::stage("render"))
    .await
}

/// The vectors of the tokens that count of each text of one side, and how many tokens all texts have.
pub(crate) async fn vectors(
    state: &AppState,
    own: &LateInteraction,
    side: Side,
    inputs: Vec<Input>,
    (cutting, options): (Cutting, &EmbeddingOptions),
) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let permit = state.admit(inputs.len())?;
    let texts = inputs.into_iter().map(|input| (side, input)).collect();
    let texts = tokenize(state, own, texts, cutting).await?;
    let prompt_tokens = texts.iter().map(|text| text.ids.len()).sum();
    let vectors = options.run_sided(state, permit, texts.clone()).await?;
    let counted = vectors.into_iter().zip(&texts);
    let counted = counted.map(|(vectors, text)| own.counted(side, &text.ids, vectors));
    Ok((counted.collect(), prompt_tokens))
}

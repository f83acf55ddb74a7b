//! What requests for scores and classes say of how they are computed, checked.

use crate::engine::adapter::Adapter;
use crate::engine::request::Wanted;
use crate::http::error::ApiError;
use crate::http::generate::embedding::{Cutting, EmbeddingOptions};
use crate::http::generate::options::{cache_salt, priority};
use crate::http::openai::sampling::cut_side;
use crate::http::request::arrival::Arrival;
use crate::http::wire::number::integer;
use crate::http::wire::ranking::PoolingFields;
use crate::text::tokenizer::CutSide;

const TRUNCATE: &str = "truncate_prompt_tokens";

impl PoolingFields {
    /// What the engine is told beside the texts.
    pub(super) fn embedding(
        &self,
        adapter: Option<Adapter>,
        arrival: &Arrival,
    ) -> Result<EmbeddingOptions, ApiError> {
        let activation = self.use_activation.or(self.activation).or(self.softmax);
        Ok(EmbeddingOptions {
            adapter,
            wanted: Wanted { activation, ..Wanted::default() },
            priority: arrival.priority(priority(self.priority)?.unwrap_or(0)),
            cache_salt: cache_salt(self.cache_salt.as_deref())?,
            arrival: arrival.at,
            deadline: arrival.deadline(self.deadline_ms)?,
        })
    }

    /// What is done with long texts, which the field `field` holds.
    pub(super) fn cutting(&self, longest: usize, field: &'static str) -> Result<Cutting, ApiError> {
        let most = i64::try_from(longest).unwrap_or(i64::MAX);
        let truncate = match integer(TRUNCATE, self.truncate_prompt_tokens, -1, most)? {
            None => None,
            Some(-1) => Some(longest),
            Some(0) => {
                let message = format!("{TRUNCATE} must be -1 or in [1, {longest}], got 0");
                return Err(ApiError::field(TRUNCATE, message));
            }
            Some(count) => usize::try_from(count).ok(),
        };
        Ok(Cutting {
            truncate,
            side: cut_side(self.truncation_side.as_deref(), CutSide::Right)?,
            longest,
            add_special_tokens: self.add_special_tokens.unwrap_or(true),
            field,
            cut_by: TRUNCATE,
        })
    }
}

//! Texts of prompts to ids, within the context of the model.

use std::sync::Arc;

use super::field_names::FieldNames;
use super::options::PromptCut;
use crate::http::error::{ApiError, ContextExceeded};
use crate::http::state::AppState;
use crate::text::tokenizer::{Encoded, Tokenizer, TokenizerError};

/// Texts of one request to the ids of its prompts.
#[derive(Debug)]
pub(crate) struct PromptEncoder {
    pub(super) tokenizer: Arc<Tokenizer>,
    context: usize,
    cut: Option<PromptCut>,
    offsets: bool,
    names: &'static FieldNames,
}

impl PromptEncoder {
    pub(crate) fn new(
        state: &AppState,
        cut: Option<PromptCut>,
        names: &'static FieldNames,
    ) -> Self {
        let context = state.engine.limits().max_model_len;
        let tokenizer = Arc::clone(&state.tokenizer);
        Self { tokenizer, context, cut, offsets: false, names }
    }

    /// Whether to tell where in the text each token stands.
    pub(crate) fn telling_offsets(self, offsets: bool) -> Self {
        Self { offsets, ..self }
    }

    /// Whether prompts may lose tokens.
    pub(crate) fn cuts(&self) -> bool {
        self.cut.is_some()
    }

    /// The ids of a prompt; one that may not be cut is refused early where it is far longer than the
    /// context.
    pub(crate) fn encode(&self, text: &str, special_tokens: bool) -> Result<Encoded, ApiError> {
        let Self { tokenizer, context, .. } = self;
        let without = |ids| Encoded { ids, offsets: None };
        let encoded = match self.cut {
            _ if self.offsets => tokenizer.encode_with_offsets(text, special_tokens),
            Some(_) => tokenizer.encode(text, special_tokens).map(without),
            None => tokenizer.encode_at_most(text, special_tokens, *context).map(without),
        };
        encoded.map(|encoded| self.kept(encoded)).map_err(|error| self.refused(error))
    }

    /// The ids of prompts that begin alike, none of which is cut, without special tokens around them.
    pub(crate) fn encode_alike(&self, texts: &[String]) -> Result<Vec<Vec<u32>>, ApiError> {
        let encoded = self.tokenizer.encode_alike(texts, self.context);
        encoded.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: TokenizerError) -> ApiError {
        match error {
            TokenizerError::TooLong(tokens) => {
                let (context, prompt) = (self.context, tokens.saturating_add(1));
                let param = self.names.prompt;
                ApiError::ContextExceeded(ContextExceeded { context, prompt, param, answer: None })
            }
            error => ApiError::field(self.names.prompt, error.to_string()),
        }
    }

    /// What the request wants to keep of a prompt.
    pub(crate) fn kept(&self, encoded: Encoded) -> Encoded {
        match self.cut {
            Some(cut) if encoded.ids.len() > cut.most => Encoded {
                ids: cut.side.keep(&encoded.ids, cut.most).to_vec(),
                offsets: encoded.offsets.map(|all| cut.side.keep(&all, cut.most).to_vec()),
            },
            _ => encoded,
        }
    }
}

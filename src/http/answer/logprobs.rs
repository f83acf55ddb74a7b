//! Logprobs of tokens as the two endpoints spell them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::delta::TokenRecord;
use crate::http::wire::chat::{
    ChatLogprobs, PromptLogprobs, PromptTokenLogprob, TokenChoice, TokenLogprob,
};
use crate::http::wire::completions::CompletionLogprobs;
use crate::sampling::logprobs::TokenLogprobs;
use crate::text::tokenizer::Tokenizer;

/// What stands for "impossible", since JSON has no infinity.
const FLOOR: f64 = -9999.0;

/// Spells tokens for one request.
#[derive(Clone, Debug)]
pub(crate) struct LogprobSpelling {
    tokenizer: Arc<Tokenizer>,
    /// Write `token_id:N` instead of texts.
    as_token_ids: bool,
    skip_special_tokens: bool,
}

impl LogprobSpelling {
    /// Spells tokens as texts or, with `as_token_ids`, as `token_id:N`.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        as_token_ids: bool,
        skip_special_tokens: bool,
    ) -> Self {
        Self { tokenizer, as_token_ids, skip_special_tokens }
    }

    /// One entry per token.
    pub(crate) fn chat(&self, tokens: &[TokenRecord]) -> ChatLogprobs {
        let entries = tokens.iter().filter_map(|record| record.logprobs.as_ref());
        let content = entries.map(|entry| TokenLogprob {
            token: self.choice(entry.token_id, entry.logprob),
            top_logprobs: entry.top.iter().map(|(id, value)| self.choice(*id, *value)).collect(),
        });
        ChatLogprobs { content: content.collect(), refusal: None }
    }

    /// One entry per token and column. `offset` is where the first token begins in the text of the
    /// choice, in characters, and is moved behind the last.
    pub(crate) fn completion(
        &self,
        tokens: &[TokenRecord],
        offset: &mut usize,
    ) -> CompletionLogprobs {
        let mut columns = CompletionLogprobs::default();
        for record in tokens {
            let begins = *offset;
            *offset += self.chars_begun(record.id);
            let Some(entry) = &record.logprobs else { continue };
            columns.text_offset.push(begins);
            columns.token_logprobs.push(Some(floored(entry.logprob)));
            columns.tokens.push(self.text(entry.token_id));
            columns.top_logprobs.push(Some(self.top(entry, u32::MAX)));
        }
        columns
    }

    /// One entry per token and column for a prompt of `ids` that stands in the answer as `text`;
    /// `scored` are the logprobs from the second token on, with the `most` most likely ones.
    pub(crate) fn echo(
        &self,
        ids: &[u32],
        scored: &[TokenLogprobs],
        text: &str,
        most: u32,
    ) -> CompletionLogprobs {
        let mut columns = CompletionLogprobs::default();
        let scored = std::iter::once(None).chain(scored.iter().map(Some));
        let (mut rest, mut offset) = (text, 0);
        for (id, score) in ids.iter().zip(scored) {
            columns.text_offset.push(offset);
            columns.tokens.push(self.text(*id));
            columns.token_logprobs.push(score.map(|score| floored(score.logprob)));
            columns.top_logprobs.push(score.map(|score| self.top(score, most)));
            let bytes = self.tokenizer.token_bytes(*id);
            // A special token that was put before the text is no part of it.
            let shows = !self.tokenizer.is_special(*id) || rest.as_bytes().starts_with(&bytes);
            let begun = if shows { chars_begun(&bytes) } else { 0 };
            let behind = rest.char_indices().nth(begun).map_or(rest.len(), |(at, _)| at);
            rest = &rest[behind..];
            offset += begun;
        }
        columns
    }

    /// The logprobs of a prompt from its second token on, with the `most` most likely ones.
    pub(crate) fn prompt(&self, scored: &[TokenLogprobs], most: u32) -> PromptLogprobs {
        let entries = scored.iter().map(|score| {
            let top = score
                .top
                .iter()
                .take(most as usize)
                .zip(1..)
                .map(|((id, logprob), rank)| (*id, *logprob, rank));
            let own = (score.token_id, score.logprob, score.rank);
            let entries = top.chain(std::iter::once(own)).map(|(id, logprob, rank)| {
                let decoded_token = self.text(id);
                (id, PromptTokenLogprob { logprob: floored(logprob), rank, decoded_token })
            });
            Some(entries.collect())
        });
        std::iter::once(None).chain(entries).collect()
    }

    fn top(&self, entry: &TokenLogprobs, most: u32) -> Map<String, Value> {
        let mut top = Map::new();
        let own = std::iter::once((entry.token_id, entry.logprob));
        for (id, value) in own.chain(entry.top.iter().copied().take(most as usize)) {
            top.entry(self.text(id)).or_insert_with(|| Value::from(floored(value)));
        }
        top
    }

    fn choice(&self, id: u32, logprob: f32) -> TokenChoice {
        TokenChoice {
            token: self.text(id),
            logprob: floored(logprob),
            bytes: self.tokenizer.token_bytes(id),
        }
    }

    fn text(&self, id: u32) -> String {
        if self.as_token_ids { format!("token_id:{id}") } else { self.tokenizer.token_text(id) }
    }

    /// Characters whose first byte is in the token, if it shows in the text at all.
    fn chars_begun(&self, id: u32) -> usize {
        if self.skip_special_tokens && self.tokenizer.is_special(id) {
            return 0;
        }
        chars_begun(&self.tokenizer.token_bytes(id))
    }
}

fn chars_begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

/// In f64, so that every way to write the number writes the same digits.
fn floored(logprob: f32) -> f64 {
    f64::from(logprob).max(FLOOR)
}

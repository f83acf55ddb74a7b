//! What the engine can do, and the checks of requests that follow from it.

use super::request::EmbeddingRequest;

/// What the engine can do, fixed at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Most tokens of a sequence, prompt and output together.
    pub max_model_len: usize,
    /// Most tokens of a text to embed.
    pub max_text_len: usize,
    /// Number of tokens in the vocabulary; a valid token id is below it.
    pub vocab_size: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens a KV block holds.
    pub block_size: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Elements of an embedding, unless a request asks for fewer.
    pub embedding_size: usize,
    /// Whether the model continues texts; otherwise it only embeds them.
    pub generates: bool,
}

impl EngineLimits {
    /// Checks that a prompt has tokens, and that the model knows them.
    pub(super) fn check_tokens(&self, tokens: &[u32]) -> Result<(), String> {
        let vocab_size = self.vocab_size;
        if tokens.is_empty() {
            return Err("the prompt has no tokens".to_owned());
        }
        match tokens.iter().find(|token| **token as usize >= vocab_size) {
            Some(token) => {
                Err(format!("token id {token} is outside the vocabulary of {vocab_size} tokens"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the model can embed a text as asked.
    pub(super) fn check_embedding(&self, request: &EmbeddingRequest) -> Result<(), String> {
        self.check_tokens(&request.token_ids)?;
        let (length, most) = (request.token_ids.len(), self.max_text_len);
        if length > most {
            return Err(format!("the text has {length} tokens, the most is {most}"));
        }
        match request.dimensions {
            Some(wanted) if wanted == 0 || wanted > self.embedding_size => {
                Err(format!("dimensions is {wanted}, it must be 1 to {}", self.embedding_size))
            }
            _ => Ok(()),
        }
    }
}

//! What the engine can do, and the checks of requests that follow from it.

use std::ops::Range;

use super::request::EmbeddingRequest;
use crate::config::Pooling;
use crate::pictures::picture::{Picture, PlacedPicture};
pub use crate::pooling::{Outputs, normalize};
use crate::sounds::sound::PlacedSound;

/// What the engine can do, fixed at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one ability of the model")]
pub struct EngineLimits {
    /// Most tokens of a sequence, prompt and output together.
    pub max_model_len: usize,
    /// Most tokens of a text to embed.
    pub max_text_len: usize,
    /// Number of tokens in the vocabulary; a valid token id is below it.
    pub vocab_size: usize,
    /// Most tokens in one step.
    pub max_batch_tokens: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens a KV block holds.
    pub block_size: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Elements of a vector, unless a request asks for fewer: numbers of an embedding, or classes.
    pub embedding_size: usize,
    /// Elements of a token's hidden state.
    pub hidden_size: usize,
    /// What vectors say.
    pub outputs: Outputs,
    /// What every token can have besides, each with the elements of a vector.
    pub further: Vec<(Outputs, usize)>,
    /// How hidden states become vectors, where tokens have none of their own.
    pub pooling: Pooling,
    /// Whether embeddings are scaled to length 1, unless a request decides otherwise.
    pub normalizes: bool,
    /// Whether the model continues texts; otherwise it only makes vectors of them.
    pub generates: bool,
    /// Whether the model sees all of a prompt at once, each of its tokens also what is behind it.
    pub prefix_lm: bool,
    /// Whether the model sees pictures.
    pub sees: bool,
    /// Whether the model hears sounds.
    pub hears: bool,
}

impl EngineLimits {
    /// The elements of a token's vector from a further head, where the model has one that gives
    /// `outputs`.
    pub fn further_size(&self, outputs: Outputs) -> Option<usize> {
        self.further.iter().find(|(own, _)| *own == outputs).map(|(_, size)| *size)
    }

    /// Whether a request can have `outputs` of the model.
    pub fn gives(&self, outputs: Outputs) -> bool {
        outputs == self.outputs
            || self.further_size(outputs).is_some()
            // Whatever pools hidden states has them.
            || (outputs, self.outputs) == (Outputs::HiddenStates, Outputs::Embedding)
    }

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

    /// Checks that a step has room for a prompt of `length` tokens that must be computed whole, and that nothing
    /// is to predict its tokens, which see what is behind them.
    pub(super) fn check_prefix(&self, length: usize, scored: bool) -> Result<(), String> {
        if !self.prefix_lm {
            return Ok(());
        }
        if scored {
            let why = "the model sees a prompt whole: nothing predicts its tokens, they have no \
                       log-probabilities";
            return Err(why.to_owned());
        }
        self.check_whole("prompt", length)
    }

    /// Checks that a step has room for something of `count` tokens that see each other.
    fn check_whole(&self, what: &str, count: usize) -> Result<(), String> {
        // Beside it every other sequence may have a token.
        let most = (self.max_batch_tokens + 1).saturating_sub(self.max_num_seqs);
        if count <= most {
            return Ok(());
        }
        Err(format!(
            "a {what} of {count} tokens, which see each other, must be computed in one step: with \
             --max-num-batched-tokens {} and --max-num-seqs {} it may have {most}",
            self.max_batch_tokens, self.max_num_seqs
        ))
    }

    /// Checks that pictures and sounds are within a prompt of `length` tokens, each kind in order and all
    /// apart, and that the model sees and hears them.
    pub(super) fn check_media(
        &self,
        pictures: &[PlacedPicture],
        sounds: &[PlacedSound],
        length: usize,
    ) -> Result<(), String> {
        if !self.sees && !pictures.is_empty() {
            return Err("the model doesn't see pictures".to_owned());
        }
        if !self.hears && !sounds.is_empty() {
            return Err("the model doesn't hear sounds".to_owned());
        }
        let heard = sounds.iter().map(|placed| (placed.offset, placed.sound.num_tokens(), "sound"));
        let mut places: Vec<(usize, usize, &str)> = heard.collect();
        for PlacedPicture { offset, picture, part } in pictures {
            self.check_picture(picture, part)?;
            places.push((*offset, part.len(), "picture"));
        }
        places.sort_unstable();
        let mut free = 0;
        for (offset, count, kind) in places {
            if offset < free || count == 0 || offset.saturating_add(count) > length {
                return Err(format!(
                    "a {kind} of {count} tokens at {offset} overlaps another or the end of the \
                     prompt of {length} tokens"
                ));
            }
            free = offset + count;
        }
        Ok(())
    }

    /// Checks that a part of a picture is one, and that a step has room for it where it must be computed whole.
    fn check_picture(&self, picture: &Picture, part: &Range<usize>) -> Result<(), String> {
        let (count, tokens) = (part.len(), picture.num_tokens());
        if part.end > tokens {
            return Err(format!("{part:?} is no part of a picture of {tokens} tokens"));
        }
        if picture.is_two_way() { self.check_whole("picture", count) } else { Ok(()) }
    }

    /// Checks that the model can embed a text as asked.
    pub(super) fn check_embedding(&self, request: &EmbeddingRequest) -> Result<(), String> {
        self.check_tokens(&request.token_ids)?;
        self.check_prefix(request.token_ids.len(), false)?;
        let (length, most) = (request.token_ids.len(), self.max_text_len);
        if length > most {
            return Err(format!("the text has {length} tokens, the most is {most}"));
        }
        if request.unseen >= length {
            let unseen = request.unseen;
            return Err(format!("{unseen} tokens are not seen, must be fewer than all {length}"));
        }
        let outputs = request.wanted.outputs.unwrap_or(self.outputs);
        if !self.gives(outputs) {
            return Err(format!("the model gives {:?}, not {outputs:?}", self.outputs));
        }
        match request.wanted.dimensions {
            Some(_) if outputs.is_of_classes() => {
                Err("dimensions can't be had of classes".to_owned())
            }
            Some(_) if self.further_size(outputs).is_some() => {
                Err(format!("dimensions can't be had of {outputs:?}"))
            }
            Some(wanted) if wanted == 0 || wanted > self.embedding_size => {
                Err(format!("dimensions is {wanted}, it must be 1 to {}", self.embedding_size))
            }
            _ => Ok(()),
        }
    }
}

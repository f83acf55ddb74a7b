//! What an encoder reads, and what it is to those who run it.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use crate::layers::adapter::Adapter;
use crate::models::adapter::AdapterLayout;

/// A text, or two that are read together.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The tokens of all of it.
    pub token_ids: &'a [u32],
    /// Where the second of two texts begins.
    pub second: Option<usize>,
    /// How many of the last tokens no token sees: they see the others.
    pub unseen: usize,
    /// The LoRA adapter to compute with, of an encoder that takes any.
    pub adapter: Option<&'a Arc<Adapter>>,
}

impl Text<'_> {
    /// How many of the first tokens all see, at least 1.
    pub(crate) fn seen(&self) -> usize {
        self.token_ids.len().saturating_sub(self.unseen).max(1)
    }
}

/// The number of tokens of each text; fails unless there are texts, of at least one token each.
pub(crate) fn lengths(texts: &[Text<'_>]) -> Result<Vec<usize>> {
    let lengths: Vec<usize> = texts.iter().map(|text| text.token_ids.len()).collect();
    if texts.is_empty() || lengths.contains(&0) {
        bail!("a batch needs texts of at least one token each");
    }
    Ok(lengths)
}

/// A network that reads whole texts.
pub trait TextEncoder: Send {
    /// Hidden states of all tokens, text after text: `[num_tokens, hidden_size]` in f32; `None`
    /// once `go_on`, which is called before layers, returns false.
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>>;

    /// Tokens in the vocabulary: rows of the embedding.
    fn vocab_size(&self) -> usize;

    /// Elements of a hidden state.
    fn hidden_size(&self) -> usize;

    /// The most tokens of a text.
    fn max_tokens(&self) -> usize;

    /// Whether [`forward`](Self::forward) gives one row for a whole text instead of one for each token.
    fn pools(&self) -> bool {
        false
    }

    /// The linear layers that LoRA adapters may change, if the encoder takes any.
    fn adapter_layout(&self) -> Option<AdapterLayout> {
        None
    }
}

//! Texts to the hidden states of an encoder, which sees a whole text at once and caches nothing.

use candle_core::{Device, Result};

use super::HiddenStates;
pub use crate::models::encoder::Text;
use crate::models::encoder::TextEncoder;

/// Runs one encoder on one device.
pub struct EncoderRunner {
    model: Box<dyn TextEncoder>,
    device: Device,
    takes_adapters: bool,
}

impl EncoderRunner {
    /// A runner of this model, whose weights are on `device`.
    pub fn new(model: Box<dyn TextEncoder>, device: Device) -> Self {
        let takes_adapters = model.adapter_layout().is_some();
        Self { model, device, takes_adapters }
    }

    /// Whether texts may have LoRA adapters.
    pub fn takes_adapters(&self) -> bool {
        self.takes_adapters
    }

    /// Rows of hidden states that a text of so many tokens has.
    pub fn rows_of(&self, tokens: usize) -> usize {
        if self.model.pools() { 1 } else { tokens }
    }

    /// The hidden states of texts: all rows of the first, then those of the next. `go_on` is called
    /// between layers; once it returns false, there is no result.
    pub fn run(
        &self,
        texts: &[Text<'_>],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<HiddenStates>> {
        match self.model.forward(texts, &self.device, go_on)? {
            Some(hidden) => HiddenStates::from_tensor(Some(hidden)).map(Some),
            None => Ok(None),
        }
    }
}

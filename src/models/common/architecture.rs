//! A row of the table of architectures.

use crate::models::config::{Completion, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::error::Result;

/// Translates a configuration to a decoder.
type SpecFn = fn(&HfConfig) -> Result<DecoderSpec>;

/// A class of decoders, and how its `config.json` is read.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Name of the class, as in `config.json`'s `architectures`.
    pub(crate) class: &'static str,
    /// Translates a configuration to a decoder.
    pub(crate) spec: SpecFn,
    /// Renames or adds fields before they are checked.
    pub(crate) complete: Option<Completion>,
}

impl Architecture {
    /// A class whose files name their fields as Llama's do.
    pub(crate) const fn new(class: &'static str, spec: SpecFn) -> Self {
        Self { class, spec, complete: None }
    }

    /// The class with a completion of its files' fields.
    pub(crate) const fn completed_by(self, complete: Completion) -> Self {
        Self { complete: Some(complete), ..self }
    }
}

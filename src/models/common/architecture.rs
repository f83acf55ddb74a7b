//! A row of the table of architectures.

use serde_json::Value;

use crate::models::classifier::ClassifierSpec;
use crate::models::config::{Completion, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::error::Result;
use crate::models::top::Top;

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

/// Translates a configuration to the classifier of its class, if that has one.
type ClassifierFn = fn(&Value, Top) -> Option<ClassifierSpec>;

/// A family of encoders that are computed as decoders whose tokens see all of a text.
#[derive(Debug)]
pub(crate) struct EncoderArchitecture {
    /// What the names of its classes begin with, such as `ModernBert` of `ModernBertModel`.
    pub(crate) family: &'static str,
    /// Translates a configuration to a decoder.
    pub(crate) spec: SpecFn,
    /// Renames or adds fields before they are checked.
    pub(crate) complete: Option<Completion>,
    /// Translates a configuration to a classifier.
    pub(crate) classifier: ClassifierFn,
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

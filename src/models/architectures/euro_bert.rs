//! EuroBERT: Llama that reads a whole text at once. Boizard et al., 2025.

use serde_json::Value;

use crate::models::classifier::ClassifierSpec;
use crate::models::common::{
    DecoderSpec, Defaults, EncoderArchitecture, HfConfig, Names, Result, base, read_biases,
};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "EuroBert", spec, complete: None, classifier }];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { context: 8192, norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_biases(config, &mut spec);
    spec.names = Names { roots: &["model.", ""], ..Names::COMMON };
    Ok(spec)
}

/// Its classifiers pool in ways of their own, none of which is implemented.
fn classifier(_config: &Value, _top: Top) -> Option<ClassifierSpec> {
    None
}

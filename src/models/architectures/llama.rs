//! Llama 2, 3, 3.1, 3.2 and all models of their shape: the base that other architectures change,
//! with optional biases. Some of them have a class of their own.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_biases,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("LlamaForCausalLM", spec),
    Architecture::new("LLaMAForCausalLM", spec),
    Architecture::new("AquilaForCausalLM", spec),
    Architecture::new("XverseForCausalLM", spec),
    Architecture::new("YiForCausalLM", spec),
];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    read_biases(config, &mut spec);
    Ok(spec)
}

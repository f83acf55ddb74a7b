//! Llama 2, 3, 3.1, 3.2 and all models of their shape: the base that other architectures change,
//! with optional biases. Some of them have a class of their own.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, bad, base, read_biases,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("LlamaForCausalLM", spec),
    Architecture::new("LLaMAForCausalLM", spec),
    Architecture::new("AquilaForCausalLM", spec),
    Architecture::new("XverseForCausalLM", spec),
    Architecture::new("YiForCausalLM", spec),
    Architecture::new("IQuestCoderForCausalLM", iquest),
    Architecture::new("Emu3ForCausalLM", emu),
];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    read_biases(config, &mut spec);
    Ok(spec)
}

/// The language model of Emu 3.
fn emu(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { kv_heads: Some(8), context: 9216, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    Ok(spec)
}

/// IQuest-Coder, whose own code has options that no published file uses.
fn iquest(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_sliding_window", false)?;
    if let Some(bound) = config.positive("clip_qkv")? {
        return Err(bad("clip_qkv", bound, "supported is null"));
    }
    let mut spec = base(config, &Defaults { head_dim: Some(128), ..Defaults::LLAMA })?;
    read_biases(config, &mut spec);
    Ok(spec)
}

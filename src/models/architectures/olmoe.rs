//! OLMoE: Llama with norms over all query and over all key heads, whose results may be clipped, and
//! experts in every layer.

use crate::layers::attention::NormSpan;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, base, experts,
    read_attention_bias, set_query_key_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("OlmoeForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 4096, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    let clip = config.positive("clip_qkv")?;
    for layer in &mut spec.attention {
        layer.clip = clip;
    }
    set_query_key_norm(&mut spec, NormSpan::AllHeads);
    spec.moe = Some(experts(config, &spec, &ExpertFields::ALL_SPARSE)?);
    Ok(spec)
}

//! DeepSeek-MoE, the first version, as configured by its own code on the hub: Llama with experts chosen
//! by softmax, beside shared ones, in every layer from some one on.

use super::deepseek::routed;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("DeepseekForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    read_attention_bias(config, &mut spec);
    spec.moe = routed(config, &spec, 0)?;
    Ok(spec)
}

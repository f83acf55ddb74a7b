//! Qwen3: Llama with a norm of every query and key head, heads of 128 elements by default, and
//! Qwen2's windows. Biases of the attention are an option and usually off.

use super::qwen2;
use crate::layers::attention::QueryKeyNorm;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("Qwen3ForCausalLM", spec)];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { head_dim: Some(128), ..qwen2::DEFAULTS })?;
    read_attention_bias(config, &mut spec);
    let windows = qwen2::windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.params.window = window;
    }
    Ok(spec)
}

//! Hunyuan (dense, version 1): Llama with a norm of every query and key head after the rotation.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("HunYuanDenseV1ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_qk_norm", true)?;
    config.only("use_cla", false)?;
    let mut spec = base(config, &Defaults { norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_attention_bias(config, &mut spec);
    let tensors = ["query_layernorm", "key_layernorm"];
    let norm = QueryKeyNorm { norm: spec.norm, over: NormSpan::RotatedHead, tensors };
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(norm);
    }
    Ok(spec)
}

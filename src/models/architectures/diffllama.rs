//! DiffLlama: Llama whose heads are differences of two attentions.

use crate::layers::attention::Difference;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, bad, base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("DiffLlamaForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_attention_bias(config, &mut spec);
    let norm = spec.norm;
    for (index, layer) in spec.attention.iter_mut().enumerate() {
        if !layer.num_kv_heads.is_multiple_of(2) {
            return Err(bad("num_key_value_heads", layer.num_kv_heads, "must be even"));
        }
        layer.value_dim = Some(2 * layer.head_dim);
        layer.difference = Some(Difference { initial: initial(index), norm });
    }
    Ok(spec)
}

/// The part of the second attention that is not learned grows with depth.
fn initial(layer: usize) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "there are few layers")]
    let depth = layer as f64;
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    let initial = (0.8 - 0.6 * (-0.3 * depth).exp()) as f32;
    initial
}

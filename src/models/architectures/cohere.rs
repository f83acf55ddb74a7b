//! Command-R and Command-R7B: attention and feed-forward part on the same normalized states, norms
//! by mean and variance without bias, a rotary embedding of neighbouring pairs, scaled logits and
//! a tied head. The first may have a norm of each head; the second has windows on three layers of
//! four and rotates nothing on the others.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::ModelError;
use crate::models::common::base::{
    Defaults, base, set_biases, set_layer_norm, set_windows, windowed_layers,
};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Block;

const DEFAULTS: Defaults = Defaults {
    context: 8192,
    tied: true,
    rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
    ..Defaults::LLAMA
};

/// What `CohereForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = parallel(config, &DEFAULTS)?;
    if config.field::<bool>("use_qk_norm")?.unwrap_or(false) {
        for layer in &mut spec.attention {
            layer.query_key_norm = Some(QueryKeyNorm {
                over: NormSpan::EachHead,
                ..QueryKeyNorm::of_heads(spec.norm)
            });
        }
    }
    Ok(spec)
}

/// What `Cohere2ForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("use_qk_norm", false)?;
    let rope = RopeDefaults { theta: 10_000.0, ..DEFAULTS.rope };
    let mut spec = parallel(config, &Defaults { rope, ..DEFAULTS })?;
    let pattern = config.field::<usize>("sliding_window_pattern")?.unwrap_or(4).max(1);
    let windowed = windowed_layers(config, |layer| (layer + 1) % pattern != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
    }
    Ok(spec)
}

fn parallel(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    config.only("use_parallel_block", true)?;
    config.only("use_gated_activation", true)?;
    let mut spec = base(config, defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    set_layer_norm(config, &mut spec, "layer_norm_eps", false)?;
    spec.block = Block::PARALLEL;
    spec.logit_scale = config.number("logit_scale")?.unwrap_or(0.0625);
    for layer in &mut spec.attention {
        layer.rope_neighbours = Some(layer.head_dim);
    }
    Ok(spec)
}

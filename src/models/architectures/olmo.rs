//! OLMo 1, 2 and 3. The first has norms by mean and variance without learned numbers and may bound
//! queries, keys and values. The others have norms behind both parts of a layer, not before them,
//! and norms of all query heads and all key heads at once; the third has windows on three layers
//! of four, and a stretched rotary embedding only where there is none.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_windows, windowed_layers};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Block;

const DEFAULTS: Defaults = Defaults { norm_eps: 1e-5, ..Defaults::LLAMA };

/// What `OlmoForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &DEFAULTS)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.norm = NormSpec { scale: NormScale::One, ..NormSpec::layer(1e-5, false) };
    let clip = config.positive("clip_qkv")?;
    for layer in &mut spec.attention {
        layer.clip = clip;
    }
    Ok(spec)
}

/// What `Olmo2ForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &DEFAULTS)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.block = Block::POST_NORM;
    for layer in &mut spec.attention {
        layer.query_key_norm =
            Some(QueryKeyNorm { over: NormSpan::AllHeads, ..QueryKeyNorm::of_heads(spec.norm) });
    }
    Ok(spec)
}

/// What `Olmo3ForCausalLM` means.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec_2(config)?;
    let windowed = windowed_layers(config, |layer| (layer + 1) % 4 != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let theta = config.rope_theta.unwrap_or(500_000.0);
    let rope = crate::models::config::rope::RopeDefaults { theta: 500_000.0, ..DEFAULTS.rope };
    spec.ropes = config.ropes_by_layer_type(config.head_dim(None)?, rope, theta)?.to_vec();
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
    }
    Ok(spec)
}

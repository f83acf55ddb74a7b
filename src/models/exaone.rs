//! EXAONE 4: norms behind both parts of a layer and norms of query and key heads; where some layers
//! have windows, the others rotate nothing.

use super::ModelError;
use super::base::{Defaults, base, set_windows, windowed_layers};
use super::config::HfConfig;
use super::decoder::DecoderSpec;
use super::decoder::spec::Block;
use crate::layers::attention::QueryKeyNorm;

/// What `Exaone4ForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { kv_heads: Some(32), norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.block = Block::POST_NORM;
    let window = config.sliding_window.unwrap_or(Some(4096));
    let windowed = windowed_layers(config, |layer| window.is_some() && (layer + 1) % 4 != 0)?;
    if config.layer_types.is_none() {
        config.only("sliding_window_pattern", 4usize)?;
    }
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.rope = (window.is_none() || windowed).then_some(0);
    }
    Ok(spec)
}

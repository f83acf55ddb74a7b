//! EXAONE 3 and 4. The first is Llama with other names, as its own code on the hub has them. The
//! second has norms behind both parts of a layer and norms of query and key heads; where some layers
//! have windows, the others rotate nothing.

use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_windows, windowed_layers};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// EXAONE 3's own names of common fields.
pub(crate) fn complete_3(fields: &mut Fields<'_>) {
    fields.same("num_hidden_layers", "num_layers");
    fields.same("hidden_act", "activation_function");
    fields.same("rms_norm_eps", "layer_norm_epsilon");
}

/// What `ExaoneForCausalLM` means.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn.attention",
        ..Names::COMMON
    };
    spec.block =
        Block { before_attention: Some("ln_1"), before_mlp: Some("ln_2"), ..Block::PRE_NORM };
    spec.mlp.tensors = MlpTensors::Gated(["c_fc_0", "c_fc_1", "c_proj"]);
    for layer in &mut spec.attention {
        layer.output = "out_proj";
    }
    Ok(spec)
}

/// What `Exaone4ForCausalLM` means.
pub(crate) fn spec_4(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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

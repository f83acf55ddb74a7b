//! ERNIE 4.5: Llama with a rotary embedding of neighbouring pairs, a tied head, and one switch for
//! all biases. The one with experts chooses them by softmax with a bias for the choice, in some
//! layers, beside one that all tokens go through.

use crate::layers::moe::ChoiceBias;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::common::experts::{FIELDS, Fields, experts, shared_experts};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(2),
    head_dim: Some(128),
    context: 131_072,
    norm_eps: 1e-5,
    tied: true,
    rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
    ..Defaults::LLAMA
};

/// What `Ernie4_5ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    with_defaults(config, &DEFAULTS)
}

fn with_defaults(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, defaults)?;
    let bias = config.field::<bool>("use_bias")?.unwrap_or(false);
    set_biases(&mut spec, bias, bias);
    for layer in &mut spec.attention {
        layer.rope_neighbours = Some(layer.head_dim);
    }
    Ok(spec)
}

/// What `Ernie4_5_MoeForCausalLM` means.
pub(crate) fn moe(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("use_bias", false)?;
    config.only("moe_norm_min", 1e-12)?;
    let defaults = Defaults { kv_heads: Some(4), head_dim: None, ..DEFAULTS };
    let mut spec = with_defaults(config, &defaults)?;
    let fields = Fields { chosen: "moe_k", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    let layers = config.num_hidden_layers;
    let interval = config.field::<usize>("moe_layer_interval")?.unwrap_or(1).max(1);
    let first = config.field::<usize>("moe_layer_start_index")?.unwrap_or(1);
    // -1 stands for the last layer.
    let last = config.field::<i64>("moe_layer_end_index")?.unwrap_or(-1);
    let last = usize::try_from(last).unwrap_or(layers);
    let sparse =
        |layer: usize| (first..=last).contains(&layer) && (layer + 1).is_multiple_of(interval);
    moe.layers = (0..layers).map(sparse).collect();
    moe.routing.renormalize = true;
    moe.choice_bias =
        Some(ChoiceBias { name: "mlp.moe_statics.e_score_correction_bias", one_row: true });
    let shared = config.field::<usize>("moe_num_shared_experts")?.unwrap_or(2);
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(spec)
}

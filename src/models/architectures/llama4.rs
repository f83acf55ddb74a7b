//! The language models of Llama 4: three layers of four rotate neighbours, see only their own chunk
//! of the context and may normalize heads behind the rotation; the fourth sees everything, rotates
//! nothing, and its queries grow with their position. Experts are given their weight times the
//! token, beside one that all tokens go through; they may be in every second layer only.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{Score, SharedExpert, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::rope::{QueryGrowth, RopeSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, rotated_layers, set_biases};
use crate::models::common::experts::{FIELDS, Fields, count, experts, stacked};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

const EXPERTS: StackedTensors = StackedTensors {
    turned: true,
    ..StackedTensors::new(["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"])
};

/// What `Llama4ForCausalLM` means, and `Llama4ForConditionalGeneration` without pictures.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.names = Names { roots: Names::INSIDE_OF_MORE, mlp: "feed_forward", ..Names::COMMON };
    set_attention(config, &mut spec)?;
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    moe.layers = layers_with_experts(config)?;
    moe.router = "feed_forward.router";
    moe.experts = stacked(config, EXPERTS, "feed_forward.experts")?;
    moe.weighs_inputs = true;
    moe.routing.score = Score::SigmoidOfChosen;
    moe.routing.renormalize = false;
    let mlp = moe.expert;
    moe.shared = Some(SharedExpert { name: "feed_forward.shared_expert", mlp, gate: None });
    if moe.layers.contains(&false) {
        let intermediate_size = count(config, "intermediate_size_mlp", 1 << 28)?;
        spec.mlp = MlpSpec { intermediate_size, ..spec.mlp };
    }
    spec.moe = Some(moe);
    Ok(spec)
}

fn set_attention(config: &HfConfig, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let rotated = rotated_layers(config)?;
    let chunk = match config.field::<usize>("attention_chunk_size")? {
        Some(0) => return Err(bad("attention_chunk_size", 0, "must be at least 1")),
        None if config.says_null("attention_chunk_size") => None,
        chunk => Some(chunk.unwrap_or(8192)),
    };
    let normalized = config.field("use_qk_norm")?.unwrap_or(true);
    let norm = NormSpec { scale: NormScale::One, ..spec.norm };
    let norm = QueryKeyNorm { over: NormSpan::RotatedHead, ..QueryKeyNorm::of_heads(norm) };
    let head_dim = spec.attention[0].head_dim;
    if config.field("attn_temperature_tuning")?.unwrap_or(true) {
        let growth = QueryGrowth {
            beta: config.number("attn_scale")?.unwrap_or(0.1),
            every: config.positive("floor_scale")?.unwrap_or(8192.0),
            first: 1.0,
        };
        spec.ropes.push(RopeSpec::none(Some(growth)));
    }
    let unrotated = (spec.ropes.len() > 1).then_some(1);
    for (layer, rotated) in spec.attention.iter_mut().zip(rotated) {
        layer.rope = if rotated { Some(0) } else { unrotated };
        layer.rope_neighbours = rotated.then_some(head_dim);
        layer.params.chunk = chunk.filter(|_| rotated);
        layer.query_key_norm = (rotated && normalized).then_some(norm);
    }
    Ok(())
}

fn layers_with_experts(config: &HfConfig) -> Result<Vec<bool>, ModelError> {
    let layers = config.num_hidden_layers;
    if let Some(listed) = config.field::<Vec<usize>>("moe_layers")? {
        return Ok((0..layers).map(|layer| listed.contains(&layer)).collect());
    }
    let step = config.field::<usize>("interleave_moe_layer_step")?.unwrap_or(1).max(1);
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(step)).collect())
}

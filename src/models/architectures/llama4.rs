//! The language models of Llama 4: three layers of four have an interleaved rotary embedding,
//! attend within chunks of the context and may normalize heads after the rotation; the fourth has
//! full attention, no rotary embedding, and a query scale that grows with the position. Routed
//! experts weight their inputs, beside a shared expert; they may be in every second layer only.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{Score, SharedExpert, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::rope::{QueryScale, RopeSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Names, Result,
    RopeDefaults, bad, base, experts, read_attention_bias, rotated_layers, stacked,
};

const EXPERTS: StackedTensors = StackedTensors {
    transposed: true,
    ..StackedTensors::new(["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"])
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Llama4ForCausalLM", spec),
    Architecture::new("Llama4ForConditionalGeneration", spec),
];

/// The decoder of `Llama4ForCausalLM`, and of `Llama4ForConditionalGeneration` for text alone.
fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.names = Names { roots: Names::MULTIMODAL_ROOTS, mlp: "feed_forward", ..Names::COMMON };
    set_attention(config, &mut spec)?;
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.layers = layers_with_experts(config)?;
    moe.router = "feed_forward.router";
    moe.experts = stacked(config, EXPERTS, "feed_forward.experts")?;
    moe.router_weight_on_input = true;
    moe.routing.score = Score::SigmoidOfChosen;
    moe.routing.renormalize = false;
    let mlp = moe.expert;
    moe.shared =
        Some(SharedExpert { name: "feed_forward.shared_expert", mlp, gate: None, factor: 1.0 });
    if moe.layers.contains(&false) {
        let intermediate_size = config.size("intermediate_size_mlp", MAX_SIZE)?;
        spec.mlp = MlpSpec { intermediate_size, ..spec.mlp };
    }
    spec.moe = Some(moe);
    Ok(spec)
}

fn set_attention(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    let rotated = rotated_layers(config)?;
    let chunk = match config.field::<usize>("attention_chunk_size")? {
        Some(0) => return Err(bad("attention_chunk_size", 0, "must be at least 1")),
        None if config.is_null("attention_chunk_size") => None,
        chunk => Some(chunk.unwrap_or(8192)),
    };
    let normalized = config.field_or("use_qk_norm", true)?;
    let norm = NormSpec { scale: NormScale::One, ..spec.norm };
    let norm = QueryKeyNorm { over: NormSpan::RotatedHead, ..QueryKeyNorm::of_heads(norm) };
    let head_dim = spec.attention[0].head_dim;
    if config.field_or("attn_temperature_tuning", true)? {
        let scale = QueryScale::Logarithm {
            beta: config.number_or("attn_scale", 0.1)?,
            interval: config.positive("floor_scale")?.unwrap_or(8192.0),
            offset: 1.0,
        };
        spec.ropes.push(RopeSpec::none(Some(scale)));
    }
    let unrotated = (spec.ropes.len() > 1).then_some(1);
    for (layer, rotated) in spec.attention.iter_mut().zip(rotated) {
        layer.rope = if rotated { Some(0) } else { unrotated };
        layer.interleaved_rope = rotated.then_some(head_dim);
        layer.params.chunk = chunk.filter(|_| rotated);
        layer.query_key_norm = (rotated && normalized).then_some(norm);
    }
    Ok(())
}

fn layers_with_experts(config: &HfConfig) -> Result<Vec<bool>> {
    let layers = config.num_hidden_layers;
    if let Some(listed) = config.field::<Vec<usize>>("moe_layers")? {
        return Ok((0..layers).map(|layer| listed.contains(&layer)).collect());
    }
    let step = config.field_or("interleave_moe_layer_step", 1usize)?.max(1);
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(step)).collect())
}

//! Command-R and Command-R7B: attention and feed-forward part in parallel, layer norms without
//! bias, an interleaved rotary embedding, scaled logits and a tied head. Command-R may have a norm
//! of each head; Command-R7B has sliding windows on three layers of four and no rotary embedding on
//! the fourth. Its mixture of experts has dense layers before the others, and RMS norms if its file
//! names their epsilon. Compass is Command-R7B with rotated halves, and kinds of layers that are rotated
//! or not by the file.

use crate::layers::attention::NormSpan;
use crate::layers::moe::{MoeSpec, Score};
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Names, Result,
    RopeDefaults, bad, base, experts, layers_with_experts, read_attention_bias,
    set_interleaved_rope, set_layer_norm, set_query_key_norm, set_windows, shared_experts,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("CohereForCausalLM", spec),
    Architecture::new("Cohere2ForCausalLM", spec_2),
    Architecture::new("Cohere2MoeForCausalLM", moe),
    Architecture::new("CohereCompassForCausalLM", compass),
    Architecture::new("CohereCompassForConditionalGeneration", compass),
];

const DEFAULTS: Defaults = Defaults {
    context: 8192,
    tied: true,
    rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
    ..Defaults::LLAMA
};

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = parallel(config, &DEFAULTS)?;
    if config.field_or("use_qk_norm", false)? {
        set_query_key_norm(&mut spec, NormSpan::EachHead);
    }
    Ok(spec)
}

pub(super) fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_qk_norm", false)?;
    let rope = RopeDefaults { theta: 10_000.0, ..DEFAULTS.rope };
    let mut spec = parallel(config, &Defaults { rope, ..DEFAULTS })?;
    let pattern = config.field_or("sliding_window_pattern", 4usize)?.max(1);
    let windowed = windowed_layers(config, |layer| (layer + 1) % pattern != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
    }
    Ok(spec)
}

fn compass(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta: 10_000.0, ..DEFAULTS.rope };
    let mut spec = parallel(config, &Defaults { rope, ..DEFAULTS })?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    spec.logit_scale = config.number_or("logit_scale", 1.0)?;
    let windowed = windowed_layers(config, |_| false)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let mut rotated = [true; 2];
    if let Some(kinds) = config.rope_parameters.as_ref().filter(|_| spec.ropes.is_empty()) {
        rotated = [kinds.full_attention.is_some(), kinds.sliding_attention.is_some()];
        let head_dim = config.head_dim(None)?;
        spec.ropes = config.ropes_by_layer_type(head_dim, rope, rope.theta)?.to_vec();
    }
    let by_kind = spec.ropes.len() > 1;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        let kind = usize::from(windowed);
        layer.interleaved_rope = None;
        layer.rope = rotated[kind].then_some(if by_kind { kind } else { 0 });
    }
    Ok(spec)
}

fn moe(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { head_dim: Some(128), ..DEFAULTS };
    let rope = RopeDefaults { theta: 10_000.0, ..DEFAULTS.rope };
    let mut spec = parallel(config, &Defaults { rope, ..defaults })?;
    if let Some(eps) = config.number("rms_norm_eps")? {
        spec.norm = NormSpec::rms(eps);
    }
    let first = config.field_or("first_k_dense_replace", 0)?;
    let pattern = config.field_or("sliding_window_pattern", 4usize)?.max(1);
    let dense_pattern = config.field_or("prefix_dense_sliding_window_pattern", 1usize)?.max(1);
    let windowed = windowed_layers(config, |layer| match layer.checked_sub(first) {
        None => (layer + 1) % dense_pattern != 0,
        Some(layer) => (layer + 1) % pattern != 0,
    })?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    let listed = layers_with_experts(config)?;
    let layers = config.num_hidden_layers;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    for ((layer, windowed), sparse) in spec.attention.iter_mut().zip(windowed).zip(&moe.layers) {
        let rotated = windowed || (!sparse && dense_pattern == 1);
        layer.rope = rotated.then_some(0);
    }
    set_choice(config, &mut moe)?;
    let dense =
        config.size_or("prefix_dense_intermediate_size", config.intermediate_size, 1..=MAX_SIZE)?;
    spec.mlp.intermediate_size = dense;
    spec.moe = Some(moe);
    Ok(spec)
}

/// How experts are weighted, and combined with a shared one: by their sum, or the half of it.
fn set_choice(config: &HfConfig, moe: &mut MoeSpec) -> Result<()> {
    let name = "expert_selection_fn";
    match config.field::<String>(name)?.as_deref() {
        // Softmax over the chosen experts is softmax over all, divided by the sum of the chosen.
        None | Some("softmax") => moe.routing.renormalize = true,
        Some("sigmoid") => {
            moe.routing.score = Score::SigmoidOfChosen;
            moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
        }
        Some(other) => return Err(bad(name, other, "supported are softmax and sigmoid")),
    }
    moe.shared = shared_experts(moe, config.field_or("num_shared_experts", 0)?);
    let Some(shared) = &mut moe.shared else { return Ok(()) };
    let name = "shared_expert_combination_strategy";
    match config.field::<String>(name)?.as_deref() {
        Some("sum") => {}
        None | Some("average") => {
            moe.routing.scale = 0.5;
            shared.factor = 0.5;
        }
        Some(other) => return Err(bad(name, other, "supported are average and sum")),
    }
    Ok(())
}

/// The part that all classes share.
fn parallel(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    config.only("use_parallel_block", true)?;
    config.only("use_gated_activation", true)?;
    let mut spec = base(config, defaults)?;
    read_attention_bias(config, &mut spec);
    set_layer_norm(config, &mut spec, "layer_norm_eps", false)?;
    spec.block = Block::PARALLEL;
    spec.logit_scale = config.number_or("logit_scale", 0.0625)?;
    set_interleaved_rope(&mut spec);
    Ok(spec)
}

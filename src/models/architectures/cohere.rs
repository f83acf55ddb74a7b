//! Command-R and Command-R7B: attention and feed-forward part in parallel, layer norms without
//! bias, an interleaved rotary embedding, scaled logits and a tied head. Command-R may have a norm
//! of each head; Command-R7B has sliding windows on three layers of four and no rotary embedding on
//! the fourth.

use crate::layers::attention::NormSpan;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
    read_attention_bias, set_interleaved_rope, set_layer_norm, set_query_key_norm, set_windows,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("CohereForCausalLM", spec),
    Architecture::new("Cohere2ForCausalLM", spec_2),
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

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
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

/// The part that both classes share.
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

//! OLMo 1, 2 and 3. The first has layer norms without parameters and may clip queries, keys and
//! values. The others have norms after both parts of a layer instead of before them, and norms over
//! all query and over all key heads; the third has sliding windows on three layers of four, and
//! scales the rotary embedding of the fourth only. FlexOlmo is OLMo 2 with experts in every layer.

use crate::layers::attention::NormSpan;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, RopeDefaults, base,
    experts, read_attention_bias, set_query_key_norm, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("OlmoForCausalLM", spec),
    Architecture::new("Olmo2ForCausalLM", spec_2),
    Architecture::new("Olmo3ForCausalLM", spec_3),
    Architecture::new("FlexOlmoForCausalLM", flex),
];

const DEFAULTS: Defaults = Defaults { norm_eps: 1e-5, ..Defaults::LLAMA };

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &DEFAULTS)?;
    read_attention_bias(config, &mut spec);
    spec.norm = NormSpec { scale: NormScale::One, ..NormSpec::layer(1e-5, false) };
    let clip = config.positive("clip_qkv")?;
    for layer in &mut spec.attention {
        layer.clip = clip;
    }
    Ok(spec)
}

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    second(config, &DEFAULTS)
}

/// The part that all but the first share.
fn second(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    read_attention_bias(config, &mut spec);
    spec.block = Block::POST_NORM;
    set_query_key_norm(&mut spec, NormSpan::AllHeads);
    Ok(spec)
}

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_2(config)?;
    let windowed = windowed_layers(config, |layer| (layer + 1) % 4 != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let theta = config.rope_theta.unwrap_or(500_000.0);
    let rope = RopeDefaults { theta: 500_000.0, ..DEFAULTS.rope };
    spec.ropes = config.ropes_by_layer_type(config.head_dim(None)?, rope, theta)?.to_vec();
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
    }
    Ok(spec)
}

fn flex(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta: 500_000.0, ..DEFAULTS.rope };
    let mut spec = second(config, &Defaults { context: 4096, norm_eps: 1e-6, rope, ..DEFAULTS })?;
    spec.moe = Some(experts(config, &spec, &ExpertFields::ALL_SPARSE)?);
    Ok(spec)
}

//! OLMo 1, 2 and 3. The first has layer norms without parameters and may clip queries, keys and
//! values. The others have norms after both parts of a layer instead of before them, and norms over
//! all query and over all key heads; the third has sliding windows on three layers of four, and
//! scales the rotary embedding of the fourth only. FlexOlmo is OLMo 2 with experts in every layer. OLMo
//! Hybrid has linear attention by the gated delta rule in three layers of four, whose norms are before both
//! parts, and may have no rotary embedding.

use serde_json::Value;

use super::qwen3_next;
use crate::layers::attention::NormSpan;
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::recurrent::{CellSpec, DeltaRuleSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_TAPS, RawFields,
    Result, RopeDefaults, base, experts, read_attention_bias, remove_rope, set_query_key_norm,
    set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("OlmoForCausalLM", spec),
    Architecture::new("Olmo2ForCausalLM", spec_2),
    Architecture::new("Olmo3ForCausalLM", spec_3),
    Architecture::new("FlexOlmoForCausalLM", flex),
    Architecture::new("OlmoHybridForCausalLM", hybrid).completed_by(complete_hybrid),
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

/// Numbers and sizes of the heads of linear attention, by those of attention: a key takes three quarters
/// of its share of a hidden state.
fn complete_hybrid(fields: &mut RawFields<'_>) {
    fields.alias("linear_num_key_heads", "num_attention_heads");
    fields.alias("linear_num_value_heads", "num_attention_heads");
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    if let (Some(hidden @ ..=0xFFFF_FFFF), Some(heads @ 1..)) =
        (number("hidden_size"), number("linear_num_key_heads"))
    {
        fields.default("linear_key_head_dim", hidden * 3 / 4 / heads);
    }
    fields.multiple("linear_value_head_dim", "linear_key_head_dim", 2);
}

fn hybrid(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = second(config, &Defaults { context: 65_536, norm_eps: 1e-6, ..DEFAULTS })?;
    // A base that is there, and `null`, turns the rotation off.
    let parameters = config.field::<Value>("rope_parameters")?.unwrap_or_default();
    let off = |theta: Option<&Value>| theta.is_some_and(Value::is_null);
    if off(parameters.get("rope_theta")) || config.is_null("rope_theta") {
        remove_rope(&mut spec);
    }
    spec.recurrent_block = Some(Block::pre_norm("attention_layer_norm", "feedforward_layer_norm"));
    // Transformers saves the norm behind attention under the name of the one before a feed-forward part.
    spec.names.other_norm = Some(["post_attention_layernorm", "feedforward_layer_norm"]);
    let kinds = [("linear_attention", true), ("full_attention", false)];
    let layers = config.layer_kinds(&kinds, "linear_attention and full_attention")?;
    let count = config.num_hidden_layers;
    // At least one layer attends.
    let default = |layer: usize| layer % 4 != 3 && (count > 3 || layer + 1 < count);
    let turns = config.field_or("linear_allow_neg_eigval", true)?;
    spec.recurrent = Some(RecurrentSpec {
        beside_attention: None,
        layers: layers.unwrap_or_else(|| (0..count).map(default).collect()),
        name: "linear_attn",
        output: "o_proj",
        output_bias: false,
        cell: CellSpec::DeltaRule(DeltaRuleSpec {
            hidden_size: config.hidden_size,
            heads: qwen3_next::heads(config, [30; 2])?,
            taps: config.size_or("linear_conv_kernel_dim", 4, 2..=MAX_TAPS)?,
            activation: spec.mlp.activation,
            norm_eps: 1e-5,
            write_scale: if turns { 2.0 } else { 1.0 },
        }),
    });
    Ok(spec)
}

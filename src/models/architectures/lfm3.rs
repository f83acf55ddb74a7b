//! LFM3: LFM2 with norms behind both parts of a layer too, a sigmoid gate of each attention head, and
//! three kinds of layers: convolutions over seven tokens, attention within a sliding window, and full
//! attention, of whose heads a half is rotated.

use super::lfm2::{complete, rename, short_conv};
use crate::layers::attention::{GateTensor, HeadGate, NormSpan};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults, base,
    read_attention_bias, set_query_key_norm, set_windows,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Lfm3ForCausalLM", spec).completed_by(complete),
    Architecture::new("Lfm3VlForConditionalGeneration", of_text).completed_by(complete),
];

/// The language model of one that sees.
fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}

/// The kind of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Convolution,
    Windowed,
    Full,
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(128),
        context: 128_000,
        norm_eps: 1e-5,
        tied: true,
        rope: RopeDefaults { partial: true, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    rename(&mut spec);
    if config.field_or("use_sandwich_norm", true)? {
        spec.block = Block {
            after_attention: Some("post_operator_norm"),
            after_mlp: Some("post_ffn_norm"),
            ..spec.block
        };
    }
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.proportional_ropes([head_dim, head_dim], 0.5)?.to_vec();
    let kinds = kinds(config)?;
    let which = |kind: Kind| kinds.iter().map(|own| *own == kind).collect::<Vec<bool>>();
    let windowed = which(Kind::Windowed);
    set_windows(config, &mut spec, &windowed, Some(256))?;
    let gated = config.field_or("use_attention_gate", true)?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.gate = gated.then_some(HeadGate::sigmoid(GateTensor::Heads("gate_proj")));
    }
    spec.recurrent = Some(short_conv(config, which(Kind::Convolution), 7)?);
    Ok(spec)
}

/// The kind of each layer: by `layer_types`, else each fourth has a window and, two layers on, each
/// fourth full attention.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>> {
    let kinds = [
        ("conv", Kind::Convolution),
        ("sliding_attention", Kind::Windowed),
        ("full_attention", Kind::Full),
    ];
    let given = config.layer_kinds(&kinds, "conv, sliding_attention and full_attention")?;
    let default = |layer: usize| match layer % 4 {
        2 => Kind::Full,
        0 if layer > 0 => Kind::Windowed,
        _ => Kind::Convolution,
    };
    Ok(given.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}

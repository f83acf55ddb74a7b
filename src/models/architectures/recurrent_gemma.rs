//! `RecurrentGemma`: real-gated linear recurrent units in two layers of three, and attention within a window
//! in the third, of whose heads a half is rotated; else as Gemma, with a soft-cap of logits.

use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::recurrent::{CellSpec, GatedUnitSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, MAX_SIZE, MAX_TAPS, Names, RawFields,
    Result, RopeDefaults, bad, base, read_attention_bias, root, set_windows,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("RecurrentGemmaForCausalLM", spec).completed_by(complete)];

/// Its names of common fields; the feed-forward part has half of the file's size.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("sliding_window", "attention_window_size");
    fields.alias("hidden_act", "hidden_activation");
    fields.halve("intermediate_size");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        context: 8192,
        tied: true,
        activation: "gelu_pytorch_tanh",
        rope: RopeDefaults { share: 0.5, partial: true, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.names = Names {
        norm: "final_norm",
        attention: "temporal_block",
        mlp: "mlp_block",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("temporal_pre_norm", "channel_pre_norm");
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    spec.mlp.bias = true;
    spec.embedding_scale = half::bf16::from_f32(root(config.hidden_size)).to_f32();
    spec.logit_softcap = Some(config.positive("logits_soft_cap")?.unwrap_or(30.0));
    let recurrent = recurrent_layers(config)?;
    let windowed: Vec<bool> = recurrent.iter().map(|recurs| !recurs).collect();
    set_windows(config, &mut spec, &windowed, Some(2048))?;
    for layer in &mut spec.attention {
        layer.output_bias = true;
    }
    let channels = config.size_or("lru_width", config.hidden_size, 1..=MAX_SIZE)?;
    let blocks = config.num_attention_heads;
    if !channels.is_multiple_of(blocks) {
        let bound = format!("must be a multiple of `num_attention_heads` = {blocks}");
        return Err(bad("lru_width", channels, bound));
    }
    spec.recurrent = Some(RecurrentSpec {
        beside_attention: None,
        layers: recurrent,
        name: "temporal_block",
        output: "linear_out",
        output_bias: true,
        cell: CellSpec::GatedUnit(GatedUnitSpec {
            channels,
            blocks,
            taps: config.size_or("conv1d_width", 4, 2..=MAX_TAPS)?,
            activation: spec.mlp.activation,
        }),
    });
    Ok(spec)
}

/// Whether each layer is recurrent: `block_types` again and again.
fn recurrent_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let name = "block_types";
    let default = ["recurrent", "recurrent", "attention"].map(str::to_owned).to_vec();
    let kinds: Vec<String> = config.field_or(name, default)?;
    if kinds.is_empty() {
        return Err(bad(name, "[]", "must name at least one kind"));
    }
    let kind = |word: &String| match word.as_str() {
        "recurrent" => Ok(true),
        "attention" => Ok(false),
        _ => Err(bad(name, word, "supported are recurrent and attention")),
    };
    let kinds = kinds.iter().map(kind).collect::<Result<Vec<_>>>()?;
    Ok((0..config.num_hidden_layers).map(|layer| kinds[layer % kinds.len()]).collect())
}

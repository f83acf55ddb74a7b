//! Nemotron NAS and DeciLM, as configured by their own code on the hub: Llama in which each layer has as
//! many key heads, and as wide a feed-forward part, as its file says, or lacks the one or the other.

use serde::Deserialize;

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, MAX_SIZE, RawFields, Result, bad, base,
    read_biases,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("DeciLMForCausalLM", spec).completed_by(complete)];

/// What the parts of a layer are.
#[derive(Debug, Deserialize)]
struct BlockConfig {
    attention: AttentionConfig,
    ffn: FfnConfig,
}

#[derive(Debug, Deserialize)]
struct AttentionConfig {
    n_heads_in_group: Option<usize>,
    #[serde(default)]
    no_op: bool,
    #[serde(default)]
    replace_with_linear: bool,
}

#[derive(Debug, Deserialize)]
struct FfnConfig {
    ffn_mult: Option<f64>,
    #[serde(default)]
    no_op: bool,
    #[serde(default)]
    replace_with_linear: bool,
}

/// The size of a feed-forward part, which each layer has its own of.
fn complete(fields: &mut RawFields<'_>) {
    fields.multiple("intermediate_size", "hidden_size", 4);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    const BLOCKS: &str = "block_configs";
    let mut spec = base(config, &Defaults { norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_biases(config, &mut spec);
    if let Some(counts) = config.field::<Vec<usize>>("num_key_value_heads_per_layer")? {
        check_length("num_key_value_heads_per_layer", counts.len(), config)?;
        for (layer, count) in spec.attention.iter_mut().zip(counts) {
            layer.num_kv_heads = key_heads(layer.num_heads, count)?;
        }
    }
    let Some(blocks) = config.field::<Vec<BlockConfig>>(BLOCKS)? else { return Ok(spec) };
    check_length(BLOCKS, blocks.len(), config)?;
    let mut sizes = Vec::new();
    for (layer, block) in spec.attention.iter_mut().zip(&blocks) {
        if block.attention.replace_with_linear || block.ffn.replace_with_linear {
            return Err(bad(BLOCKS, "replace_with_linear", "is not supported"));
        }
        if !block.attention.no_op {
            let each = block.attention.n_heads_in_group.unwrap_or(1).max(1);
            layer.num_kv_heads = key_heads(layer.num_heads, layer.num_heads / each)?;
        }
        sizes.push(if block.ffn.no_op { 0 } else { inner(&block.ffn, config.hidden_size)? });
    }
    spec.mixers = Some(blocks.iter().map(|block| !block.attention.no_op).collect());
    spec.intermediate_sizes = Some(sizes);
    Ok(spec)
}

fn check_length(name: &'static str, found: usize, config: &HfConfig) -> Result<()> {
    let layers = config.num_hidden_layers;
    if found == layers {
        return Ok(());
    }
    Err(bad(name, found, format!("must have one for each of {layers} layers")))
}

fn key_heads(heads: usize, count: usize) -> Result<usize> {
    if count > 0 && heads.is_multiple_of(count) {
        return Ok(count);
    }
    Err(bad("n_heads_in_group", count, format!("key heads must divide {heads} query heads")))
}

/// Elements inside of a feed-forward part: two thirds of so many times a hidden state, rounded up to a
/// multiple of 256.
fn inner(ffn: &FfnConfig, hidden: usize) -> Result<usize> {
    let name = "ffn_mult";
    let Some(times) = ffn.ffn_mult.filter(|times| (0.0..1e4).contains(times)) else {
        return Err(bad(name, format!("{:?}", ffn.ffn_mult), "must be a number from 0 to 10000"));
    };
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "computed so by the reference, and checked"
    )]
    let inner = (2.0 * times * hidden as f64 / 3.0) as usize;
    let inner = inner.next_multiple_of(256);
    if inner == 0 || inner > MAX_SIZE {
        return Err(bad(name, times, format!("gives {inner} elements, expected 1 to {MAX_SIZE}")));
    }
    Ok(inner)
}

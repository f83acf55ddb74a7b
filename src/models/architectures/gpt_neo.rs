//! GPT-Neo: GPT-2 with a linear layer for each of queries, keys and values, scores that are not scaled,
//! and a window on the layers that the file calls local.

use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, LearnedPositions, MAX_SIZE, Names,
    RawFields, Result, bad, base, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("GPTNeoForCausalLM", spec).completed_by(complete)];

/// GPT-Neo's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("num_hidden_layers", "num_layers");
    fields.alias("num_attention_heads", "num_heads");
    fields.alias("hidden_act", "activation_function");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { context: 2048, tied: true, activation: "gelu_new", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.learned_positions = Some(LearnedPositions::from_zero("wpe"));
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn.attention",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("ln_1", "ln_2");
    spec.mlp.bias = true;
    spec.mlp.tensors = MlpTensors::Plain(["c_fc", "c_proj"]);
    let window = config.size_or("window_size", 256, 1..=MAX_SIZE)?;
    let local = local_layers(config)?;
    for (layer, local) in spec.attention.iter_mut().zip(local) {
        layer.output = "out_proj";
        layer.output_bias = true;
        layer.rope = None;
        layer.params.scale = 1.0;
        layer.params.window = local.then_some(window);
    }
    Ok(spec)
}

/// Whether each layer has a window: by `attention_layers`, else every second one.
fn local_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let (name, layers) = ("attention_layers", config.num_hidden_layers);
    let Some(words) = config.field::<Vec<String>>(name)? else {
        return Ok((0..layers).map(|layer| layer % 2 == 1).collect());
    };
    if words.len() != layers {
        return Err(bad(name, words.len(), format!("must name {layers} layers")));
    }
    let kind = |word: &String| match word.as_str() {
        "global" => Ok(false),
        "local" => Ok(true),
        _ => Err(bad(name, word, "supported are global and local")),
    };
    words.iter().map(kind).collect()
}

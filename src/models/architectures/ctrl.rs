//! CTRL: scaled embeddings, sines and cosines of positions, layer norms of inputs, biases everywhere,
//! and a head with a bias.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, Head, HfConfig, Names, RawFields, Result,
    Sinusoids, bad, base, root, set_biases,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("CTRLLMHeadModel", spec).completed_by(complete)];

/// CTRL's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "n_embd");
    fields.alias("num_hidden_layers", "n_layer");
    fields.alias("num_attention_heads", "n_head");
    fields.alias("max_position_embeddings", "n_positions");
    fields.alias("intermediate_size", "dff");
}

/// The epsilon of norms in layers, which no field sets.
const EPS: f32 = 1e-6;

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 256, activation: "relu", tied: true, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, true, true);
    let eps = config.number_or("layer_norm_epsilon", EPS)?;
    if eps.to_bits() != EPS.to_bits() {
        return Err(bad("layer_norm_epsilon", eps, format!("supported is {EPS}")));
    }
    spec.norm = NormSpec::layer(EPS, true);
    if !config.hidden_size.is_multiple_of(2) {
        return Err(bad("n_embd", config.hidden_size, "must be even"));
    }
    spec.sinusoids = Some(Sinusoids { first: 0, intervals: config.hidden_size / 2 });
    spec.embedding_scale = root(config.hidden_size);
    spec.head = Head::Biased;
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "w",
        layers: "h",
        norm: "layernorm",
        attention: "multi_head_attention",
        mlp: "ffn",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("layernorm1", "layernorm2");
    spec.mlp.tensors = MlpTensors::Plain(["0", "2"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Separate(["Wq", "Wk", "Wv"]);
        layer.output = "dense";
        layer.rope = None;
    }
    Ok(spec)
}

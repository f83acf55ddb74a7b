//! OPT: learned positions, of which the table's first two are for padding, layer norms, biases
//! everywhere, and an ungated feed-forward part with ReLU.

use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, LearnedPositions, Names, RawFields,
    Result, base, set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("OPTForCausalLM", spec).completed_by(complete)];

/// OPT's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("intermediate_size", "ffn_dim");
    fields.alias("hidden_act", "activation_function");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("do_layer_norm_before", true)?;
    config.only("word_embed_proj_dim", config.hidden_size)?;
    config.only("_remove_final_layer_norm", false)?;
    config.only("layer_norm_elementwise_affine", true)?;
    let defaults = Defaults { context: 2048, tied: true, activation: "relu", ..Defaults::LLAMA };
    let mut spec = ungated(config, &defaults)?;
    let bias = config.field_or("enable_bias", true)?;
    set_biases(&mut spec, bias, bias);
    Ok(spec)
}

/// The decoder of models with the same layers.
pub(super) fn ungated(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.learned_positions = Some(LearnedPositions { name: "embed_positions", first: 2 });
    spec.names = Names {
        roots: &["model.decoder.", "decoder."],
        norm: "final_layer_norm",
        // The projections of a layer are in the layer itself.
        mlp: "",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("self_attn_layer_norm", "final_layer_norm");
    spec.mlp.tensors = MlpTensors::Plain(["fc1", "fc2"]);
    for layer in &mut spec.attention {
        layer.output = "out_proj";
        layer.rope = None;
    }
    Ok(spec)
}

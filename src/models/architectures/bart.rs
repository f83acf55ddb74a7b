//! The decoders of BART and mBART without their encoders: OPT's layers behind a layer norm of the
//! embeddings, with norms of the sums of hidden states and each part's output, or before both parts.

use super::bert_decoder::only_decoders;
use super::opt;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, root,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("BartForCausalLM", spec_bart).completed_by(complete),
    Architecture::new("MBartForCausalLM", spec_mbart).completed_by(complete),
];

/// Their names of common fields, where the encoder has some of its own.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "d_model");
    fields.replace("num_hidden_layers", "decoder_layers");
    fields.replace("num_attention_heads", "decoder_attention_heads");
    fields.alias("intermediate_size", "decoder_ffn_dim");
    fields.alias("hidden_act", "activation_function");
    fields.default("max_position_embeddings", 1024);
}

fn spec_bart(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_mbart(config)?;
    spec.names.norm = "";
    spec.block = Block {
        before_attention: None,
        after_attention: Some("self_attn_layer_norm"),
        before_mlp: None,
        after_mlp: Some("final_layer_norm"),
        normalizes_sums: true,
        ..Block::PRE_NORM
    };
    Ok(spec)
}

fn spec_mbart(config: &HfConfig) -> Result<DecoderSpec> {
    only_decoders(config)?;
    let defaults = Defaults { activation: "gelu", tied: true, ..Defaults::LLAMA };
    let mut spec = opt::ungated(config, &defaults)?;
    spec.norm = NormSpec::layer(1e-5, true);
    spec.names = Names { norm: "layer_norm", ..spec.names };
    spec.embedding_norm = Some("layernorm_embedding");
    if config.field_or("scale_embedding", false)? {
        spec.embedding_scale = root(config.hidden_size);
    }
    Ok(spec)
}

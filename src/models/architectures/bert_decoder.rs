//! BERT and its kin as decoders: learned positions or a rotation, layer norms of the embeddings and of the
//! sums of hidden states and each part's output, and a linear layer and a norm before the output head. Files
//! say that tokens see only what is before them; without that they are encoders.

use crate::kernels::pointwise::Activation;
use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, BeforeHead, Block, DecoderSpec, Defaults, Head, HfConfig, LearnedPositions,
    MAX_SIZE, Names, RawFields, Result, bad, base, remove_rope, set_biases, set_interleaved_rope,
    set_positions_behind_padding,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("BertLMHeadModel", spec_bert).completed_by(complete),
    Architecture::new("ElectraForCausalLM", spec_electra).completed_by(complete),
    Architecture::new("RobertaForCausalLM", spec_roberta).completed_by(complete),
    Architecture::new("XLMRobertaForCausalLM", spec_roberta).completed_by(complete),
    Architecture::new("RoFormerForCausalLM", spec_roformer).completed_by(complete),
];

const POSITIONS: &str = "embeddings.position_embeddings";

fn complete(fields: &mut RawFields<'_>) {
    fields.default("max_position_embeddings", 512);
}

/// The decoder whose head is BERT's.
fn spec_bert(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = layers(config)?;
    remove_rope(&mut spec);
    spec.learned_positions = Some(LearnedPositions::from_zero(POSITIONS));
    Ok(spec)
}

fn spec_electra(config: &HfConfig) -> Result<DecoderSpec> {
    only_whole_embeddings(config, 128)?;
    let mut spec = spec_bert(config)?;
    spec.names.roots = &["electra.", ""];
    spec.names.head = "generator_lm_head";
    spec.names.other_head_bias = None;
    spec.before_head = Some(BeforeHead {
        dense: "generator_predictions.dense",
        bias: true,
        activation: Activation::Gelu,
        norm: "generator_predictions.LayerNorm",
    });
    Ok(spec)
}

/// Positions begin behind the padding token's.
fn spec_roberta(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = layers(config)?;
    set_positions_behind_padding(config, POSITIONS, &mut spec)?;
    spec.names.roots = &["roberta.", ""];
    spec.names.head = "lm_head.decoder";
    spec.names.other_head_bias = Some("lm_head.bias");
    spec.before_head = Some(BeforeHead {
        dense: "lm_head.dense",
        bias: true,
        activation: Activation::Gelu,
        norm: "lm_head.layer_norm",
    });
    Ok(spec)
}

fn spec_roformer(config: &HfConfig) -> Result<DecoderSpec> {
    only_whole_embeddings(config, config.hidden_size)?;
    config.only("rotary_value", false)?;
    let mut spec = layers(config)?;
    spec.names.roots = &["roformer.", ""];
    set_interleaved_rope(&mut spec);
    Ok(spec)
}

/// The decoder but for its positions.
fn layers(config: &HfConfig) -> Result<DecoderSpec> {
    only_decoders(config)?;
    let defaults = Defaults { tied: true, activation: "gelu", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.norm = NormSpec::layer(config.number_or("layer_norm_eps", 1e-12)?, true);
    set_biases(&mut spec, true, true);
    spec.names = Names {
        roots: &["bert.", ""],
        embedding: "embeddings.word_embeddings",
        layers: "encoder.layer",
        norm: "",
        head: "cls.predictions.decoder",
        other_head_bias: Some("cls.predictions.bias"),
        attention: "attention",
        // The projections of a layer are in the layer itself.
        mlp: "",
        ..Names::COMMON
    };
    spec.token_types = Some((
        "embeddings.token_type_embeddings",
        config.size_or("type_vocab_size", 2, 1..=MAX_SIZE)?,
    ));
    spec.embedding_norm = Some("embeddings.LayerNorm");
    spec.block = Block {
        before_attention: None,
        after_attention: Some("attention.output.LayerNorm"),
        before_mlp: None,
        after_mlp: Some("output.LayerNorm"),
        normalizes_sums: true,
        ..Block::PRE_NORM
    };
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Separate(["self.query", "self.key", "self.value"]);
        layer.output = "output.dense";
    }
    spec.mlp.tensors = MlpTensors::Plain(["intermediate.dense", "output.dense"]);
    spec.head = Head::Biased;
    spec.before_head = Some(BeforeHead {
        dense: "cls.predictions.transform.dense",
        bias: true,
        activation: spec.mlp.activation,
        norm: "cls.predictions.transform.LayerNorm",
    });
    Ok(spec)
}

/// Refuses files of encoders, whose tokens see all of a text, and of decoders that look at an encoder.
pub(super) fn only_decoders(config: &HfConfig) -> Result<()> {
    if !config.field_or("is_decoder", false)? {
        let bound = "must be true: only decoders continue a text";
        return Err(bad("is_decoder", false, bound));
    }
    config.only("add_cross_attention", false)
}

/// Refuses embeddings of another size than hidden states have.
pub(super) fn only_whole_embeddings(config: &HfConfig, default: usize) -> Result<()> {
    let size = config.field_or("embedding_size", default)?;
    if size == config.hidden_size {
        return Ok(());
    }
    let bound = format!("must be `hidden_size` = {}: no other is projected", config.hidden_size);
    Err(bad("embedding_size", size, bound))
}

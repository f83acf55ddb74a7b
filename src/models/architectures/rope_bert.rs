//! BERT with rotary embeddings in place of learned positions: GTE (and Snowflake Arctic's 2.0 of its
//! kind), nomic-bert, also with experts in some layers (nomic-embed-text-v2-moe), and Jina's third
//! embeddings. Norms come after both parts, of their sums with the hidden states, and none at the end.
//! Their files have their authors' names, and the configuration of nomic-bert is one of GPT-2, or in
//! transformers' words.

use serde_json::Value;

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{ExpertTensors, MoeSpec, StackedTensors};
use crate::models::classifier::{
    ClassifiedBy, ClassifierActivation, ClassifierLayer, ClassifierSpec,
};
use crate::models::common::{
    Block, DecoderSpec, Defaults, EncoderArchitecture, ExpertFields, HfConfig, Names, RawFields,
    Result, RopeDefaults, bad, base, experts, set_biases, set_layer_norm,
    set_positions_behind_padding,
};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] = &[
    EncoderArchitecture { family: "Gte", spec: gte, complete: None, classifier: pooled },
    EncoderArchitecture { family: "New", spec: gte, complete: None, classifier: pooled },
    EncoderArchitecture {
        family: "NomicBert",
        spec: nomic,
        complete: Some(complete_nomic),
        classifier: none,
    },
    EncoderArchitecture {
        family: "JinaEmbeddingsV3",
        spec: jina,
        complete: Some(complete_jina),
        classifier: jina_head,
    },
];

const ROOTS: &[&str] = &["gte.", "new.", "nomic_bert.", "jina_embeddings_v3.", "roberta.", ""];

/// The part that all of them share, with rotary embeddings of this base.
fn first(config: &HfConfig, theta: f64, activation: &'static str) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta, share: 1.0, partial: false };
    let defaults = Defaults { context: 8192, rope, activation, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.names =
        Names { roots: ROOTS, embedding: "embeddings.word_embeddings", norm: "", ..Names::COMMON };
    spec.embedding_norm = Some("embeddings.LayerNorm");
    let types = config.field_or("type_vocab_size", 1usize)?;
    spec.token_types = (types > 0).then_some(("embeddings.token_type_embeddings", types));
    Ok(spec)
}

/// Norms of the sums of both parts' outputs with the hidden states.
pub(super) fn after_parts(attention: &'static str, mlp: &'static str) -> Block {
    Block {
        before_attention: None,
        after_attention: Some(attention),
        before_mlp: None,
        after_mlp: Some(mlp),
        normalizes_sums: true,
        ..Block::PRE_NORM
    }
}

fn gte(config: &HfConfig) -> Result<DecoderSpec> {
    if let Some(kind) = config.field::<String>("position_embedding_type")?
        && kind != "rope"
    {
        return Err(bad("position_embedding_type", kind, "must be rope"));
    }
    let mut spec = first(config, 160_000.0, "gelu")?;
    set_biases(&mut spec, true, false);
    spec.mlp.down_bias = true;
    spec.names = Names { layers: "encoder.layer", attention: "attention", ..spec.names };
    spec.block = after_parts("attn_ln", "mlp_ln");
    spec.mlp.tensors = MlpTensors::UpAndGate(["up_gate_proj", "down_proj"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("qkv_proj");
    }
    Ok(spec)
}

/// What nomic-bert and Jina's embeddings share beyond that.
fn fused(config: &HfConfig, theta: f64, activation: &'static str) -> Result<DecoderSpec> {
    let mut spec = first(config, theta, activation)?;
    spec.names = Names { layers: "encoder.layers", ..spec.names };
    spec.embedding_norm = Some("emb_ln");
    spec.block = after_parts("norm1", "norm2");
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("Wqkv");
        layer.output = "out_proj";
    }
    Ok(spec)
}

fn nomic(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("rotary_emb_fraction", 1.0)?;
    for name in ["prenorm", "rotary_emb_interleaved"] {
        config.only(name, false)?;
    }
    let gated = match config.field::<String>("activation_function")?.as_deref() {
        None | Some("swiglu") => true,
        Some("gelu") => false,
        Some(other) => return Err(bad("activation_function", other, "must be swiglu or gelu")),
    };
    let of_attention = config.field_or("qkv_proj_bias", false)?;
    let of_mlp = config.field_or("mlp_fc1_bias", false)?;
    config.only("mlp_fc2_bias", of_mlp)?;
    let mut spec = fused(config, 1000.0, "silu")?;
    spec.names = Names { attention: "attn", ..spec.names };
    set_biases(&mut spec, of_attention, of_mlp);
    spec.mlp.tensors = if gated {
        MlpTensors::Gated(["fc12", "fc11", "fc2"])
    } else {
        MlpTensors::Plain(["fc1", "fc2"])
    };
    if config.field_or("num_experts", 0usize)? > 0 {
        spec.moe = Some(nomic_experts(config, &spec)?);
    }
    Ok(spec)
}

/// The experts of every `moe_every_n_layers`-th layer, of which none is gated.
fn nomic_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    config.only("num_shared_experts", 0usize)?;
    for name in ["expert_choice_router", "moe_normalize_expert_weights"] {
        config.only(name, false)?;
    }
    let fields = ExpertFields { inner: "intermediate_size", chosen: "moe_top_k" };
    let mut moe = experts(config, spec, &fields)?;
    let every = config.size("moe_every_n_layers", config.num_hidden_layers)?;
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer % every == 1).collect();
    moe.router = "mlp.router.layer";
    moe.output_bias = Some("mlp.experts.bias");
    moe.experts = ExpertTensors::Stacked(StackedTensors {
        flat: true,
        plain: true,
        ..StackedTensors::new(["mlp.experts.mlp.w1", "mlp.experts.mlp.w2"])
    });
    Ok(moe)
}

fn complete_nomic(fields: &mut RawFields<'_>) {
    for (name, theirs) in [
        ("hidden_size", "n_embd"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "n_inner"),
        ("max_position_embeddings", "n_positions"),
        ("layer_norm_eps", "layer_norm_epsilon"),
        ("rope_theta", "rotary_emb_base"),
    ] {
        fields.alias(name, theirs);
    }
    // A gated part is named after its gate.
    let plain = fields.is("activation_function", "gelu");
    fields.default("hidden_act", if plain { "gelu" } else { "silu" });
}

/// Its authors' name of the base, and what their code takes where their files say nothing.
fn complete_jina(fields: &mut RawFields<'_>) {
    fields.alias("rope_theta", "rotary_emb_base");
    if !fields.is("model_type", "jina_embeddings_v3") {
        fields.default("position_embedding_type", "absolute");
    }
}

/// Jina's third embeddings, and what else its authors' code computes: their second reranker has RoBERTa's
/// positions, their second ColBERT rotary ones.
fn jina(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = fused(config, 20_000.0, "gelu")?;
    match config.field::<String>("position_embedding_type")?.as_deref() {
        None | Some("rotary") => {}
        Some("absolute") => {
            set_positions_behind_padding(config, "embeddings.position_embeddings", &mut spec)?;
        }
        Some(other) => {
            return Err(bad("position_embedding_type", other, "must be rotary or absolute"));
        }
    }
    set_biases(&mut spec, true, true);
    spec.names = Names { attention: "mixer", ..spec.names };
    spec.mlp.tensors = MlpTensors::Plain(["fc1", "fc2"]);
    Ok(spec)
}

fn pooled(config: &Value, top: Top) -> Option<ClassifierSpec> {
    let classes = ClassifierLayer::Classes("classifier");
    let layers = match top {
        Top::TokenClassifier => vec![classes],
        _ => vec![ClassifierLayer::Hidden("pooler.dense", ClassifierActivation::Tanh), classes],
    };
    ClassifierSpec::new(config, top, ClassifiedBy::First, layers)
}

pub(super) fn jina_head(config: &Value, top: Top) -> Option<ClassifierSpec> {
    let layers = match top {
        Top::TokenClassifier => vec![ClassifierLayer::Classes("classifier")],
        _ => vec![
            ClassifierLayer::Hidden("classifier.dense", ClassifierActivation::Tanh),
            ClassifierLayer::Classes("classifier.out_proj"),
        ],
    };
    ClassifierSpec::new(config, top, ClassifiedBy::First, layers)
}

/// Pairs of texts would need token types, which are not computed.
fn none(_config: &Value, _top: Top) -> Option<ClassifierSpec> {
    None
}

//! ModernBERT: an encoder like a decoder, with rotary embeddings, gated feed-forward parts and layer
//! norms before both parts; attention is to all of the text in every third layer and to neighbours
//! within a window in the others. Warner et al., 2024.

use serde_json::Value;

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::classifier::{
    ClassifiedBy, ClassifierActivation, ClassifierLayer, ClassifierSpec,
};
use crate::models::common::{
    Block, DecoderSpec, Defaults, EncoderArchitecture, HfConfig, Names, RawFields, Result,
    RopeDefaults, base, set_biases, set_layer_norm, windowed_layers,
};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "ModernBert", spec, complete: Some(complete), classifier }];

const DEFAULTS: Defaults = Defaults {
    context: 8192,
    activation: "gelu",
    rope: RopeDefaults { theta: 160_000.0, share: 1.0, partial: false },
    ..Defaults::LLAMA
};

pub(super) fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_act", "hidden_activation");
}

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &DEFAULTS)?;
    let norm_bias = config.field_or("norm_bias", false)?;
    set_layer_norm(config, &mut spec, "norm_eps", norm_bias)?;
    let [attention, mlp] = [config.attention_bias, config.mlp_bias];
    set_biases(&mut spec, attention.unwrap_or(false), mlp.unwrap_or(false));
    spec.names = Names {
        roots: &["model.", ""],
        embedding: "embeddings.tok_embeddings",
        norm: "final_norm",
        attention: "attn",
        ..Names::COMMON
    };
    spec.embedding_norm = Some("embeddings.norm");
    spec.block = Block { first_input_is_plain: true, ..Block::pre_norm("attn_norm", "mlp_norm") };
    spec.mlp.tensors = MlpTensors::GateAndUp(["Wi", "Wo"]);
    let interval = config.field_or("global_attn_every_n_layers", 3usize)?.max(1);
    let windowed = windowed_layers(config, |layer| layer % interval != 0)?;
    let theta = config.field_or("global_rope_theta", DEFAULTS.rope.theta)?;
    let local = config.field_or("local_rope_theta", 10_000.0)?;
    let rope = RopeDefaults { theta, ..DEFAULTS.rope };
    let head_dim = config.head_dim(None)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, rope, local)?.to_vec();
    // Half of it is on either side.
    let window = config.field_or("local_attention", 128usize)?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.qkv = QkvTensors::Stacked("Wqkv");
        layer.output = "Wo";
        layer.rope = Some(usize::from(windowed));
        layer.params.window = windowed.then_some(window);
    }
    Ok(spec)
}

fn classifier(config: &Value, top: Top) -> Option<ClassifierSpec> {
    let by_mean = config.get("classifier_pooling").and_then(Value::as_str) == Some("mean");
    let from = if by_mean { ClassifiedBy::Mean } else { ClassifiedBy::First };
    let layers = vec![
        ClassifierLayer::Hidden("head.dense", ClassifierActivation::Gelu),
        ClassifierLayer::Norm("head.norm"),
        ClassifierLayer::Classes("classifier"),
    ];
    ClassifierSpec::new(config, top, from, layers)
}

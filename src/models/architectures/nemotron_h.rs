//! Nemotron-H and Nemotron 3: a layer is one thing alone, a state space, attention without a
//! rotation, a feed-forward part without a gate that squares what is above zero, or experts of such.

use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{ChoiceBias, ExpertTensors, MoeSpec, Score, SharedExpert};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::common::experts::{FIELDS, count, experts, groups};
use crate::models::common::state_space::{SpaceFields, recurrent};
use crate::models::config::{Fields, HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// `time_step_min` is not among them: models are trained without that bound, and it is only how
/// their biases are drawn at first.
const SPACE: SpaceFields = SpaceFields {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    state_size: ("ssm_state_size", 128),
    groups: ("n_groups", 8),
    taps: "conv_kernel",
    expand: None,
    conv_bias: "use_conv_bias",
    bias: "use_bias",
    activation: "mamba_hidden_act",
};

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Attention,
    Mlp,
    Experts,
}

/// Its own names of common fields, older ones, and the kinds of layers as letters.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.replace("rms_norm_eps", "layer_norm_epsilon");
    fields.replace("hidden_act", "mlp_hidden_act");
    fields.same("head_dim", "attention_head_dim");
    for (name, theirs) in [
        ("n_groups", "mamba_n_groups"),
        ("conv_kernel", "mamba_d_conv"),
        ("time_step_limit", "mamba_dt_limit"),
        ("use_conv_bias", "mamba_conv_bias"),
        ("layer_types", "layers_block_type"),
    ] {
        fields.replace(name, theirs);
    }
    fields.words("layer_types", "hybrid_override_pattern", |letter| match letter {
        'M' => "mamba".to_owned(),
        '*' => "attention".to_owned(),
        '-' => "mlp".to_owned(),
        'E' => "moe".to_owned(),
        other => other.to_string(),
    });
    fields.length("num_hidden_layers", "layer_types");
}

/// What `NemotronHForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 4096,
        norm_eps: 1e-5,
        activation: "relu2",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        norm: "norm_f",
        attention: "mixer",
        mlp: "mixer",
        ..Names::COMMON
    };
    spec.block =
        Block { before_attention: Some("norm"), before_mlp: Some("norm"), ..Block::PRE_NORM };
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    spec.ropes.clear();
    for layer in &mut spec.attention {
        layer.rope = None;
    }
    let kinds = kinds(config)?;
    let which = |kind: Kind| kinds.iter().map(|other| *other == kind).collect::<Vec<bool>>();
    let mixes = |kind: &Kind| matches!(kind, Kind::Space | Kind::Attention);
    spec.mixers = Some(kinds.iter().map(mixes).collect());
    let inner = |is_mlp: bool| if is_mlp { config.intermediate_size } else { 0 };
    spec.intermediate_sizes = Some(which(Kind::Mlp).into_iter().map(inner).collect());
    spec.recurrent = recurrent(config, &SPACE, spec.norm.eps, which(Kind::Space), "mixer")?;
    if let Some(space) = &spec.recurrent {
        config.only("mamba_proj_bias", space.output_bias)?;
    }
    if kinds.contains(&Kind::Experts) {
        let layers = which(Kind::Experts);
        spec.moe = Some(MoeSpec { layers, ..with_experts(config, &spec)? });
    }
    Ok(spec)
}

/// What each layer is.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>, ModelError> {
    let Some(types) = &config.layer_types else {
        let bound = "must name the kind of each layer, or `hybrid_override_pattern` must";
        return Err(bad("layers_block_type", "absent", bound));
    };
    let one = |kind: &String| match kind.as_str() {
        "mamba" | "linear_attention" => Ok(Kind::Space),
        "attention" | "full_attention" => Ok(Kind::Attention),
        "mlp" => Ok(Kind::Mlp),
        "moe" => Ok(Kind::Experts),
        _ => Err(bad(
            "layers_block_type",
            kind,
            "supported are mamba (M), attention (*), mlp (-) and moe (E)",
        )),
    };
    types.iter().map(one).collect()
}

/// Experts without gates, scored by a sigmoid, and one that all tokens go through.
fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec, ModelError> {
    if let Some(size) = config.field::<usize>("moe_latent_size")? {
        return Err(bad("moe_latent_size", size, "experts of latent vectors are not supported"));
    }
    config.only("n_shared_experts", 1)?;
    let mut moe = experts(config, spec, &FIELDS)?;
    moe.expert.bias = false;
    moe.router = "mixer.gate";
    moe.experts = ExpertTensors::List("mixer.experts");
    moe.choice_bias =
        Some(ChoiceBias { name: "mixer.gate.e_score_correction_bias", one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.groups = groups(config, moe.num_experts)?;
    moe.routing.renormalize = config.field("norm_topk_prob")?.unwrap_or(true);
    moe.routing.scale = config.number("routed_scaling_factor")?.unwrap_or(1.0);
    let inner = count(config, "moe_shared_expert_intermediate_size", 1 << 28)?;
    let mlp = MlpSpec { intermediate_size: inner, ..spec.mlp };
    moe.shared = Some(SharedExpert { name: "mixer.shared_experts", mlp, gate: None });
    Ok(moe)
}

//! Nemotron-H and Nemotron 3: a layer is either a state space, attention without a rotary
//! embedding, an ungated feed-forward part with squared ReLU, or experts of that kind.

use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{ExpertTensors, MoeSpec, SharedExpert};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Names, RawFields,
    Result, StateSpaceFields, bad, base, experts, groups, read_biases, recurrent, remove_rope,
    set_sigmoid_routing,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("NemotronHForCausalLM", spec).completed_by(complete),
    Architecture::new("NemotronH_Nano_Omni_Reasoning_V3", spec_omni).completed_by(complete),
    Architecture::new("NemotronH_Omni_Reasoning_V3", spec_omni).completed_by(complete),
];

/// The language model of Nemotron 3 Nano Omni.
fn spec_omni(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.names.roots = &["language_model.backbone.", "language_model.model.", "model."];
    Ok(spec)
}

/// Fields of the state spaces. `time_step_min` is not among them: it only initializes biases for
/// the training, and bounds no time step.
const SPACE: StateSpaceFields = StateSpaceFields {
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

/// The only part of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Attention,
    Mlp,
    Experts,
}

/// Nemotron-H's names of common fields, older ones, and kinds of layers as letters.
fn complete(fields: &mut RawFields<'_>) {
    fields.replace("rms_norm_eps", "layer_norm_epsilon");
    fields.replace("hidden_act", "mlp_hidden_act");
    fields.alias("head_dim", "attention_head_dim");
    for (name, alias) in [
        ("n_groups", "mamba_n_groups"),
        ("conv_kernel", "mamba_d_conv"),
        ("time_step_limit", "mamba_dt_limit"),
        ("use_conv_bias", "mamba_conv_bias"),
        ("layer_types", "layers_block_type"),
    ] {
        fields.replace(name, alias);
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

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 4096,
        norm_eps: 1e-5,
        activation: "relu2",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        norm: "norm_f",
        attention: "mixer",
        mlp: "mixer",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("norm", "norm");
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    remove_rope(&mut spec);
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

/// The kind of each layer.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>> {
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

/// Ungated experts with sigmoid scores, beside a shared one.
fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    if let Some(size) = config.field::<usize>("moe_latent_size")? {
        return Err(bad("moe_latent_size", size, "experts of latent vectors are not supported"));
    }
    config.only("n_shared_experts", 1)?;
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    moe.router = "mixer.gate";
    moe.experts = ExpertTensors::List("mixer.experts");
    set_sigmoid_routing(config, &mut moe, "mixer.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    let inner = config.size("moe_shared_expert_intermediate_size", MAX_SIZE)?;
    let mlp = MlpSpec { intermediate_size: inner, ..spec.mlp };
    moe.shared = Some(SharedExpert { name: "mixer.shared_experts", mlp, gate: None, factor: 1.0 });
    Ok(moe)
}

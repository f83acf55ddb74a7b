//! Rows of the table of architectures with selective state spaces, and what their files say
//! otherwise.

use super::architecture::{Architecture, Outer, Part};
use super::families::{
    Config, Done, GRANITE_NUMBERS, SIGMOID, SOFTMAX, set, set_class, set_experts,
};
use super::keys::{HeadCounts, ModelKeys};
use super::parts::{self, ATTENTION, LLAMA, PRE_NORMS, block_sparse_experts};
use super::recurrent::{heads, key_heads};

/// A state space of this name.
macro_rules! space {
    ($name:literal) => {
        &[
            ("ssm_in", concat!($name, ".in_proj")),
            ("ssm_conv1d", concat!($name, ".conv1d")),
            ("ssm_dt", concat!($name, ".dt_bias!")),
            // Not the logarithm that checkpoints have.
            ("ssm_a", concat!($name, ".A!")),
            ("ssm_d", concat!($name, ".D!")),
            ("ssm_norm", concat!($name, ".norm")),
            ("ssm_out", concat!($name, ".out_proj")),
        ]
    };
}

/// A selective scan of this name.
macro_rules! scan {
    ($name:literal) => {
        &[
            ("ssm_in", concat!($name, ".in_proj")),
            ("ssm_conv1d", concat!($name, ".conv1d")),
            ("ssm_x", concat!($name, ".x_proj")),
            ("ssm_dt", concat!($name, ".dt_proj")),
            ("ssm_dt_norm", concat!($name, ".dt_layernorm")),
            ("ssm_b_norm", concat!($name, ".b_layernorm")),
            ("ssm_c_norm", concat!($name, ".c_layernorm")),
            // Not the logarithm that checkpoints have.
            ("ssm_a", concat!($name, ".A!")),
            ("ssm_d", concat!($name, ".D!")),
            ("ssm_out", concat!($name, ".out_proj")),
        ]
    };
}

/// The dense feed-forward part of Falcon-H1 and Jamba.
const FEED_FORWARD: &[Part] = &[
    ("ffn_gate", "feed_forward.gate_proj"),
    ("ffn_up", "feed_forward.up_proj"),
    ("ffn_down", "feed_forward.down_proj"),
];

const OUTER: Outer = Outer {
    embedding: "backbone.embeddings",
    layers: "backbone.layers",
    norm: "backbone.norm_f",
    head: "lm_head",
};

/// What is in all layers, or beside attention in some.
const NEMOTRON_LAYERS: &[Part] = &[
    ("attn_norm", "norm"),
    ("attn_q", "mixer.q_proj"),
    ("attn_k", "mixer.k_proj"),
    ("attn_v", "mixer.v_proj"),
    ("attn_output", "mixer.o_proj"),
    ("ffn_up", "mixer.up_proj"),
    ("ffn_down", "mixer.down_proj"),
];

const NEMOTRON_EXPERTS: &[Part] = &[
    ("ffn_gate_inp", "mixer.gate"),
    ("exp_probs_b", "mixer.gate.e_score_correction_bias!"),
    ("ffn_up_exps", "mixer.experts.*.up_proj"),
    ("ffn_down_exps", "mixer.experts.*.down_proj"),
    ("ffn_up_shexp", "mixer.shared_experts.up_proj"),
    ("ffn_down_shexp", "mixer.shared_experts.down_proj"),
];

/// The feed-forward part without experts and beside them.
const GRANITE_SHARED: &[Part] = &[
    ("ffn_gate", "shared_mlp.gate_proj"),
    ("ffn_up", "shared_mlp.up_proj"),
    ("ffn_down", "shared_mlp.down_proj"),
    ("ffn_gate_shexp", "shared_mlp.gate_proj"),
    ("ffn_up_shexp", "shared_mlp.up_proj"),
    ("ffn_down_shexp", "shared_mlp.down_proj"),
    ("ffn_gate_inp", "block_sparse_moe.router.layer"),
];

const NEMOTRON_H: Architecture = Architecture {
    gguf: "nemotron_h",
    class: "NemotronHForCausalLM",
    model_type: "nemotron_h",
    outer: OUTER,
    blocks: &[NEMOTRON_LAYERS, space!("mixer")],
    interleaved_rope: true,
    activation: "relu2",
    heads,
    more: nemotron_h,
    ..LLAMA
};

/// The rows of architectures with state spaces.
pub(super) const STATE_SPACES: &[Architecture] = &[
    Architecture {
        gguf: "mamba2",
        class: "Mamba2ForCausalLM",
        model_type: "mamba2",
        outer: OUTER,
        blocks: &[&[("attn_norm", "norm")], space!("mixer")],
        norm_eps: ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
        // There is no attention: what stands for its heads is never looked at.
        heads: |_| Ok(HeadCounts { query: 1, key: 1, dim: 2, value: 2, rotary: 2 }),
        more: mamba2,
        ..LLAMA
    },
    Architecture {
        gguf: "granitehybrid",
        class: "GraniteMoeHybridForCausalLM",
        also: &["BambaForCausalLM"],
        model_type: "granitemoehybrid",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            GRANITE_SHARED,
            block_sparse_experts!("gate_proj", "up_proj", "down_proj"),
            space!("mamba"),
        ],
        interleaved_rope: true,
        numbers: GRANITE_NUMBERS,
        heads,
        more: granite_hybrid,
        ..LLAMA
    },
    Architecture {
        gguf: "falcon-h1",
        class: "FalconH1ForCausalLM",
        model_type: "falcon_h1",
        outer: Outer { norm: "model.final_layernorm", ..parts::OUTER },
        blocks: &[
            ATTENTION,
            // Conversion leaves out the ending of the second norm.
            &[("attn_norm", "input_layernorm"), ("ffn_norm", "pre_ff_layernorm.weight!")],
            FEED_FORWARD,
            space!("mamba"),
        ],
        more: falcon_h1,
        ..LLAMA
    },
    Architecture {
        gguf: "mamba",
        class: "MambaForCausalLM",
        also: &["FalconMambaForCausalLM"],
        model_type: "mamba",
        outer: OUTER,
        blocks: &[&[("attn_norm", "norm")], scan!("mixer")],
        norm_eps: ("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
        heads: |_| Ok(HeadCounts { query: 1, key: 1, dim: 2, value: 2, rotary: 2 }),
        more: mamba,
        ..LLAMA
    },
    Architecture {
        gguf: "jamba",
        class: "JambaForCausalLM",
        model_type: "jamba",
        outer: Outer { norm: "model.final_layernorm", ..parts::OUTER },
        blocks: &[
            ATTENTION,
            &[("attn_norm", "input_layernorm"), ("ffn_norm", "pre_ff_layernorm")],
            FEED_FORWARD,
            &[
                ("ffn_gate_inp", "feed_forward.router"),
                ("ffn_gate_exps", "feed_forward.experts.*.gate_proj"),
                ("ffn_up_exps", "feed_forward.experts.*.up_proj"),
                ("ffn_down_exps", "feed_forward.experts.*.down_proj"),
            ],
            scan!("mamba"),
        ],
        heads,
        more: jamba,
        ..LLAMA
    },
    NEMOTRON_H,
    Architecture {
        gguf: "nemotron_h_moe",
        blocks: &[NEMOTRON_LAYERS, NEMOTRON_EXPERTS, space!("mixer")],
        ..NEMOTRON_H
    },
];

/// The fields that say how large state spaces are.
struct SpaceFields {
    heads: &'static str,
    head_dim: &'static str,
    state_size: &'static str,
    groups: &'static str,
    taps: &'static str,
    conv_bias: &'static str,
    bias: &'static str,
}

const MAMBA2: SpaceFields = SpaceFields {
    heads: "num_heads",
    head_dim: "head_dim",
    state_size: "state_size",
    groups: "n_groups",
    taps: "conv_kernel",
    conv_bias: "use_conv_bias",
    bias: "use_bias",
};

const HYBRID: SpaceFields = SpaceFields {
    heads: "mamba_n_heads",
    head_dim: "mamba_d_head",
    state_size: "mamba_d_state",
    groups: "mamba_n_groups",
    taps: "mamba_d_conv",
    conv_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
};

/// Sets these fields, and `expand` to what all heads make up for each element of a hidden state.
fn set_space(
    keys: &ModelKeys<'_>,
    config: &mut Config,
    fields: &SpaceFields,
    expand: Option<&str>,
) -> Done {
    let [inner, heads] = space_heads(keys)?;
    set(config, fields.heads, heads);
    set(config, fields.head_dim, inner / heads);
    set(config, fields.state_size, keys.required("ssm.state_size")?);
    set(config, fields.groups, keys.required("ssm.group_count")?);
    set(config, fields.taps, keys.required("ssm.conv_kernel")?);
    set(config, fields.conv_bias, any_tensor(keys, ".ssm_conv1d.bias"));
    set(config, fields.bias, any_tensor(keys, ".ssm_in.bias"));
    let Some(expand) = expand else { return Ok(()) };
    let hidden = keys.required("embedding_length")?;
    if !inner.is_multiple_of(hidden) {
        let key = keys.key("ssm.inner_size");
        return Err(format!("metadata `{key}` is {inner}, expected a multiple of {hidden}"));
    }
    set(config, expand, inner / hidden);
    Ok(())
}

/// Elements of all heads of a state space, and heads.
fn space_heads(keys: &ModelKeys<'_>) -> Result<[u64; 2], String> {
    let (inner, heads) = (keys.required("ssm.inner_size")?, keys.required("ssm.time_step_rank")?);
    if inner.is_multiple_of(heads) {
        return Ok([inner, heads]);
    }
    Err(format!("a state space has {inner} elements, expected equally many for {heads} heads"))
}

fn any_tensor(keys: &ModelKeys<'_>, ending: &str) -> bool {
    keys.tensors().iter().any(|tensor| tensor.name.ends_with(ending))
}

fn mamba2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    // The converter's words for it: an arbitrary value.
    config.remove("max_position_embeddings");
    set_space(keys, config, &MAMBA2, Some("expand"))
}

fn granite_hybrid(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let kind = |heads: u64| if heads == 0 { "mamba" } else { "attention" };
    let kinds: Vec<&str> = key_heads(keys)?.into_iter().map(kind).collect();
    set(config, "layer_types", kinds);
    let rotates = keys.bool("rope.scaling.finetuned")?.unwrap_or(true);
    set(config, "position_embedding_type", if rotates { "rope" } else { "nope" });
    if !rotates {
        config.remove("partial_rotary_factor");
    }
    if keys.float("attention.scale")?.is_none_or(|scale| scale == 0.0) {
        // Bamba, which is this without factors.
        #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^52")]
        let dim = keys.heads()?.dim as f64;
        set(config, "attention_multiplier", 1.0 / dim.sqrt());
    }
    set(config, "attention_bias", any_tensor(keys, ".attn_q.bias"));
    set(config, "mlp_bias", any_tensor(keys, ".ffn_up.bias"));
    let experts = keys.count("expert_count")?.unwrap_or(0);
    if experts > 0 {
        set_experts(keys, config, SOFTMAX)?;
    }
    set(config, "num_local_experts", experts);
    set(config, "experts_apart", true);
    let shared = keys.count("expert_shared_feed_forward_length")?.filter(|inner| *inner > 0);
    let shared = shared.map_or_else(|| keys.required("feed_forward_length"), Ok)?;
    set(config, "shared_intermediate_size", shared);
    set_space(keys, config, &HYBRID, Some("mamba_expand"))
}

/// Falcon-H1, whose matrices have taken the multipliers in.
fn falcon_h1(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set(config, "mamba_d_ssm", keys.required("ssm.inner_size")?);
    set(config, "mamba_rms_norm", any_tensor(keys, ".ssm_norm.weight"));
    set(config, "mamba_norm_before_gate", false);
    set(config, "projectors_bias", any_tensor(keys, ".ssm_out.bias"));
    set_space(keys, config, &HYBRID, None)
}

/// Sets how large selective scans are, in fields of these names.
fn set_scan(keys: &ModelKeys<'_>, config: &mut Config, names: [&str; 5]) -> Done {
    let [expand, state_size, rank, taps, conv_bias] = names;
    let (inner, hidden) = (keys.required("ssm.inner_size")?, keys.required("embedding_length")?);
    if !inner.is_multiple_of(hidden) {
        let key = keys.key("ssm.inner_size");
        return Err(format!("metadata `{key}` is {inner}, expected a multiple of {hidden}"));
    }
    set(config, expand, inner / hidden);
    set(config, state_size, keys.required("ssm.state_size")?);
    set(config, rank, keys.required("ssm.time_step_rank")?);
    set(config, taps, keys.required("ssm.conv_kernel")?);
    set(config, conv_bias, any_tensor(keys, ".ssm_conv1d.bias"));
    Ok(())
}

/// Mamba, and Falcon-Mamba whose norms have no scales.
fn mamba(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    // The converter's words for it: an arbitrary value.
    config.remove("max_position_embeddings");
    if keys.bool("ssm.dt_b_c_rms")?.unwrap_or(false) {
        set_class(config, "FalconMambaForCausalLM", "falcon_mamba");
        let eps = config["layer_norm_epsilon"].clone();
        set(config, "mixer_rms_eps", eps);
    }
    set(config, "use_bias", any_tensor(keys, ".ssm_in.bias"));
    set_scan(
        keys,
        config,
        ["expand", "state_size", "time_step_rank", "conv_kernel", "use_conv_bias"],
    )
}

fn jamba(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let kind = |heads: u64| if heads == 0 { "mamba" } else { "attention" };
    let kinds: Vec<&str> = key_heads(keys)?.into_iter().map(kind).collect();
    set(config, "layer_types", kinds);
    config.remove("partial_rotary_factor");
    let experts = keys.count("expert_count")?.unwrap_or(0);
    if experts > 1 {
        set_experts(keys, config, SOFTMAX)?;
    }
    set(config, "num_experts", experts.max(1));
    let sparse = |layer| {
        let routes = keys.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
        if routes { "sparse" } else { "dense" }
    };
    set(config, "mlp_layer_types", (0..keys.layers()?).map(sparse).collect::<Vec<_>>());
    set(config, "mamba_proj_bias", any_tensor(keys, ".ssm_in.bias"));
    set_scan(
        keys,
        config,
        ["mamba_expand", "mamba_d_state", "mamba_dt_rank", "mamba_d_conv", "mamba_conv_bias"],
    )
}

/// What a layer is, by the tensors that it has.
fn nemotron_kind(keys: &ModelKeys<'_>, layer: usize) -> Result<&'static str, String> {
    let has = |part: &str| keys.has(&format!("blk.{layer}.{part}.weight"));
    let kinds =
        [("ssm_in", "mamba"), ("attn_q", "attention"), ("ffn_up_exps", "moe"), ("ffn_up", "mlp")];
    let kind = kinds.iter().find(|(part, _)| has(part)).map(|(_, kind)| *kind);
    kind.ok_or_else(|| format!("layer {layer} is neither a state space nor any other part"))
}

fn nemotron_h(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let kinds: Vec<&str> =
        (0..keys.layers()?).map(|layer| nemotron_kind(keys, layer)).collect::<Result<_, _>>()?;
    set(config, "layer_types", kinds);
    // No layer rotates, whatever conversion took for the share.
    config.remove("partial_rotary_factor");
    let up = keys.tensors().iter().find(|tensor| tensor.name.ends_with(".ffn_up.weight"));
    if let Some(inner) = up.and_then(|up| up.shape.first()) {
        set(config, "intermediate_size", *inner);
    }
    set(config, "attention_bias", any_tensor(keys, ".attn_q.bias"));
    set(config, "mlp_bias", any_tensor(keys, ".ffn_up.bias"));
    if any_tensor(keys, ".ffn_up_exps.weight") {
        set_experts(keys, config, SIGMOID)?;
        let shared = keys.required("expert_shared_feed_forward_length")?;
        set(config, "moe_shared_expert_intermediate_size", shared);
        set(config, "n_shared_experts", keys.count("expert_shared_count")?.unwrap_or(1));
        set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
        let scale = keys.float("expert_weights_scale")?.filter(|scale| *scale != 0.0);
        set(config, "routed_scaling_factor", scale.unwrap_or(1.0));
        set(config, "n_group", keys.count("expert_group_count")?.unwrap_or(1).max(1));
        set(config, "topk_group", keys.count("expert_group_used_count")?.unwrap_or(1).max(1));
        if let Some(latent) = keys.count("moe_latent_size")?.filter(|size| *size > 0) {
            set(config, "moe_latent_size", latent);
        }
    }
    let fields = SpaceFields {
        heads: "mamba_num_heads",
        head_dim: "mamba_head_dim",
        state_size: "ssm_state_size",
        ..MAMBA2
    };
    set_space(keys, config, &fields, None)
}

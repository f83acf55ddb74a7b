//! Names of tensors that several architectures have, and what most rows of the table start from.

use super::architecture::{Architecture, DraftHead, Outer, Part};

pub(super) const OUTER: Outer = Outer {
    embedding: "model.embed_tokens",
    layers: "model.layers",
    norm: "model.norm",
    head: "lm_head",
};

/// The projections of attention as most architectures have them.
pub(super) const ATTENTION: &[Part] = &[
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
];

/// The projections of attention where files have all three in one tensor, or each in its own.
pub(super) const JOINED_ATTENTION: &[Part] =
    &[("attn_qkv", "self_attn.q_proj|self_attn.k_proj|self_attn.v_proj")];

/// Norms of query and key heads.
pub(super) const HEAD_NORMS: &[Part] =
    &[("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm")];

/// The same as Hunyuan names them.
pub(super) const HUNYUAN_NORMS: &[Part] =
    &[("attn_q_norm", "self_attn.query_layernorm"), ("attn_k_norm", "self_attn.key_layernorm")];

/// Norms before both parts.
pub(super) const PRE_NORMS: &[Part] =
    &[("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")];

/// Norms behind both parts.
pub(super) const POST_NORMS: &[Part] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Norms before and behind both parts, as Gemma calls them.
pub(super) const SANDWICH_NORMS: &[Part] = &[
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

pub(super) const GATED_MLP: &[Part] =
    &[("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")];

/// Gate and up in one tensor, which files keep as it is.
pub(super) const STACKED_MLP: &[Part] =
    &[("ffn_up", "mlp.gate_up_proj"), ("ffn_down", "mlp.down_proj")];

pub(super) const PLAIN_MLP: &[Part] = &[("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")];

/// A list of feed-forward parts.
pub(super) const EXPERTS: &[Part] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
    ("ffn_gate_up_exps", "mlp.experts.*.gate_proj|mlp.experts.*.up_proj"),
];

/// What all tokens go through besides, in the names of Qwen.
pub(super) const QWEN_SHARED_EXPERT: &[Part] = &[
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// What all tokens go through besides.
pub(super) const SHARED_EXPERTS: &[Part] = &[
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];

pub(super) const CHOICE_BIAS: &[Part] = &[("exp_probs_b", "mlp.gate.e_score_correction_bias!")];

/// The experts of Mixtral and of Granite, but for the router.
macro_rules! block_sparse_experts {
    ($gate:literal, $up:literal, $down:literal) => {
        &[
            ("ffn_gate_exps", concat!("block_sparse_moe.experts.*.", $gate)),
            ("ffn_up_exps", concat!("block_sparse_moe.experts.*.", $up)),
            ("ffn_down_exps", concat!("block_sparse_moe.experts.*.", $down)),
            // Files of before experts were put together.
            ("ffn_gate.#", concat!("block_sparse_moe.experts.#.", $gate)),
            ("ffn_up.#", concat!("block_sparse_moe.experts.#.", $up)),
            ("ffn_down.#", concat!("block_sparse_moe.experts.#.", $down)),
            (
                "ffn_gate_up_exps",
                concat!("block_sparse_moe.experts.*.", $gate, "|block_sparse_moe.experts.*.", $up),
            ),
        ]
    };
}

/// What Llama has instead of a feed-forward part if it is Mixtral.
pub(super) const MIXTRAL: &[&[Part]] =
    &[&[("ffn_gate_inp", "block_sparse_moe.gate")], block_sparse_experts!("w1", "w3", "w2")];

/// The head of DeepSeek and of GLM.
pub(super) const HEAD_BEHIND: DraftHead = DraftHead {
    layer: None,
    parts: &[
        ("nextn.embed_tokens", "embed_tokens"),
        ("nextn.enorm", "enorm"),
        ("nextn.hnorm", "hnorm"),
        ("nextn.eh_proj", "eh_proj"),
        ("nextn.shared_head_norm", "shared_head.norm"),
        ("nextn.shared_head_head", "shared_head.head"),
    ],
};

/// The head of Qwen3-Next and Qwen3.5.
pub(super) const HEAD_APART: DraftHead = DraftHead {
    layer: Some("mtp.layers.0"),
    parts: &[
        ("nextn.enorm", ".mtp.pre_fc_norm_embedding"),
        ("nextn.hnorm", ".mtp.pre_fc_norm_hidden"),
        ("nextn.eh_proj", ".mtp.fc"),
        ("nextn.shared_head_norm", ".mtp.norm"),
    ],
};

pub(super) const LLAMA: Architecture = Architecture {
    gguf: "llama",
    mark: None,
    class: "LlamaForCausalLM",
    also: &[],
    model_type: "llama",
    outer: OUTER,
    around: &[],
    blocks: &[ATTENTION, PRE_NORMS, GATED_MLP],
    interleaved_rope: false,
    norms_plus_one: false,
    activation: "silu",
    norm_eps: ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    numbers: &[],
    heads: |keys| keys.equal_heads(),
    draft_head: None,
    more: |_, _| Ok(()),
};

pub(super) use block_sparse_experts;

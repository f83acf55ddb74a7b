//! More rows of the table of architectures: those whose layers or ends are less like Llama's.

use super::architecture::{Architecture, Outer, Part};
use super::families;
use super::parts::{
    ATTENTION, CHOICE_BIAS, EXPERTS, GATED_MLP, HEAD_BEHIND, HEAD_NORMS, HUNYUAN_NORMS, LLAMA,
    PLAIN_MLP, PRE_NORMS, SANDWICH_NORMS, SHARED_EXPERTS, block_sparse_experts,
};
use super::{gemma4, latent, rope};

/// Around the layers of the first decoders.
const TRANSFORMER: Outer = Outer {
    embedding: "transformer.word_embeddings",
    layers: "transformer.h",
    norm: "transformer.ln_f",
    head: "lm_head",
};

/// The layers of Falcon and of Bloom but for norms.
const WHOLE_ATTENTION: &[Part] = &[
    ("attn_qkv", "self_attention.query_key_value"),
    ("attn_output", "self_attention.dense"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];

/// GPT-2; its heirs differ by their activation.
const GPT2: Architecture = Architecture {
    gguf: "gpt2",
    class: "GPT2LMHeadModel",
    model_type: "gpt2",
    outer: Outer { embedding: "transformer.wte", ..TRANSFORMER },
    around: &[("position_embd", "transformer.wpe")],
    blocks: &[&[
        ("attn_norm", "ln_1"),
        ("attn_qkv", "attn.c_attn"),
        ("attn_output", "attn.c_proj"),
        ("ffn_norm", "ln_2"),
        ("ffn_up", "mlp.c_fc"),
        ("ffn_down", "mlp.c_proj"),
    ]],
    activation: "gelu_new",
    norm_eps: ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    more: |_, config| {
        families::gpt2(config);
        Ok(())
    },
    ..LLAMA
};

const FALCON: Architecture = Architecture {
    gguf: "falcon",
    class: "FalconForCausalLM",
    model_type: "falcon",
    outer: TRANSFORMER,
    blocks: &[WHOLE_ATTENTION, &[("attn_norm", "input_layernorm")]],
    activation: "gelu",
    norm_eps: ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    more: |keys, config| {
        families::falcon(keys, config);
        Ok(())
    },
    ..LLAMA
};

/// Latent attention.
pub(super) const LATENT_ATTENTION: &[Part] = &[
    ("attn_q", "self_attn.q_proj"),
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("attn_k_b", "self_attn.k_b_proj"),
    ("attn_v_b", "self_attn.v_b_proj"),
    ("attn_output", "self_attn.o_proj"),
];

const DEEPSEEK2: Architecture = Architecture {
    gguf: "deepseek2",
    class: "DeepseekV2ForCausalLM",
    model_type: "deepseek_v2",
    blocks: &[LATENT_ATTENTION, PRE_NORMS, GATED_MLP, EXPERTS, SHARED_EXPERTS, CHOICE_BIAS],
    heads: latent::heads,
    more: latent::config,
    ..LLAMA
};

/// What chooses the tokens that a layer sees.
const INDEXER: &[Part] = &[
    ("indexer.k_norm", "self_attn.indexer.k_norm"),
    ("indexer.proj", "self_attn.indexer.weights_proj"),
    ("indexer.attn_k", "self_attn.indexer.wk"),
    ("indexer.attn_q_b", "self_attn.indexer.wq_b"),
];

/// DeepSeek 3 with an indexer.
const INDEXED: Architecture = Architecture {
    gguf: "deepseek32",
    class: "DeepseekV32ForCausalLM",
    blocks: &[
        LATENT_ATTENTION,
        PRE_NORMS,
        GATED_MLP,
        EXPERTS,
        SHARED_EXPERTS,
        CHOICE_BIAS,
        INDEXER,
    ],
    draft_head: Some(HEAD_BEHIND),
    more: latent::indexed,
    ..DEEPSEEK2
};

/// Architectures beside those of [`ARCHITECTURES`](super::architectures::ARCHITECTURES).
pub(super) const OTHER_LAYERS: &[Architecture] = &[
    Architecture {
        mark: Some("attn_norm_2.weight"),
        blocks: &[WHOLE_ATTENTION, &[("attn_norm", "ln_mlp"), ("attn_norm_2", "ln_attn")]],
        ..FALCON
    },
    FALCON,
    Architecture {
        gguf: "bloom",
        class: "BloomForCausalLM",
        model_type: "bloom",
        outer: TRANSFORMER,
        around: &[("token_embd_norm", "transformer.word_embeddings_layernorm")],
        blocks: &[WHOLE_ATTENTION, PRE_NORMS],
        activation: "gelu_new",
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        ..LLAMA
    },
    GPT2,
    Architecture {
        gguf: "mpt",
        class: "MptForCausalLM",
        model_type: "mpt",
        outer: Outer {
            embedding: "transformer.wte",
            layers: "transformer.blocks",
            norm: "transformer.norm_f",
            head: "lm_head",
        },
        blocks: &[&[
            ("attn_norm", "norm_1"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("ffn_norm", "norm_2"),
            ("ffn_up", "ffn.up_proj"),
            ("ffn_down", "ffn.down_proj"),
        ]],
        activation: "gelu",
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        more: families::mpt,
        ..LLAMA
    },
    Architecture {
        gguf: "gpt-oss",
        class: "GptOssForCausalLM",
        model_type: "gpt_oss",
        blocks: &[
            ATTENTION,
            &[
                ("attn_sinks", "self_attn.sinks!"),
                ("attn_norm", "input_layernorm"),
                ("post_attention_norm", "post_attention_layernorm"),
                ("ffn_gate_inp", "mlp.router"),
                ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
                ("ffn_up_exps", "mlp.experts.*.up_proj"),
                ("ffn_down_exps", "mlp.experts.*.down_proj"),
            ],
        ],
        more: families::gpt_oss,
        ..LLAMA
    },
    Architecture {
        gguf: "gemma4",
        class: "Gemma4ForCausalLM",
        also: &["Gemma4ForConditionalGeneration", "Gemma4UnifiedForCausalLM"],
        model_type: "gemma4_text",
        around: &[
            ("per_layer_token_embd", "model.embed_tokens_per_layer"),
            ("per_layer_model_proj", "model.per_layer_model_projection"),
            ("per_layer_proj_norm", "model.per_layer_projection_norm"),
        ],
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            SANDWICH_NORMS,
            GATED_MLP,
            &[
                ("layer_output_scale", "layer_scalar!"),
                ("inp_gate", "per_layer_input_gate"),
                ("proj", "per_layer_projection"),
                ("post_norm", "post_per_layer_input_norm"),
                ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
                ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
                ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
                ("ffn_gate_inp", "router.proj"),
                ("ffn_gate_inp.scale", "router.scale!"),
                ("ffn_gate_up_exps", "experts.*.gate_proj|experts.*.up_proj"),
                ("ffn_gate_exps", "experts.*.gate_proj"),
                ("ffn_up_exps", "experts.*.up_proj"),
                ("ffn_down_exps", "experts.*.down_proj"),
                ("ffn_down_exps.scale", "router.per_expert_scale!"),
            ],
        ],
        activation: "gelu_pytorch_tanh",
        heads: gemma4::heads,
        more: gemma4::config,
        ..LLAMA
    },
    Architecture {
        also: &["DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM", "YoutuForCausalLM"],
        draft_head: Some(HEAD_BEHIND),
        ..DEEPSEEK2
    },
    Architecture { gguf: "deepseek32", class: "DeepseekV32ForCausalLM", ..INDEXED },
    Architecture { gguf: "glm-dsa", class: "GlmMoeDsaForCausalLM", ..INDEXED },
    Architecture {
        gguf: "hy_v4",
        class: "HYV4ForCausalLM",
        model_type: "hy_v4",
        around: &[
            ("output_hc_fn", "model.hc_head.hc_fn!"),
            ("output_hc_base", "model.hc_head.hc_base!"),
            ("output_hc_scale", "model.hc_head.hc_scale!"),
        ],
        blocks: &[
            LATENT_ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
            CHOICE_BIAS,
            INDEXER,
            &[
                ("attn_gate", "self_attn.gate_proj"),
                ("attn_sinks", "self_attn.sinks!"),
                ("hc_attn_fn", "attn_hc.fn!"),
                ("hc_attn_base", "attn_hc.base!"),
                ("hc_attn_scale", "attn_hc.scale!"),
                ("hc_ffn_fn", "ffn_hc.fn!"),
                ("hc_ffn_base", "ffn_hc.base!"),
                ("hc_ffn_scale", "ffn_hc.scale!"),
            ],
        ],
        more: latent::hunyuan4,
        ..DEEPSEEK2
    },
    Architecture {
        gguf: "mistral4",
        class: "Mistral4ForCausalLM",
        model_type: "mistral4",
        more: latent::mistral4,
        ..DEEPSEEK2
    },
    Architecture {
        gguf: "minicpm3",
        class: "MiniCPM3ForCausalLM",
        model_type: "minicpm3",
        blocks: &[LATENT_ATTENTION, PRE_NORMS, GATED_MLP],
        more: latent::minicpm3,
        ..DEEPSEEK2
    },
    Architecture {
        gguf: "starcoder",
        class: "GPTBigCodeForCausalLM",
        model_type: "gpt_bigcode",
        activation: "gelu_pytorch_tanh",
        more: LLAMA.more,
        ..GPT2
    },
    Architecture {
        gguf: "qwen",
        class: "QWenLMHeadModel",
        model_type: "qwen",
        outer: Outer { embedding: "transformer.wte", ..TRANSFORMER },
        blocks: &[&[
            ("attn_norm", "ln_1"),
            ("attn_qkv", "attn.c_attn"),
            ("attn_output", "attn.c_proj"),
            ("ffn_norm", "ln_2"),
            ("ffn_gate", "mlp.w2"),
            ("ffn_up", "mlp.w1"),
            ("ffn_down", "mlp.c_proj"),
        ]],
        ..LLAMA
    },
    Architecture {
        gguf: "orion",
        class: "OrionForCausalLM",
        model_type: "orion",
        norm_eps: ("attention.layer_norm_epsilon", "rms_norm_eps"),
        ..LLAMA
    },
    Architecture {
        gguf: "minicpm",
        class: "MiniCPMForCausalLM",
        model_type: "minicpm",
        interleaved_rope: true,
        more: families::minicpm,
        ..LLAMA
    },
    Architecture {
        gguf: "jais2",
        class: "Jais2ForCausalLM",
        model_type: "jais2",
        blocks: &[ATTENTION, PRE_NORMS, PLAIN_MLP],
        activation: "relu2",
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        ..LLAMA
    },
    Architecture {
        gguf: "qwen2vl",
        class: "Qwen2VLForConditionalGeneration",
        model_type: "qwen2_vl",
        more: |keys, config| {
            families::qwen(config);
            rope::set_axes(keys, config)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "qwen3vl",
        class: "Qwen3VLForConditionalGeneration",
        model_type: "qwen3_vl",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, GATED_MLP],
        more: |keys, config| {
            families::qwen(config);
            rope::set_axes(keys, config)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "qwen3vlmoe",
        class: "Qwen3VLMoeForConditionalGeneration",
        model_type: "qwen3_vl_moe",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, EXPERTS],
        more: |keys, config| {
            families::qwen3_moe(keys, config)?;
            rope::set_axes(keys, config)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "llama4",
        class: "Llama4ForCausalLM",
        also: &["Llama4ForConditionalGeneration"],
        model_type: "llama4_text",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            &[
                ("ffn_gate", "feed_forward.gate_proj"),
                ("ffn_up", "feed_forward.up_proj"),
                ("ffn_down", "feed_forward.down_proj"),
                ("ffn_gate_inp", "feed_forward.router"),
                ("ffn_gate_exps", "feed_forward.experts.*.gate_proj"),
                ("ffn_up_exps", "feed_forward.experts.*.up_proj"),
                ("ffn_down_exps", "feed_forward.experts.*.down_proj"),
                ("ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"),
                ("ffn_up_shexp", "feed_forward.shared_expert.up_proj"),
                ("ffn_down_shexp", "feed_forward.shared_expert.down_proj"),
            ],
        ],
        more: families::llama4,
        ..LLAMA
    },
    // The first BitNet: BitNet b1.58 2B4T, which has another activation, is not converted.
    Architecture {
        gguf: "bitnet",
        class: "BitNetForCausalLM",
        model_type: "bitnet",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            &[("attn_sub_norm", "self_attn.attn_sub_norm"), ("ffn_sub_norm", "mlp.ffn_sub_norm")],
        ],
        ..LLAMA
    },
    // Llama, but for names of tensors that conversion does away with.
    Architecture { gguf: "baichuan", interleaved_rope: true, more: families::baichuan, ..LLAMA },
    Architecture { gguf: "xverse", interleaved_rope: true, ..LLAMA },
    Architecture { gguf: "nanbeige", interleaved_rope: true, more: families::nanbeige, ..LLAMA },
    Architecture { gguf: "pangu-embedded", more: families::pangu, ..LLAMA },
    Architecture {
        gguf: "hunyuan_vl",
        class: "HunYuanDenseV1ForCausalLM",
        model_type: "hunyuan_v1_dense",
        blocks: &[ATTENTION, PRE_NORMS, GATED_MLP, HUNYUAN_NORMS],
        more: families::hunyuan_vl,
        ..LLAMA
    },
    Architecture {
        gguf: "paddleocr",
        class: "PaddleOCRVLForConditionalGeneration",
        model_type: "paddleocr_vl",
        more: |keys, config| {
            families::one_bias(keys, config);
            rope::set_axes(keys, config)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "minimax-m2",
        class: "MiniMaxM2ForCausalLM",
        model_type: "minimax_m2",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            &[
                ("ffn_gate_inp", "block_sparse_moe.gate"),
                ("exp_probs_b", "block_sparse_moe.e_score_correction_bias!"),
            ],
            block_sparse_experts!("w1", "w3", "w2"),
        ],
        more: families::minimax_m2,
        ..LLAMA
    },
];

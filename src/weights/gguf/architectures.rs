//! The architectures of GGUF files: one row each, in the order of the format's own list.
//!
//! A new architecture is a new row: its class, the names of its tensors, what conversion did to
//! them, and where its configuration differs from Llama's.

use super::architecture::{Architecture, Outer};
use super::families;
use super::parts::{
    ATTENTION, CHOICE_BIAS, EXPERTS, GATED_MLP, HEAD_BEHIND, HEAD_NORMS, HUNYUAN_NORMS,
    JOINED_ATTENTION, LLAMA, MIXTRAL, OUTER, PLAIN_MLP, POST_NORMS, PRE_NORMS, QWEN_SHARED_EXPERT,
    SANDWICH_NORMS, SHARED_EXPERTS, STACKED_MLP, block_sparse_experts,
};

/// Every architecture that the decoder runs and the format has.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        also: &["MistralForCausalLM", "MixtralForCausalLM", "InternLM3ForCausalLM"],
        blocks: &[ATTENTION, PRE_NORMS, GATED_MLP, MIXTRAL[0], MIXTRAL[1]],
        interleaved_rope: true,
        more: families::llama,
        ..LLAMA
    },
    Architecture {
        gguf: "mistral3",
        class: "MistralForCausalLM",
        also: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        model_type: "mistral",
        interleaved_rope: true,
        more: families::mistral3,
        ..LLAMA
    },
    Architecture {
        gguf: "qwen2",
        class: "Qwen2ForCausalLM",
        model_type: "qwen2",
        more: |_, config| {
            families::qwen(config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "qwen2moe",
        class: "Qwen2MoeForCausalLM",
        model_type: "qwen2_moe",
        blocks: &[ATTENTION, PRE_NORMS, EXPERTS, QWEN_SHARED_EXPERT],
        more: families::qwen2_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "qwen3",
        class: "Qwen3ForCausalLM",
        model_type: "qwen3",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, GATED_MLP],
        more: |_, config| {
            families::qwen(config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "qwen3moe",
        class: "Qwen3MoeForCausalLM",
        model_type: "qwen3_moe",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, EXPERTS],
        more: families::qwen3_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "gemma",
        class: "GemmaForCausalLM",
        model_type: "gemma",
        norms_plus_one: true,
        activation: "gelu_pytorch_tanh",
        ..LLAMA
    },
    Architecture {
        gguf: "gemma2",
        class: "Gemma2ForCausalLM",
        model_type: "gemma2",
        blocks: &[ATTENTION, SANDWICH_NORMS, GATED_MLP],
        norms_plus_one: true,
        activation: "gelu_pytorch_tanh",
        more: families::gemma2,
        ..LLAMA
    },
    Architecture {
        gguf: "gemma3",
        class: "Gemma3ForCausalLM",
        also: &["Gemma3ForConditionalGeneration"],
        model_type: "gemma3_text",
        blocks: &[ATTENTION, HEAD_NORMS, SANDWICH_NORMS, GATED_MLP],
        norms_plus_one: true,
        activation: "gelu_pytorch_tanh",
        more: families::gemma3,
        ..LLAMA
    },
    Architecture {
        gguf: "phi2",
        class: "PhiForCausalLM",
        model_type: "phi",
        outer: Outer { norm: "model.final_layernorm", ..OUTER },
        blocks: &[
            JOINED_ATTENTION,
            &[
                ("attn_q", "self_attn.q_proj"),
                ("attn_k", "self_attn.k_proj"),
                ("attn_v", "self_attn.v_proj"),
                ("attn_output", "self_attn.dense"),
                ("attn_norm", "input_layernorm"),
                ("ffn_up", "mlp.fc1"),
                ("ffn_down", "mlp.fc2"),
            ],
        ],
        activation: "gelu_new",
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        ..LLAMA
    },
    Architecture {
        gguf: "phi3",
        class: "Phi3ForCausalLM",
        model_type: "phi3",
        blocks: &[
            &[("attn_qkv", "self_attn.qkv_proj"), ("attn_output", "self_attn.o_proj")],
            PRE_NORMS,
            STACKED_MLP,
        ],
        ..LLAMA
    },
    Architecture {
        gguf: "starcoder2",
        class: "Starcoder2ForCausalLM",
        model_type: "starcoder2",
        blocks: &[ATTENTION, PRE_NORMS, &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")]],
        activation: "gelu_pytorch_tanh",
        norm_eps: ("attention.layer_norm_epsilon", "norm_epsilon"),
        more: |keys, config| {
            families::one_bias(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "stablelm",
        class: "StableLmForCausalLM",
        model_type: "stablelm",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            &[("attn_q_norm", "self_attn.q_layernorm"), ("attn_k_norm", "self_attn.k_layernorm")],
        ],
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        more: families::stablelm,
        ..LLAMA
    },
    Architecture {
        gguf: "gptneox",
        class: "GPTNeoXForCausalLM",
        model_type: "gpt_neox",
        outer: Outer {
            embedding: "gpt_neox.embed_in",
            layers: "gpt_neox.layers",
            norm: "gpt_neox.final_layer_norm",
            head: "embed_out",
        },
        blocks: &[
            PRE_NORMS,
            &[
                ("attn_qkv", "attention.query_key_value"),
                ("attn_output", "attention.dense"),
                ("ffn_up", "mlp.dense_h_to_4h"),
                ("ffn_down", "mlp.dense_4h_to_h"),
            ],
        ],
        activation: "gelu",
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        more: families::gpt_neox,
        ..LLAMA
    },
    Architecture {
        gguf: "command-r",
        class: "CohereForCausalLM",
        model_type: "cohere",
        blocks: &[ATTENTION, HEAD_NORMS, &[("attn_norm", "input_layernorm")], GATED_MLP],
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        numbers: &[("logit_scale", "logit_scale")],
        more: |keys, config| {
            families::command_r(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "cohere2",
        class: "Cohere2ForCausalLM",
        model_type: "cohere2",
        blocks: &[ATTENTION, &[("attn_norm", "input_layernorm")], GATED_MLP],
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        numbers: &[("logit_scale", "logit_scale")],
        ..LLAMA
    },
    Architecture {
        gguf: "olmo",
        class: "OlmoForCausalLM",
        model_type: "olmo",
        blocks: &[ATTENTION, GATED_MLP],
        interleaved_rope: true,
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        numbers: &[("attention.clamp_kqv", "clip_qkv")],
        more: families::olmo,
        ..LLAMA
    },
    Architecture {
        gguf: "olmo2",
        class: "Olmo2ForCausalLM",
        also: &["Olmo3ForCausalLM"],
        model_type: "olmo2",
        blocks: &[ATTENTION, HEAD_NORMS, POST_NORMS, GATED_MLP],
        more: |_, config| {
            families::olmo2(config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "olmoe",
        class: "OlmoeForCausalLM",
        model_type: "olmoe",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, EXPERTS],
        numbers: &[("attention.clamp_kqv", "clip_qkv")],
        more: families::olmoe,
        ..LLAMA
    },
    Architecture {
        gguf: "chatglm",
        class: "GlmForCausalLM",
        model_type: "glm",
        blocks: &[ATTENTION, JOINED_ATTENTION, PRE_NORMS, STACKED_MLP],
        more: |keys, config| {
            families::glm(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "glm4",
        class: "Glm4ForCausalLM",
        model_type: "glm4",
        blocks: &[
            ATTENTION,
            JOINED_ATTENTION,
            PRE_NORMS,
            STACKED_MLP,
            &[
                ("post_attention_norm", "post_self_attn_layernorm"),
                ("post_ffw_norm", "post_mlp_layernorm"),
            ],
        ],
        more: |keys, config| {
            families::glm(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "glm4moe",
        class: "Glm4MoeForCausalLM",
        also: &["SolarOpenForCausalLM"],
        model_type: "glm4_moe",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            &[
                ("attn_norm", "input_layernorm"),
                ("post_attention_norm", "post_attention_layernorm"),
            ],
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
            CHOICE_BIAS,
        ],
        draft_head: Some(HEAD_BEHIND),
        more: families::glm4_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "dots1",
        class: "Dots1ForCausalLM",
        model_type: "dots1",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
            CHOICE_BIAS,
        ],
        more: families::sigmoid_experts,
        ..LLAMA
    },
    Architecture {
        gguf: "granite",
        class: "GraniteForCausalLM",
        model_type: "granite",
        interleaved_rope: true,
        numbers: families::GRANITE_NUMBERS,
        more: families::granite,
        ..LLAMA
    },
    Architecture {
        gguf: "granitemoe",
        class: "GraniteMoeForCausalLM",
        also: &["GraniteMoeSharedForCausalLM"],
        model_type: "granitemoe",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            &[
                ("ffn_gate_inp", "block_sparse_moe.router.layer"),
                ("ffn_gate_shexp", "shared_mlp.gate_proj"),
                ("ffn_up_shexp", "shared_mlp.up_proj"),
                ("ffn_down_shexp", "shared_mlp.down_proj"),
            ],
            block_sparse_experts!("gate_proj", "up_proj", "down_proj"),
        ],
        interleaved_rope: true,
        numbers: families::GRANITE_NUMBERS,
        more: families::granite_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "exaone",
        class: "ExaoneForCausalLM",
        model_type: "exaone",
        outer: Outer {
            embedding: "transformer.wte",
            layers: "transformer.h",
            norm: "transformer.ln_f",
            head: "lm_head",
        },
        blocks: &[&[
            ("attn_norm", "ln_1"),
            ("attn_q", "attn.attention.q_proj"),
            ("attn_k", "attn.attention.k_proj"),
            ("attn_v", "attn.attention.v_proj"),
            ("attn_output", "attn.attention.out_proj"),
            ("ffn_norm", "ln_2"),
            ("ffn_gate", "mlp.c_fc_0"),
            ("ffn_up", "mlp.c_fc_1"),
            ("ffn_down", "mlp.c_proj"),
        ]],
        ..LLAMA
    },
    Architecture {
        gguf: "exaone4",
        class: "Exaone4ForCausalLM",
        model_type: "exaone4",
        blocks: &[ATTENTION, HEAD_NORMS, POST_NORMS, GATED_MLP],
        ..LLAMA
    },
    Architecture {
        gguf: "nemotron",
        class: "NemotronForCausalLM",
        model_type: "nemotron",
        blocks: &[ATTENTION, PRE_NORMS, PLAIN_MLP],
        norms_plus_one: true,
        activation: "relu2",
        norm_eps: ("attention.layer_norm_epsilon", "norm_eps"),
        ..LLAMA
    },
    Architecture {
        gguf: "arcee",
        class: "ArceeForCausalLM",
        model_type: "arcee",
        blocks: &[ATTENTION, PRE_NORMS, PLAIN_MLP],
        interleaved_rope: true,
        activation: "relu2",
        ..LLAMA
    },
    Architecture {
        gguf: "apertus",
        class: "ApertusForCausalLM",
        model_type: "apertus",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            &[("attn_norm", "attention_layernorm"), ("ffn_norm", "feedforward_layernorm")],
            PLAIN_MLP,
        ],
        activation: "xielu",
        ..LLAMA
    },
    Architecture {
        gguf: "seed_oss",
        class: "SeedOssForCausalLM",
        model_type: "seed_oss",
        blocks: &[
            ATTENTION,
            &[
                ("attn_norm", "input_layernorm"),
                ("post_attention_norm", "post_attention_layernorm"),
            ],
            GATED_MLP,
        ],
        more: |keys, config| {
            families::seed_oss(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        model_type: "ernie4_5",
        more: |keys, config| {
            families::one_bias(keys, config);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "ernie4_5-moe",
        class: "Ernie4_5_MoeForCausalLM",
        model_type: "ernie4_5_moe",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
            &[("exp_probs_b", "mlp.moe_statics.e_score_correction_bias!")],
        ],
        more: families::ernie_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "hunyuan-dense",
        class: "HunYuanDenseV1ForCausalLM",
        model_type: "hunyuan_v1_dense",
        blocks: &[ATTENTION, PRE_NORMS, GATED_MLP, HUNYUAN_NORMS],
        ..LLAMA
    },
    Architecture {
        gguf: "smollm3",
        class: "SmolLM3ForCausalLM",
        model_type: "smollm3",
        interleaved_rope: true,
        ..LLAMA
    },
    Architecture { gguf: "internlm2", interleaved_rope: true, ..LLAMA },
];

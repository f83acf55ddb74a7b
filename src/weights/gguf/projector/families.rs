//! The kinds of projectors: one row each.

use super::config::{
    gemma3, gemma4, gemma4_unified, idefics3, internvl, janus, lfm2, lighton, llama4, llava,
    minicpmv4_6, pixtral, qwen2_5_vl, qwen2_vl, qwen3_vl, resampler,
};
use super::fields::{Added, Facts};
use super::tensors::Form;

/// A kind of projector.
pub(super) struct Family {
    /// `clip.projector_type`.
    pub(super) name: &'static str,
    /// Architectures of decoders, and the class of both together.
    pub(super) classes: &'static [(&'static str, &'static str)],
    pub(super) model_type: &'static str,
    /// Prefixes of names of the tower and of the connector.
    pub(super) roots: [&'static str; 2],
    /// The list of layers.
    pub(super) layers: &'static str,
    /// Parts of a layer: `v.blk.N.`.
    pub(super) layer: &'static [Part],
    /// Parts of the tower around the layers: `v.`.
    pub(super) around: &'static [Part],
    /// Parts of the connector: `mm.`.
    pub(super) connector: &'static [Part],
    /// A tensor, and the dimension of it that is as wide as the decoder.
    pub(super) output: (&'static str, usize),
    /// Sets the fields.
    pub(super) fields: fn(&Facts<'_>, &mut Added) -> Result<(), String>,
}

/// What stands before `.weight` or `.bias`, its Hugging Face counterpart, and what conversion did. A
/// counterpart that ends in `!` has nothing behind it, one that ends in `_` no point; one that is empty is
/// left out.
pub(super) type Part = (&'static str, &'static str, Form);

const SIGLIP_LAYER: &[Part] = &[
    ("ln1", "layer_norm1", Form::Same),
    ("ln2", "layer_norm2", Form::Same),
    ("attn_q", "self_attn.q_proj", Form::Same),
    ("attn_k", "self_attn.k_proj", Form::Same),
    ("attn_v", "self_attn.v_proj", Form::Same),
    ("attn_out", "self_attn.out_proj", Form::Same),
    ("ffn_up", "mlp.fc1", Form::Same),
    ("ffn_down", "mlp.fc2", Form::Same),
];
const SIGLIP_AROUND: &[Part] = &[
    ("patch_embd", "embeddings.patch_embedding", Form::Same),
    ("position_embd", "embeddings.position_embedding", Form::Same),
    ("post_ln", "post_layernorm", Form::Same),
];
const TOWER_ROOTS: [&str; 2] = ["model.vision_tower.", "model.multi_modal_projector."];

const QWEN2_LAYER: &[Part] = &[
    ("ln1", "norm1", Form::Same),
    ("ln2", "norm2", Form::Same),
    ("attn_q", "attn.qkv", Form::Third(0)),
    ("attn_k", "attn.qkv", Form::Third(1)),
    ("attn_v", "attn.qkv", Form::Third(2)),
    ("attn_out", "attn.proj", Form::Same),
    ("ffn_up", "mlp.fc1", Form::Same),
    ("ffn_down", "mlp.fc2", Form::Same),
];
const QWEN: Family = Family {
    name: "qwen2vl_merger",
    classes: &[("qwen2vl", "Qwen2VLForConditionalGeneration")],
    model_type: "qwen2_vl",
    roots: ["model.visual.", "model.visual.merger."],
    layers: "blocks",
    layer: QWEN2_LAYER,
    around: &[
        ("patch_embd", "patch_embed.proj", Form::Frame(0)),
        ("post_ln", "merger.ln_q", Form::Same),
    ],
    connector: &[("0", "mlp.0", Form::Same), ("2", "mlp.2", Form::Same)],
    output: ("mm.2.weight", 0),
    fields: qwen2_vl,
};

const QWEN2_5: Family = Family {
    name: "qwen2.5vl_merger",
    classes: &[("qwen2vl", "Qwen2_5_VLForConditionalGeneration")],
    model_type: "qwen2_5_vl",
    layer: &[
        QWEN2_LAYER[0],
        QWEN2_LAYER[1],
        QWEN2_LAYER[2],
        QWEN2_LAYER[3],
        QWEN2_LAYER[4],
        QWEN2_LAYER[5],
        ("ffn_gate", "mlp.gate_proj", Form::Same),
        ("ffn_up", "mlp.up_proj", Form::Same),
        ("ffn_down", "mlp.down_proj", Form::Same),
    ],
    fields: qwen2_5_vl,
    ..QWEN
};

const CLIP: Family = Family {
    name: "mlp",
    classes: &[
        ("llama", "LlavaForConditionalGeneration"),
        ("mistral3", "LlavaForConditionalGeneration"),
        ("qwen2", "LlavaForConditionalGeneration"),
        ("qwen3", "LlavaForConditionalGeneration"),
    ],
    model_type: "llava",
    roots: TOWER_ROOTS,
    layers: "encoder.layers",
    layer: SIGLIP_LAYER,
    around: &[
        SIGLIP_AROUND[0],
        SIGLIP_AROUND[1],
        ("class_embd", "embeddings.class_embedding!", Form::Same),
        ("pre_ln", "pre_layrnorm", Form::Same),
        // What is looked at comes from before it.
        ("post_ln", "", Form::Same),
    ],
    connector: &[("0", "linear_1", Form::Same), ("2", "linear_2", Form::Same)],
    output: ("mm.2.weight", 0),
    fields: llava,
};

const PIXTRAL_LAYER: &[Part] = &[
    ("ln1", "attention_norm", Form::Same),
    ("ln2", "ffn_norm", Form::Same),
    ("attn_q", "attention.q_proj", Form::Turns(0)),
    ("attn_k", "attention.k_proj", Form::Turns(0)),
    ("attn_v", "attention.v_proj", Form::Same),
    ("attn_out", "attention.o_proj", Form::Same),
    ("ffn_gate", "feed_forward.gate_proj", Form::Same),
    ("ffn_up", "feed_forward.up_proj", Form::Same),
    ("ffn_down", "feed_forward.down_proj", Form::Same),
];
const PIXTRAL_CONNECTOR: &[Part] = &[
    ("1", "linear_1", Form::Same),
    ("2", "linear_2", Form::Same),
    ("input_norm", "norm", Form::Same),
    ("patch_merger", "patch_merger.merging_layer", Form::Same),
];

/// All of them.
pub(super) const FAMILIES: &[Family] = &[
    QWEN,
    QWEN2_5,
    Family {
        name: "qwen3vl_merger",
        classes: &[
            ("qwen3vl", "Qwen3VLForConditionalGeneration"),
            ("qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration"),
            ("qwen35", "Qwen3_5ForConditionalGeneration"),
            ("qwen35moe", "Qwen3_5MoeForConditionalGeneration"),
        ],
        model_type: "qwen3_vl",
        layer: &[
            QWEN2_LAYER[0],
            QWEN2_LAYER[1],
            ("attn_qkv", "attn.qkv", Form::Same),
            QWEN2_LAYER[5],
            ("ffn_up", "mlp.linear_fc1", Form::Same),
            ("ffn_down", "mlp.linear_fc2", Form::Same),
        ],
        around: &[
            ("patch_embd", "patch_embed.proj", Form::Frame(0)),
            ("position_embd", "pos_embed", Form::Same),
            ("post_ln", "merger.norm", Form::Same),
        ],
        connector: &[("0", "linear_fc1", Form::Same), ("2", "linear_fc2", Form::Same)],
        fields: qwen3_vl,
        ..QWEN
    },
    Family {
        name: "gemma3",
        classes: &[("gemma3", "Gemma3ForConditionalGeneration")],
        model_type: "gemma3",
        roots: TOWER_ROOTS,
        layers: "encoder.layers",
        layer: SIGLIP_LAYER,
        around: SIGLIP_AROUND,
        connector: &[
            ("input_projection", "mm_input_projection_weight!", Form::Same),
            ("soft_emb_norm", "mm_soft_emb_norm", Form::PlusOne),
        ],
        output: ("mm.input_projection.weight", 1),
        fields: gemma3,
    },
    Family {
        name: "gemma4v",
        classes: &[("gemma4", "Gemma4ForConditionalGeneration")],
        model_type: "gemma4",
        roots: ["model.vision_tower.", "model.embed_vision."],
        layers: "encoder.layers",
        layer: &[
            ("ln1", "input_layernorm", Form::Same),
            ("ln2", "pre_feedforward_layernorm", Form::Same),
            ("attn_post_norm", "post_attention_layernorm", Form::Same),
            ("ffn_post_norm", "post_feedforward_layernorm", Form::Same),
            ("attn_q", "self_attn.q_proj", Form::Same),
            ("attn_k", "self_attn.k_proj", Form::Same),
            ("attn_v", "self_attn.v_proj", Form::Same),
            ("attn_out", "self_attn.o_proj", Form::Same),
            ("attn_q_norm", "self_attn.q_norm", Form::Same),
            ("attn_k_norm", "self_attn.k_norm", Form::Same),
            ("ffn_gate", "mlp.gate_proj", Form::Same),
            ("ffn_up", "mlp.up_proj", Form::Same),
            ("ffn_down", "mlp.down_proj", Form::Same),
        ],
        around: &[
            ("patch_embd", "patch_embedder.input_proj", Form::Channels),
            ("position_embd", "patch_embedder.position_embedding_table!", Form::Same),
            ("std_bias", "std_bias!", Form::Same),
            ("std_scale", "std_scale!", Form::Same),
        ],
        connector: &[("input_projection", "embedding_projection", Form::Same)],
        output: ("mm.input_projection.weight", 0),
        fields: gemma4,
    },
    Family {
        name: "gemma4uv",
        classes: &[("gemma4", "Gemma4UnifiedForConditionalGeneration")],
        model_type: "gemma4_unified",
        roots: ["model.vision_embedder.", "model.embed_vision."],
        layers: "none",
        layer: &[],
        around: &[
            ("patch_embd", "patch_dense", Form::Channels),
            ("patch_norm.1", "patch_ln1", Form::Channels),
            ("patch_norm.2", "patch_ln2", Form::Same),
            ("patch_norm.3", "pos_norm", Form::Same),
            ("position_embd", "pos_embedding!", Form::Swapped),
        ],
        connector: &[("input_projection", "embedding_projection", Form::Same)],
        output: ("mm.input_projection.weight", 0),
        fields: gemma4_unified,
    },
    Family {
        name: "idefics3",
        classes: &[("llama", "SmolVLMForConditionalGeneration")],
        model_type: "smolvlm",
        roots: ["model.vision_model.", "model.connector."],
        layers: "encoder.layers",
        layer: SIGLIP_LAYER,
        around: SIGLIP_AROUND,
        connector: &[("model.fc", "modality_projection.proj", Form::Same)],
        output: ("mm.model.fc.weight", 0),
        fields: idefics3,
    },
    Family {
        name: "pixtral",
        classes: &[
            ("llama", "Mistral3ForConditionalGeneration"),
            ("mistral3", "Mistral3ForConditionalGeneration"),
        ],
        model_type: "mistral3",
        roots: TOWER_ROOTS,
        layers: "transformer.layers",
        layer: PIXTRAL_LAYER,
        around: &[
            ("patch_embd", "patch_conv", Form::Same),
            ("pre_ln", "ln_pre", Form::Same),
            // The same as the decoder's own.
            ("token_embd.img_break", "", Form::Same),
        ],
        connector: PIXTRAL_CONNECTOR,
        output: ("mm.2.weight", 0),
        fields: pixtral,
    },
    Family {
        name: "lfm2",
        classes: &[("lfm2", "Lfm2VlForConditionalGeneration")],
        model_type: "lfm2_vl",
        around: &[
            ("patch_embd", "embeddings.patch_embedding", Form::Channels),
            SIGLIP_AROUND[1],
            SIGLIP_AROUND[2],
        ],
        connector: &[
            ("input_norm", "layer_norm", Form::Same),
            ("1", "linear_1", Form::Same),
            ("2", "linear_2", Form::Same),
        ],
        fields: lfm2,
        ..CLIP
    },
    Family {
        name: "internvl",
        classes: &[
            ("llama", "InternVLForConditionalGeneration"),
            ("qwen2", "InternVLForConditionalGeneration"),
            ("qwen3", "InternVLForConditionalGeneration"),
            ("qwen3moe", "InternVLForConditionalGeneration"),
            ("gpt-oss", "InternVLForConditionalGeneration"),
        ],
        model_type: "internvl",
        layers: "encoder.layer",
        layer: &[
            ("ln1", "layernorm_before", Form::Same),
            ("ln2", "layernorm_after", Form::Same),
            ("ls1", "lambda_1!", Form::Same),
            ("ls2", "lambda_2!", Form::Same),
            ("attn_q", "attention.q_proj", Form::Same),
            ("attn_k", "attention.k_proj", Form::Same),
            ("attn_v", "attention.v_proj", Form::Same),
            ("attn_out", "attention.projection_layer", Form::Same),
            ("ffn_up", "mlp.fc1", Form::Same),
            ("ffn_down", "mlp.fc2", Form::Same),
        ],
        around: &[
            ("patch_embd", "embeddings.patch_embeddings.projection", Form::Same),
            ("position_embd", "embeddings.position_embeddings!", Form::Same),
            ("class_embd", "embeddings.cls_token!", Form::Same),
            ("post_ln", "layernorm", Form::Same),
        ],
        connector: &[
            ("model.mlp.0", "layer_norm", Form::Same),
            ("model.mlp.1", "linear_1", Form::Same),
            ("model.mlp.3", "linear_2", Form::Same),
        ],
        output: ("mm.model.mlp.3.weight", 0),
        fields: internvl,
        ..CLIP
    },
    Family {
        name: "llama4",
        classes: &[("llama4", "Llama4ForConditionalGeneration")],
        model_type: "llama4",
        roots: ["vision_model.", ""],
        layers: "model.layers",
        layer: &[
            ("ln1", "input_layernorm", Form::Same),
            ("ln2", "post_attention_layernorm", Form::Same),
            // The same, by newer converters.
            ("attn_post_norm", "post_attention_layernorm", Form::Same),
            SIGLIP_LAYER[2],
            SIGLIP_LAYER[3],
            SIGLIP_LAYER[4],
            ("attn_out", "self_attn.o_proj", Form::Same),
            SIGLIP_LAYER[6],
            SIGLIP_LAYER[7],
        ],
        around: &[
            ("patch_embd", "patch_embedding.linear", Form::Same),
            ("class_embd", "class_embedding!", Form::Same),
            ("position_embd", "positional_embedding_vlm!", Form::Same),
            ("pre_ln", "layernorm_pre", Form::Same),
            ("post_ln", "layernorm_post", Form::Same),
        ],
        connector: &[
            ("model.mlp.1", "vision_model.vision_adapter.mlp.fc1", Form::Same),
            ("model.mlp.2", "vision_model.vision_adapter.mlp.fc2", Form::Same),
            ("model.fc", "multi_modal_projector.linear_1", Form::Same),
        ],
        output: ("mm.model.fc.weight", 0),
        fields: llama4,
    },
    Family {
        name: "minicpmv4_6",
        classes: &[("qwen35", "MiniCPMV4_6ForConditionalGeneration")],
        model_type: "minicpmv4_6",
        roots: ["model.vision_tower.", "model.merger.mlp.0."],
        around: &[
            SIGLIP_AROUND[0],
            SIGLIP_AROUND[1],
            SIGLIP_AROUND[2],
            ("vit_merger.ln1", "vit_merger.layer_norm1", Form::Same),
            ("vit_merger.attn_q", "vit_merger.self_attn.q_proj", Form::Same),
            ("vit_merger.attn_k", "vit_merger.self_attn.k_proj", Form::Same),
            ("vit_merger.attn_v", "vit_merger.self_attn.v_proj", Form::Same),
            ("vit_merger.attn_out", "vit_merger.self_attn.out_proj", Form::Same),
            ("vit_merger.ds_ln", "vit_merger.pre_norm", Form::Same),
            ("vit_merger.ds_ffn_up", "vit_merger.linear_1", Form::Same),
            ("vit_merger.ds_ffn_down", "vit_merger.linear_2", Form::Same),
        ],
        connector: &[
            ("input_norm", "pre_norm", Form::Same),
            ("up", "linear_1", Form::Same),
            ("down", "linear_2", Form::Same),
        ],
        output: ("mm.down.weight", 0),
        fields: minicpmv4_6,
        ..CLIP
    },
    Family {
        name: "resampler",
        classes: &[("llama", "MiniCPMV"), ("qwen2", "MiniCPMV"), ("qwen3", "MiniCPMV")],
        model_type: "minicpmv",
        roots: ["vpm.", "resampler."],
        around: SIGLIP_AROUND,
        connector: &[
            ("query", "query!", Form::Same),
            ("kv", "kv_proj", Form::Same),
            ("ln_q", "ln_q", Form::Same),
            ("ln_kv", "ln_kv", Form::Same),
            ("ln_post", "ln_post", Form::Same),
            ("attn.q", "attn.in_proj_", Form::Third(0)),
            ("attn.k", "attn.in_proj_", Form::Third(1)),
            ("attn.v", "attn.in_proj_", Form::Third(2)),
            ("attn.out", "attn.out_proj", Form::Same),
            ("proj", "proj!", Form::Swapped),
            // They are computed.
            ("pos_embed_k", "", Form::Same),
        ],
        output: ("resampler.proj.weight", 0),
        fields: resampler,
        ..CLIP
    },
    Family {
        name: "lightonocr",
        classes: &[("qwen3", "LightOnOcrForConditionalGeneration")],
        model_type: "lighton_ocr",
        roots: ["model.vision_encoder.", "model.vision_projection."],
        layers: "transformer.layers",
        layer: PIXTRAL_LAYER,
        around: &[("patch_embd", "patch_conv", Form::Same), ("pre_ln", "ln_pre", Form::Same)],
        connector: PIXTRAL_CONNECTOR,
        output: ("mm.2.weight", 0),
        fields: lighton,
    },
    Family {
        name: "janus_pro",
        classes: &[("llama", "JanusForConditionalGeneration")],
        model_type: "janus",
        roots: ["model.vision_model.", "model.aligner."],
        layer: &[
            SIGLIP_LAYER[0],
            SIGLIP_LAYER[1],
            SIGLIP_LAYER[2],
            SIGLIP_LAYER[3],
            SIGLIP_LAYER[4],
            ("attn_out", "self_attn.projection_layer", Form::Same),
            SIGLIP_LAYER[6],
            SIGLIP_LAYER[7],
        ],
        around: SIGLIP_AROUND,
        connector: &[
            ("0", "fc1", Form::Same),
            ("1", "hidden_layers.0", Form::Same),
            ("2", "hidden_layers.1", Form::Same),
            ("3", "hidden_layers.2", Form::Same),
            ("4", "hidden_layers.3", Form::Same),
        ],
        output: ("mm.0.weight", 0),
        fields: janus,
        ..CLIP
    },
    CLIP,
];

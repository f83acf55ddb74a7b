//! Rows of the table of architectures that only embed or judge texts, and how their files say what
//! becomes of hidden states.

use std::collections::HashMap;

use candle_core::DType;
use serde_json::{Map, json};

use super::architecture::{Architecture, Outer, Part};
use super::families::{Config, Done, gemma3, set, set_class};
use super::keys::ModelKeys;
use super::parts::{ATTENTION, GATED_MLP, HEAD_NORMS, LLAMA, OUTER, SANDWICH_NORMS};
use super::value::Value;
use crate::sentence_modules::SentenceModules;
use crate::tensors::TensorSource;

/// Dense layers behind the pooling, in their order.
pub(super) const DENSE: [&str; 2] = ["dense_2.weight", "dense_3.weight"];

/// `pooling_type` of a classifier.
const RANK: u64 = 4;

/// Tensors around the layers of BERT, and the classifier of RoBERTa.
const BERT_AROUND: &[Part] = &[
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("cls", "classifier.dense"),
    ("cls.output", "classifier.out_proj"),
];

/// Tensors around the layers of encoders that are computed as decoders.
const FUSED_AROUND: &[Part] =
    &[("token_types", "embeddings.token_type_embeddings"), ("token_embd_norm", "emb_ln")];

const LAYER_NORM: (&str, &str) = ("attention.layer_norm_epsilon", "layer_norm_eps");

const BERT: Architecture = Architecture {
    gguf: "bert",
    class: "BertModel",
    model_type: "bert",
    outer: Outer {
        embedding: "embeddings.word_embeddings",
        layers: "encoder.layer",
        norm: "",
        head: "",
    },
    around: BERT_AROUND,
    blocks: &[&[
        ("attn_q", "attention.self.query"),
        ("attn_k", "attention.self.key"),
        ("attn_v", "attention.self.value"),
        ("attn_qkv", "attention.self.query|attention.self.key|attention.self.value"),
        ("attn_output", "attention.output.dense"),
        ("attn_output_norm", "attention.output.LayerNorm"),
        ("ffn_up", "intermediate.dense"),
        ("ffn_down", "output.dense"),
        ("layer_output_norm", "output.LayerNorm"),
    ]],
    activation: "gelu",
    norm_eps: LAYER_NORM,
    more: bert,
    ..LLAMA
};

const NOMIC_BERT: Architecture = Architecture {
    gguf: "nomic-bert",
    class: "NomicBertModel",
    model_type: "nomic_bert",
    outer: Outer { layers: "encoder.layers", ..BERT.outer },
    around: FUSED_AROUND,
    blocks: &[&[
        ("attn_qkv", "attn.Wqkv"),
        ("attn_output", "attn.out_proj"),
        ("attn_output_norm", "norm1"),
        ("ffn_up", "mlp.fc11"),
        ("ffn_gate", "mlp.fc12"),
        ("ffn_down", "mlp.fc2"),
        ("layer_output_norm", "norm2"),
    ]],
    activation: "silu",
    more: |keys, config| {
        set_token_types(keys, config);
        Ok(())
    },
    ..BERT
};

/// The rows of encoders.
pub(super) const ENCODERS: &[Architecture] = &[
    BERT,
    NOMIC_BERT,
    Architecture {
        gguf: "jina-bert-v3",
        class: "JinaEmbeddingsV3Model",
        model_type: "jina_embeddings_v3",
        blocks: &[&[
            ("attn_qkv", "mixer.Wqkv"),
            ("attn_output", "mixer.out_proj"),
            ("attn_output_norm", "norm1"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
            ("layer_output_norm", "norm2"),
        ]],
        activation: "gelu",
        ..NOMIC_BERT
    },
    Architecture {
        gguf: "jina-bert-v2",
        class: "JinaBertModel",
        around: &[
            ("token_types", "embeddings.token_type_embeddings"),
            ("token_embd_norm", "embeddings.LayerNorm"),
        ],
        blocks: &[&[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "mlp.gated_layers"),
            ("ffn_down", "mlp.wo"),
            ("layer_output_norm", "mlp.layernorm"),
        ]],
        more: jina_bert,
        ..BERT
    },
    Architecture {
        gguf: "modern-bert",
        class: "ModernBertModel",
        model_type: "modernbert",
        outer: Outer {
            embedding: "embeddings.tok_embeddings",
            layers: "layers",
            norm: "final_norm",
            head: "",
        },
        around: &[
            ("token_embd_norm", "embeddings.norm"),
            ("cls", "head.dense"),
            ("cls.norm", "head.norm"),
            ("cls.output", "classifier"),
        ],
        blocks: &[&[
            ("attn_norm", "attn_norm"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.Wo"),
            ("ffn_norm", "mlp_norm"),
            ("ffn_up", "mlp.Wi"),
            ("ffn_down", "mlp.Wo"),
        ]],
        norm_eps: ("attention.layer_norm_rms_epsilon", "norm_eps"),
        numbers: &[("attention.layer_norm_epsilon", "norm_eps")],
        more: modern_bert,
        ..BERT
    },
    Architecture { gguf: "eurobert", class: "EuroBertModel", model_type: "eurobert", ..LLAMA },
    Architecture {
        gguf: "llama-embed",
        class: "LlamaModel",
        interleaved_rope: true,
        more: |_, config| {
            set(config, "is_causal", false);
            Ok(())
        },
        ..LLAMA
    },
    Architecture {
        gguf: "gemma-embedding",
        class: "Gemma3TextModel",
        model_type: "gemma3_text",
        outer: OUTER,
        around: &[("dense_2", "dense_2"), ("dense_3", "dense_3")],
        blocks: &[ATTENTION, HEAD_NORMS, SANDWICH_NORMS, GATED_MLP],
        norms_plus_one: true,
        activation: "gelu_pytorch_tanh",
        more: |keys, config| {
            set(config, "use_bidirectional_attention", true);
            config.remove("is_causal");
            gemma3(keys, config)
        },
        ..LLAMA
    },
];

/// Whether the file's own name for the architecture is that of an encoder, whose layers see all of a
/// text without being told.
pub(super) fn is_encoder(architecture: &Architecture) -> bool {
    ENCODERS.iter().any(|encoder| encoder.gguf == architecture.gguf)
}

fn set_token_types(keys: &ModelKeys<'_>, config: &mut Config) {
    let types = keys.tensor("token_types.weight").and_then(|types| types.shape.first());
    set(config, "type_vocab_size", types.copied().unwrap_or(0));
}

/// The names of classes, and their number.
fn set_classes(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let rows = keys.tensor("cls.output.weight").and_then(|classes| classes.shape.first());
    let count = rows.copied().unwrap_or(0);
    let key = keys.key("classifier.output_labels");
    let text = |value: &Value<'_>| value.as_text().map(str::to_owned);
    match keys.metadata().array(&key, "an array of strings", text)? {
        Some(labels) if labels.len() == count => {
            let named = labels.into_iter().enumerate();
            let named: Map<_, _> =
                named.map(|(at, label)| (at.to_string(), label.into())).collect();
            set(config, "id2label", named);
        }
        Some(labels) => {
            let named = labels.len();
            return Err(format!("metadata `{key}` names {named} classes, expected {count}"));
        }
        None => set(config, "num_labels", count),
    }
    Ok(())
}

/// BERT and its kin, whose positions conversion numbers from 0.
fn bert(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_token_types(keys, config);
    if let Some(positions) = keys.tensor("position_embd.weight").and_then(|t| t.shape.first()) {
        set(config, "max_position_embeddings", *positions);
    }
    match (keys.has("cls.weight"), keys.has("cls.output.weight")) {
        (true, true) => {
            set_class(config, "RobertaForSequenceClassification", "roberta");
            set(config, "positions_from_zero", true);
            set_classes(keys, config)
        }
        (false, false) => Ok(()),
        _ => Err("a classifier of one layer is not supported: conversion leaves out BERT's first"
            .to_owned()),
    }
}

/// Jina's second embeddings. Other variants and older conversions have tensors that these lack.
fn jina_bert(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if keys.has("blk.0.ffn_gate.weight") {
        return Err("gates beside `ffn_up` are of an older conversion: convert it again".to_owned());
    }
    if keys.has("blk.0.attn_q_norm.weight") {
        return Err("norms of queries and keys in it are not supported".to_owned());
    }
    set_token_types(keys, config);
    set(config, "position_embedding_type", "alibi");
    set(config, "feed_forward_type", "geglu");
    Ok(())
}

fn modern_bert(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if let Some(window) = keys.count("attention.sliding_window")?.filter(|window| *window > 0) {
        set(config, "local_attention", window);
    }
    let end = "attention.sliding_window_pattern";
    if keys.per_layer(end, Value::as_bool)?.is_none() {
        // The first of so many layers sees all of a text.
        let period = keys.count(end)?.unwrap_or(3).max(1);
        let kind = |layer: u64| {
            if layer.is_multiple_of(period) { "full_attention" } else { "sliding_attention" }
        };
        set(config, "layer_types", (0..keys.layers()? as u64).map(kind).collect::<Vec<_>>());
    }
    if let Some(activation) = keys.text("hidden_activation")? {
        set(config, "hidden_act", activation);
    }
    set(config, "norm_bias", keys.has("output_norm.bias"));
    set(config, "attention_bias", keys.has("blk.0.attn_qkv.bias"));
    if keys.has("cls.output.weight") {
        set_class(config, "ModernBertForSequenceClassification", "modernbert");
        let by_first = keys.count("classifier.pooling_type")? == Some(2);
        set(config, "classifier_pooling", if by_first { "cls" } else { "mean" });
        return set_classes(keys, config);
    }
    Ok(())
}

/// What the file says of how hidden states become vectors.
pub(super) fn pooling(keys: &ModelKeys<'_>) -> Result<Option<&'static str>, String> {
    match keys.count("pooling_type")? {
        None | Some(0 | RANK) => Ok(None),
        Some(1) => Ok(Some("mean")),
        Some(2) => Ok(Some("cls")),
        Some(3) => Ok(Some("lasttoken")),
        Some(other) => {
            let key = keys.key("pooling_type");
            Err(format!("metadata `{key}` is {other}, expected 0 to {RANK}"))
        }
    }
}

/// Pooling of this `mode`, then dense layers if the file has any, and the length of 1 that the format's
/// own programs give to vectors.
pub(super) fn modules(mode: &str, source: &dyn TensorSource) -> Result<SentenceModules, String> {
    let dense = DENSE.iter().filter(|name| source.contains(name)).map(|name| {
        let failed = |error: &dyn std::fmt::Display| format!("tensor `{name}`: {error}");
        let stored = source.read(name).map_err(|error| failed(&error))?;
        let matrix = stored.to_tensor(DType::F32).map_err(|error| failed(&error))?;
        let (outputs, inputs) = matrix.dims2().map_err(|error| failed(&error))?;
        let config = json!({
            "in_features": inputs, "out_features": outputs, "bias": false,
            "activation_function": "torch.nn.modules.linear.Identity",
        });
        Ok((config, HashMap::from([("linear.weight".to_owned(), matrix)])))
    });
    Ok(SentenceModules::pooled(mode, dense.collect::<Result<_, String>>()?))
}

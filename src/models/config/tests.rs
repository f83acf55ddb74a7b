//! Defaults, refusals and both spellings of every field of `config.json`.

#![allow(clippy::needless_pass_by_value, reason = "literals read better without a reference")]

use serde_json::{Value, json};

use super::super::decoder::DecoderSpec;
use super::super::{architectures, spec};
use super::*;
use crate::kernels::gated::Activation;

/// A small valid configuration with some fields changed; `null` removes none.
fn config(changes: Value) -> Result<HfConfig, ModelError> {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    });
    let fields = config.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    HfConfig::from_json(&config.to_string())
}

fn spec_of(changes: Value) -> Result<DecoderSpec, ModelError> {
    spec(&config(changes)?)
}

fn windows(changes: Value) -> Vec<Option<usize>> {
    spec_of(changes).unwrap().attention.iter().map(|layer| layer.params.window).collect()
}

#[track_caller]
fn refused(changes: Value, words: &[&str]) {
    let message = spec_of(changes).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn absent_fields_take_the_defaults_of_each_architecture() {
    let llama = spec_of(json!({})).unwrap();
    assert_eq!(llama.max_position_embeddings, 2048);
    assert_eq!((llama.attention[0].num_kv_heads, llama.attention[0].head_dim), (4, 8));
    assert_eq!(llama.rope, RopeSpec { theta: 1e4, rotary_dim: 8, scaling: RopeScaling::None });
    assert_eq!((llama.norm_eps, llama.tied_embeddings), (1e-6, false));
    assert_eq!((llama.mlp.activation, llama.mlp.bias), (Activation::Silu, false));
    assert_eq!(llama.attention.len(), 4);

    let mistral = spec_of(json!({
        "architectures": ["MistralForCausalLM"], "num_attention_heads": 8,
    }));
    assert_eq!(mistral.unwrap().attention[0].num_kv_heads, 8);

    let qwen3 = spec_of(json!({
        "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    }));
    let layer = qwen3.unwrap().attention[3];
    assert_eq!((layer.head_dim, layer.head_norm_eps, layer.qkv_bias), (128, Some(1e-5), false));
}

#[test]
fn null_is_not_the_same_as_absent() {
    let kv_heads = |changes| spec_of(changes).unwrap().attention[0].num_kv_heads;
    let qwen2 = "Qwen2ForCausalLM";
    refused(json!({"architectures": [qwen2]}), &["num_key_value_heads", "is 32", "divide", "= 4"]);
    assert_eq!(kv_heads(json!({"architectures": [qwen2], "num_key_value_heads": null})), 4);
    let mistral = json!({"architectures": ["MistralForCausalLM"], "num_key_value_heads": 4, "head_dim": null});
    assert_eq!(windows(mistral.clone()), [Some(4096); 4]);
    let mut none = mistral;
    none["sliding_window"] = Value::Null;
    assert_eq!(windows(none), [None; 4]);
}

#[test]
fn biases_follow_the_architecture() {
    let biases = |changes| {
        let spec = spec_of(changes).unwrap();
        (spec.attention[0].qkv_bias, spec.attention[0].output_bias, spec.mlp.bias)
    };
    assert_eq!(biases(json!({"attention_bias": true, "mlp_bias": true})), (true, true, true));
    let kv = 4;
    let qwen2 = json!({"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": kv});
    assert_eq!(biases(qwen2), (true, false, false));
    let qwen3 = json!({
        "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": kv, "attention_bias": true,
    });
    assert_eq!(biases(qwen3), (true, true, false));
}

#[test]
fn windows_of_qwen_follow_layer_types_or_the_layer_number() {
    let qwen = |changes: Value| {
        let mut all = json!({
            "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 4,
            "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3,
        });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        all
    };
    let w = Some(16);
    assert_eq!(windows(qwen(json!({}))), [None, None, None, w]);
    assert_eq!(windows(qwen(json!({"use_sliding_window": false}))), [None; 4]);
    assert_eq!(windows(qwen(json!({"sliding_window": null}))), [None; 4]);
    let (full, sliding) = ("full_attention", "sliding_attention");
    let types = json!([sliding, full, sliding, full]);
    assert_eq!(windows(qwen(json!({"layer_types": types}))), [w, None, w, None]);
    let off = qwen(json!({"layer_types": types, "use_sliding_window": false}));
    refused(off, &["layer_types", "use_sliding_window"]);
    let unknown = json!(["linear_attention", full, full, full]);
    refused(qwen(json!({"layer_types": unknown})), &["linear_attention", "supported are"]);
    refused(qwen(json!({"layer_types": [full]})), &["layer_types", "is 1", "4 layers"]);
}

#[test]
fn rope_is_read_from_old_and_new_fields() {
    let rope = |changes| spec_of(changes).unwrap().rope;
    let old = rope(json!({
        "rope_theta": 5e5,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    }));
    let new = rope(json!({
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0},
    }));
    assert_eq!(old, new);
    assert_eq!((old.theta, old.scaling), (5e5, RopeScaling::Linear { factor: 4.0 }));
    let llama3 = rope(json!({
        "max_position_embeddings": 4096, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        },
    }));
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 4096.0,
    };
    assert_eq!(llama3.scaling, expected);
    let null = rope(json!({"rope_scaling": null, "rope_theta": 1e6}));
    assert_eq!((null.theta, null.scaling), (1e6, RopeScaling::None));
}

#[test]
fn rope_that_cant_be_computed_is_refused() {
    let rope = |parameters: Value| json!({"rope_parameters": parameters});
    refused(rope(json!({"rope_type": "yarn", "factor": 4.0})), &["rope type `yarn`", "llama3"]);
    refused(rope(json!({"rope_type": "linear"})), &["factor", "absent"]);
    refused(rope(json!({"rope_type": "linear", "factor": 0.0})), &["factor", "0", "positive"]);
    refused(rope(json!({"rope_theta": -1.0})), &["rope_theta", "-1", "positive"]);
    refused(rope(json!({"partial_rotary_factor": 0.5})), &["partial_rotary_factor", "0.5"]);
    let bands = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    });
    refused(rope(bands), &["high_freq_factor", "more than", "4"]);
    refused(json!({"head_dim": 7}), &["head_dim", "7", "even"]);
}

#[test]
fn sizes_that_no_model_can_have_name_field_value_and_bound() {
    for field in [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
    ] {
        refused(json!({field: 0}), &[field, "is 0", "must be 1 to"]);
        refused(json!({field: 1u64 << 40}), &[field, "must be 1 to"]);
        refused(json!({field: "many"}), &["config.json", "many"]);
        refused(json!({field: -1}), &["config.json", "-1"]);
    }
    refused(json!({"num_hidden_layers": 5000}), &["num_hidden_layers", "5000", "1 to 4096"]);
    refused(json!({"hidden_size": 33}), &["hidden_size", "33", "multiple", "= 4"]);
    refused(json!({"num_key_value_heads": 3}), &["num_key_value_heads", "is 3", "= 4"]);
    refused(json!({"rms_norm_eps": 2.0}), &["rms_norm_eps", "2"]);
    refused(json!({"sliding_window": 0}), &["sliding_window", "0"]);
    refused(json!({"hidden_act": "relu"}), &["hidden_act", "relu", "silu"]);
    refused(json!({"vocab_size": null}), &["config.json"]);
    assert!(HfConfig::from_json("{").is_err());
    assert!(HfConfig::from_json("[]").is_err());
}

#[test]
fn what_is_not_implemented_is_refused_with_what_is() {
    refused(json!({"architectures": ["BertModel"]}), &["BertModel", "Qwen3ForCausalLM"]);
    refused(json!({"architectures": []}), &["supported are"]);
    let quantized = json!({"quantization_config": {"quant_method": "aqlm", "bits": 2}});
    refused(quantized, &["`aqlm`", "GGUF", "awq"]);
    for name in architectures() {
        let known = json!({"architectures": ["Unheard", name], "num_key_value_heads": 2});
        assert!(spec_of(known).is_ok());
    }
}

#[test]
fn dtype_and_ends_of_text_are_read_in_every_form() {
    let config = |changes| config(changes).unwrap();
    assert_eq!(config(json!({"torch_dtype": "bfloat16"})).dtype(), Some(DType::BF16));
    assert_eq!(config(json!({"dtype": "float16"})).dtype(), Some(DType::F16));
    assert_eq!(config(json!({})).dtype(), None);
    assert_eq!(config(json!({"eos_token_id": 7})).eos_token_ids(), [7]);
    assert_eq!(config(json!({"eos_token_id": [7, 9]})).eos_token_ids(), [7, 9]);
    assert_eq!(config(json!({"eos_token_id": null})).eos_token_ids(), [0u32; 0]);
}

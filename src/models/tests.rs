//! Defaults, refusals and both spellings of every field of `config.json`.

#![allow(clippy::needless_pass_by_value, reason = "literals read better without a reference")]

use candle_core::DType;
use serde_json::{Map, Value, json};

use super::bidirectional::is_bidirectional;
use super::config::HfConfig;
use super::decoder::DecoderSpec;
use super::decoder::spec::Join;
use super::error::ModelError;
use super::registry::{architectures, spec};
use crate::kernels::pointwise::Activation;
use crate::layers::rope::{QueryScale, RopeScaling, RopeSpec};

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

/// The fields of a fixture's `config.json`.
pub(super) fn fields_of_fixture(name: &str) -> Map<String, Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/parity");
    let text = std::fs::read_to_string(format!("{folder}/{name}/config.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The decoder that a configuration with these fields has.
pub(super) fn spec_of_fields(fields: &Map<String, Value>) -> DecoderSpec {
    let text = serde_json::to_string(fields).unwrap();
    spec(&HfConfig::from_json(&text).unwrap()).unwrap()
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
    assert_eq!(
        llama.ropes,
        [RopeSpec {
            axes: Vec::new(),
            theta: 1e4,
            rotary_dim: 8,
            scaling: RopeScaling::None,
            magnitude: 1.0,
            query_scale: None
        }]
    );
    assert_eq!((llama.norm.eps, llama.tied_embeddings), (1e-6, false));
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
    assert_eq!(
        (layer.head_dim, layer.query_key_norm.map(|norm| norm.norm.eps), layer.qkv_bias),
        (128, Some(1e-5), false)
    );
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
    let rope = |changes| spec_of(changes).unwrap().ropes.remove(0);
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
    refused(rope(json!({"rope_type": "other", "factor": 4.0})), &["rope type `other`", "llama3"]);
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
    refused(json!({"hidden_act": "mish"}), &["hidden_act", "mish", "silu"]);
    refused(json!({"vocab_size": null}), &["config.json"]);
    assert!(HfConfig::from_json("{").is_err());
    assert!(HfConfig::from_json("[]").is_err());
}

#[test]
fn what_is_not_implemented_is_refused_with_what_is() {
    refused(json!({"architectures": ["XLNetModel"]}), &["XLNetModel", "Qwen3ForCausalLM"]);
    refused(json!({"architectures": []}), &["supported are"]);
    let quantized = json!({"quantization_config": {"quant_method": "aqlm", "bits": 2}});
    refused(quantized, &["`aqlm`", "GGUF", "awq"]);
    let refuses = |name: &&str| {
        // What a model that sees says of its decoder.
        let text = match *name {
            name if name.starts_with("Lfm2Vl") => "lfm2",
            name if name.starts_with("PaliGemma") => "gemma",
            _ => "mistral",
        };
        let known = json!({
            "architectures": ["Unheard", name], "num_key_value_heads": 2, "model_type": text,
            // One of them has no experts, and says so where others do.
            "num_experts": if *name == "MiniCPMForCausalLM" { 0 } else { 4 },
            "moe_num_experts": 4, "moe_k": 2, "n_group": 1, "topk_group": 1,
            "num_local_experts": 4, "n_routed_experts": 4,
            // One of them routes to one expert alone.
            "num_experts_per_tok": if *name == "ZayaForCausalLM" { 1 } else { 2 },
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 8,
            "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
            // One of them rotates nothing.
            "qk_rope_head_dim": if name.starts_with("Glm5Next") { 0 } else { 4 },
            "num_heads": 1, "n_groups": 1, "mamba_n_heads": 1, "n_mamba_heads": 1,
            "hybrid_override_pattern": "M*--",
            // Of MiniCPM-V, whose decoder follows from it.
            "version": 2.6,
            // Of layers that are gone through again.
            "n_input_layers": 1, "n_output_layers": 1,
            // Of encoders that are decoders.
            "is_decoder": true, "embedding_size": 32,
        });
        spec_of(known).is_err()
    };
    assert_eq!(architectures().filter(refuses).collect::<Vec<_>>(), Vec::<&str>::new());
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

#[test]
fn an_unknown_architecture_is_told_its_nearest_kin() {
    let nearest = |name: &str, kin: &str| {
        refused(json!({"architectures": [name]}), &[name, "supported are", kin]);
    };
    nearest("Gemma5ForCausalLM", "the nearest by name is Gemma4");
    nearest("Qwen3OmniForCausalLM", "the nearest by name is Qwen3");
    nearest("LlamaForSomethingElse", "the nearest by name is LlamaForCausalLM");
    let far = spec_of(json!({"architectures": ["Zzz"]})).unwrap_err().to_string();
    assert!(!far.contains("nearest"), "{far}");
    let other = ["architecture Phi4MMForCausalLM", "another LoRA", "Phi-4-mini"];
    refused(json!({"architectures": ["Phi4MMForCausalLM"]}), &other);
}

#[test]
fn factors_of_longrope_follow_the_length_of_a_sequence() {
    let of = |context: usize| {
        let config = config(json!({
            "architectures": ["Phi3ForCausalLM"], "max_position_embeddings": context,
            "original_max_position_embeddings": 1024, "rope_scaling": {
                "type": "longrope", "short_factor": [1.0, 1.0, 2.0, 2.0],
                "long_factor": [1.0, 4.0, 8.0, 8.0],
            },
        }));
        spec(&config.unwrap()).unwrap().ropes.remove(0)
    };
    let (short, long) = (vec![1.0, 1.0, 2.0, 2.0], vec![1.0, 4.0, 8.0, 8.0]);
    assert_eq!(of(1024).scaling, RopeScaling::Factors(short.clone()));
    let both = RopeScaling::FactorsByLength { longest_short: 1024, short, long };
    assert_eq!(of(4096).scaling, both);
    // sqrt(1 + ln(4) / ln(1024)), whichever factors are in use.
    assert!((of(4096).magnitude - 1.095_445_1).abs() < 1e-6);
    let phi3 = |rope: Value| {
        json!({
            "architectures": ["Phi3ForCausalLM"], "max_position_embeddings": 64,
            "original_max_position_embeddings": 32, "rope_scaling": rope,
        })
    };
    let few =
        json!({"type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0]});
    refused(phi3(few), &["long_factor", "is 1", "each of 4"]);
}

#[test]
fn yarn_says_what_it_needs_and_scales_angles() {
    let yarn = |more: Value| {
        let mut rope = json!({"rope_type": "yarn", "factor": 4.0});
        rope.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec_of(json!({"max_position_embeddings": 4096, "rope_scaling": rope}))
    };
    let magnitude = |more| yarn(more).unwrap().ropes[0].magnitude;
    assert!((magnitude(json!({})) - 1.138_629_4).abs() < 1e-6);
    assert!((magnitude(json!({"attention_factor": 0.5})) - 0.5).abs() < 1e-6);
    assert!((magnitude(json!({"mscale": 1.0, "mscale_all_dim": 1.0})) - 1.0).abs() < 1e-6);
    let error = yarn(json!({"factor": 0.0})).unwrap_err().to_string();
    assert!(error.contains("factor") && error.contains("positive"), "{error}");
}

#[test]
fn rope_of_each_kind_of_layer_is_refused_where_all_layers_share_one() {
    let each = json!({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}});
    refused(each, &["rope_parameters", "must be one for all layers"]);
}

#[test]
fn layers_of_gemma_alternate_as_the_file_says() {
    let gemma = |name: &str, more: Value| {
        let mut all = json!({"architectures": [name], "num_key_value_heads": 2, "head_dim": 8});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let w = Some(4096);
    assert_eq!(windows(gemma("Gemma2ForCausalLM", json!({}))), [w, None, w, None]);
    let third = json!({"sliding_window_pattern": 3, "sliding_window": 16});
    let third = spec_of(gemma("Gemma3ForCausalLM", third)).unwrap();
    let seen: Vec<_> = third.attention.iter().map(|l| (l.params.window, l.rope)).collect();
    let (near, far) = ((Some(16), Some(1)), (None, Some(0)));
    assert_eq!(seen, [near, near, far, near]);
    assert_eq!((third.ropes[0].theta, third.ropes[1].theta), (1e6, 1e4));
    let second = spec_of(gemma("Gemma2ForCausalLM", json!({"attn_logit_softcapping": null})));
    let second = second.unwrap();
    assert_eq!((second.logit_softcap, second.attention[0].params.softcap), (Some(30.0), None));
    assert!(second.tied_embeddings);
    refused(
        gemma("Gemma2ForCausalLM", json!({"query_pre_attn_scalar": "many"})),
        &["query_pre_attn_scalar", "many"],
    );
    let no_cap = json!({"final_logit_softcapping": 0.0});
    refused(gemma("Gemma2ForCausalLM", no_cap), &["final_logit_softcapping", "0", "positive"]);
    // Its tokens see all of a text, so it continues none.
    let both_ways = json!({"use_bidirectional_attention": true});
    assert!(is_bidirectional(&gemma("Gemma3ForCausalLM", both_ways)));
}

#[test]
fn the_language_part_of_a_larger_model_is_read() {
    let inside = config(json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "hidden_size": 7, "eos_token_id": 5,
        "text_config": {
            "architectures": ["Gemma3ForCausalLM"], "hidden_size": 32, "head_dim": 8,
            "num_key_value_heads": 1,
        },
    }));
    let inside = inside.unwrap();
    assert_eq!(inside.architectures, ["Gemma3ForConditionalGeneration"]);
    assert_eq!((inside.hidden_size, inside.eos_token_ids()), (32, vec![5]));
    assert_eq!(spec(&inside).unwrap().attention[0].num_kv_heads, 1);
    // As the 4B is published.
    let published = HfConfig::from_value(&json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
    }));
    let published = spec(&published.unwrap()).unwrap();
    let first = published.attention[0];
    assert_eq!((published.vocab_size, first.num_heads, first.num_kv_heads), (262_208, 8, 4));
    assert_eq!((first.head_dim, first.params.window, first.rope), (256, Some(1024), Some(1)));
    assert_eq!(published.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(published.ropes[1].scaling, RopeScaling::None);
}

#[test]
fn queries_are_scaled_where_the_file_says_so() {
    let scale = |beta: Value| {
        let rope = json!({
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": beta,
        });
        let config = json!({
            "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
            "num_key_value_heads": 2, "rope_parameters": rope,
        });
        Ok::<_, ModelError>(spec_of(config)?.ropes.remove(0).query_scale)
    };
    assert_eq!(scale(json!(null)).unwrap(), None);
    assert_eq!(
        scale(json!(0.1)).unwrap(),
        Some(QueryScale::Logarithm { beta: 0.1, interval: 64.0, offset: 0.0 })
    );
    assert!(scale(json!(-0.1)).unwrap_err().to_string().contains("llama_4_scaling_beta"));
}

#[test]
fn counts_of_experts_are_checked() {
    let mixtral = |experts: Value, chosen: Value| {
        json!({
            "architectures": ["MixtralForCausalLM"], "num_key_value_heads": 2,
            "num_local_experts": experts, "num_experts_per_tok": chosen,
        })
    };
    assert!(spec_of(mixtral(json!(4), json!(2))).is_ok());
    refused(mixtral(json!(null), json!(2)), &["num_experts", "absent"]);
    refused(mixtral(json!(4), json!(5)), &["num_experts_per_tok", "is 5", "1 to 4"]);
    let grouped = json!({
        "architectures": ["Glm4MoeForCausalLM"], "num_key_value_heads": 2, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 3,
    });
    refused(grouped, &["n_group", "is 3", "divide 8"]);
}

#[test]
fn layers_that_are_gone_through_again_have_places_in_the_order_of_their_passes() {
    let hrm = spec_of(json!({
        "architectures": ["HrmTextForCausalLM"], "num_hidden_layers": 1, "H_cycles": 2,
        "L_cycles": 2,
    }));
    let hrm = hrm.unwrap();
    let [add, switch] = [Some(Join::Add), Some(Join::AddThenKeep)];
    let places = hrm.schedule.as_ref().unwrap().places.iter();
    let seen: Vec<_> = places.map(|place| (&place.list[..1], place.join)).collect();
    let once = [("L", switch), ("L", add), ("H", switch)];
    assert_eq!(seen, [&[("L", None)][..], &once[1..], &once].concat());
    // Keys and values of each pass.
    assert_eq!(hrm.kv_shape().layers.len(), 6);
    let many = json!({"architectures": ["HrmTextForCausalLM"], "H_cycles": 4096});
    refused(many, &["num_hidden_layers", "1 to 4096"]);

    let dory = |more: Value| {
        let mut all = json!({
            "architectures": ["DoryForCausalLM"], "num_key_value_heads": 2, "head_dim": 8,
            "num_hidden_layers": 6, "n_input_layers": 2, "n_output_layers": 2,
            "layer_types": ["full_attention", "mlp", "sliding_attention", "mlp", "full_attention", "mlp"],
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let spec = spec_of(dory(json!({}))).unwrap();
    let places = spec.schedule.as_ref().unwrap().places.iter();
    let seen: Vec<_> = places.map(|place| (place.layer, place.join)).collect();
    let first = (2, Some(Join::KeepThenAdd));
    let plain = |layer| (layer, None);
    let expected = [plain(0), plain(1), first, plain(3), (2, add), plain(3), plain(4), plain(5)];
    assert_eq!(seen, expected);
    assert_eq!(spec.kv_shape().layers.len(), 4);
    let windows: Vec<_> = spec.attention.iter().map(|layer| layer.params.window).collect();
    assert_eq!((windows[0], windows[2], windows[4]), (None, Some(1024), Some(1024)));
    refused(dory(json!({"n_input_layers": 4})), &["n_input_layers", "is 4", "6 layers"]);
    refused(dory(json!({"n_recurrent_layers": 4})), &["n_recurrent_layers", "is 4", "the 2"]);
    refused(dory(json!({"recurrent_kv_cache_mode": "last_loop"})), &["last_loop", "per_loop"]);
}

#[test]
fn encoders_continue_no_text() {
    for name in ["BertLMHeadModel", "RobertaForCausalLM", "BartForCausalLM"] {
        refused(json!({"architectures": [name]}), &["is_decoder", "must be true"]);
    }
    let narrow = json!({"architectures": ["ElectraForCausalLM"], "is_decoder": true});
    refused(narrow, &["embedding_size", "is 128", "= 32"]);
}

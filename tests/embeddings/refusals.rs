//! What ends the start, and is named.

use std::path::Path;

use sconce::config::{EngineConfig, KvCacheDtype};
use sconce::metrics;
use serde_json::{Value, json};

use super::folders::changed;
use super::{fixture, load};

fn refusal(folder: &Path, config: &EngineConfig) -> String {
    match load(folder, config) {
        Ok(_) => panic!("{} was loaded", folder.display()),
        Err(message) => message,
    }
}

#[test]
fn a_module_that_is_not_understood_is_named_at_startup() {
    type Change = fn(&mut Value);
    let cases: [(&str, &str, Change, &str); 12] = [
        ("bert_mean", "modules.json", |json| json[2]["type"] = json!("x.LSTM"), "x.LSTM"),
        ("bert_mean", "modules.json", |json| json[1]["path"] = json!("../1_Pooling"), "the path"),
        ("bert_mean", "modules.json", |json| *json = json!([]), "at least one"),
        (
            "bert_mean",
            "1_Pooling/config.json",
            |json| json["pooling_mode"] = json!(["mean", "cls"]),
            "pools in 2 ways (mean, cls)",
        ),
        (
            "bert_mean",
            "1_Pooling/config.json",
            |json| json["pooling_mode"] = json!("median"),
            "\"median\"",
        ),
        (
            "xlm_roberta_dense",
            "2_Dense/config.json",
            |json| json["activation_function"] = json!("torch.nn.modules.activation.Mish"),
            "\"Mish\" is not supported",
        ),
        (
            "xlm_roberta_dense",
            "2_Dense/config.json",
            |json| json["out_features"] = json!(13),
            "linear.weight",
        ),
        (
            "xlm_roberta_dense",
            "2_Dense/config.json",
            |json| json["in_features"] = json!(31),
            "in_features is 31, what comes before gives 32",
        ),
        ("bert_mean", "modules.json", |json| json[2]["type"] = json!("my.Normalize"), "my.Norm"),
        (
            "bert_mean",
            "modules.json",
            |json| json.as_array_mut().unwrap().swap(1, 2),
            "has no Pooling before it",
        ),
        (
            "bert_mean",
            "modules.json",
            |json| json.as_array_mut().unwrap().truncate(1),
            "there is no Pooling",
        ),
        (
            "bert_mean",
            "config_sentence_transformers.json",
            |json| json["truncate_dim"] = json!(0),
            "truncate_dim is 0",
        ),
    ];
    for (name, file, change, expected) in cases {
        let folder = changed(name, file, change);
        let message = refusal(folder.path(), &EngineConfig::default());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_missing_tensor_and_a_useless_setting_are_named() {
    let deeper = changed("distilbert_max", "config.json", |json| json["n_layers"] = json!(3));
    let message = refusal(deeper.path(), &EngineConfig::default());
    assert!(
        message.contains("`transformer.layer.2.attention.q_lin.weight` is missing"),
        "{message}"
    );
    for (config, expected) in [
        (
            EngineConfig { kv_cache_dtype: KvCacheDtype::Q8_0, ..EngineConfig::default() },
            "--kv-cache-dtype",
        ),
        (EngineConfig { kv_cache_bytes: Some(1), ..EngineConfig::default() }, "--kv-cache-memory"),
        (
            EngineConfig { state_cache_bytes: Some(1), ..EngineConfig::default() },
            "--state-cache-memory",
        ),
    ] {
        let message = refusal(&fixture("bert_mean"), &config);
        assert!(message.contains(expected), "{message}");
    }
    let config = EngineConfig { max_model_len: Some(21), ..EngineConfig::default() };
    let loaded = load(&fixture("distilbert_max"), &config).unwrap();
    let error = loaded.start(&config, metrics::install("x")).err().unwrap().to_string();
    assert!(error.contains("21 is above the 20 positions"), "{error}");
}

#[test]
fn pooling_without_the_prompt_is_refused_where_there_is_a_prompt() {
    let folder = changed("bert_mean", "1_Pooling/config.json", |json| {
        json["include_prompt"] = json!(false);
    });
    assert!(load(folder.path(), &EngineConfig::default()).is_ok());
    let config = json!({"prompts": {"query": "q: "}}).to_string();
    std::fs::write(folder.path().join("config_sentence_transformers.json"), config).unwrap();
    let message = refusal(folder.path(), &EngineConfig::default());
    assert!(message.contains("include_prompt is false"), "{message}");
}

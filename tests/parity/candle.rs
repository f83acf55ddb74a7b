//! The embedded model beside candle-transformers' decoder of the same architecture.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::qwen3::{Config, ModelForCausalLM};
use sconce::layers::forward::KvFormat;
use sconce::models::config::HfConfig;
use sconce::weights::source::ModelSource;
use serde_json::{Value, json};

use super::device;
use super::driver::Driver;

fn file(name: &str) -> &'static [u8] {
    sconce::demo::files().iter().find(|(file, _)| *file == name).unwrap().1
}

fn theirs() -> ModelForCausalLM {
    let mut config: Value = serde_json::from_slice(file("config.json")).unwrap();
    // It knows no windows; the texts here are shorter than the model's.
    config["use_sliding_window"] = json!(false);
    config["sliding_window"] = Value::Null;
    let config: Config = serde_json::from_value(config).unwrap();
    let stored =
        candle_core::safetensors::load_buffer(file("model.safetensors"), &Device::Cpu).unwrap();
    let widened = stored.into_iter().map(|(name, t)| (name, t.to_dtype(DType::F32).unwrap()));
    let weights = VarBuilder::from_tensors(widened.collect(), DType::F32, &Device::Cpu);
    ModelForCausalLM::new(&config, weights).unwrap()
}

fn ours() -> Driver {
    let source = ModelSource::embedded("demo", sconce::demo::files()).unwrap();
    let config = HfConfig::from_value(&source.config).unwrap();
    let weights = source.weights(device()).rounded_to(Some(GgmlDType::F32));
    let model = sconce::models::load(&config, &weights).unwrap();
    Driver::new(model, KvFormat::F32, 8, Some(1))
}

#[test]
fn the_embedded_model_runs_as_in_candle_transformers() {
    let (mut theirs, mut ours) = (theirs(), ours());
    for length in [1, 31, 100] {
        let tokens: Vec<u32> = (0..length).map(|i| (i * i * 13 + length * 7) % 2000 + 8).collect();
        let input = Tensor::new(&tokens[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        theirs.clear_kv_cache();
        let expected = theirs.forward(&input, 0).unwrap().flatten_all().unwrap();
        let expected: Vec<f32> = expected.to_vec1().unwrap();
        let sequence = ours.add(&tokens);
        let found = ours.finish(sequence, 17);
        assert_eq!(found.len(), expected.len());
        for (token, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let off = (found - expected).abs();
            assert!(off < 2e-3, "{length} tokens, logit {token}: {found} and {expected}");
        }
    }
}

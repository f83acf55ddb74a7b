//! What a model would take, told from headers: as much as it takes when it is loaded, and the same from a hub
//! that is asked for headers alone.

use std::path::Path;
use std::sync::Arc;

use sconce::config::{DeviceChoice, EngineConfig, WeightKind};
use sconce::engine::startup::LoadedModel;
use sconce::engine::startup::device::OpenDevice;
use sconce::engine::startup::forecast::Forecast;
use sconce::engine::startup::speed::Speed;
use sconce::layers::forward::KvFormat;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;

use crate::parity::folder;

fn open(name: &str) -> ModelSource {
    let model = ModelRef::Folder(folder(name));
    ModelSource::open(&model, &HubOptions::offline(std::path::Path::new("none"))).unwrap()
}

fn config(weight_kind: Option<WeightKind>) -> EngineConfig {
    EngineConfig {
        device: DeviceChoice::Cpu,
        weight_kind,
        kv_cache_bytes: Some(1 << 20),
        draft_max: 0,
        ..EngineConfig::default()
    }
}

/// Without what is in no tally: norms, biases, factors, and what isn't loaded.
fn matrix_bytes(forecast: &Forecast) -> usize {
    use sconce::engine::startup::forecast::Part::{Drafts, Small, Tower};
    let matrices =
        forecast.weights.iter().filter(|((part, _), _)| ![Small, Tower, Drafts].contains(part));
    matrices.map(|(_, share)| share.bytes).sum()
}

#[test]
fn weights_take_what_was_foretold() {
    let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo/model");
    let kinds = [None, Some(WeightKind::Q8_0), Some(WeightKind::Q4_0), Some(WeightKind::F32)];
    for kind in kinds {
        let model = ModelRef::Folder(demo.clone());
        let none = HubOptions::offline(std::path::Path::new("none"));
        let (source, config) = (ModelSource::open(&model, &none).unwrap(), config(kind));
        let forecast = Forecast::new(&source, &config, &cpu).unwrap();
        let loaded = LoadedModel::load(&source, &config, Arc::new(|_, _| {}), None).unwrap();
        let (told, taken) = (matrix_bytes(&forecast), loaded.weight_bytes);
        let apart = told.abs_diff(taken) as f64 / taken as f64;
        assert!(apart < 0.05, "{kind:?}: {told} bytes foretold, {taken} taken");
    }
}

#[test]
fn caches_take_what_was_foretold() {
    let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
    for name in ["llama3", "qwen3", "qwen3_moe", "gemma3", "phi3", "gpt2", "lfm2", "mixtral"] {
        let (source, config) = (open(name), config(None));
        let facts = Forecast::new(&source, &config, &cpu).unwrap().facts.unwrap();
        let loaded = LoadedModel::load(&source, &config, Arc::new(|_, _| {}), None).unwrap();
        let shape = loaded.model.kv_shape();
        let format = KvFormat::of_dtype(loaded.kv_dtype).unwrap();
        assert_eq!(facts.block_bytes, shape.block_bytes(format), "{name}");
        assert_eq!(facts.state_bytes, shape.state_bytes(), "{name}");
        assert_eq!(facts.model_context, loaded.model.max_position_embeddings(), "{name}");
    }
}

fn speed(source: &ModelSource) -> Option<Speed> {
    let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
    let config = config(None);
    let forecast = Forecast::new(source, &config, &cpu).unwrap();
    let plan = forecast.plan(&config).unwrap();
    Speed::measure(source, &forecast, plan.as_ref(), &config, &cpu).unwrap()
}

fn assert_told(speed: Option<Speed>, name: &str) {
    let Speed { decode, decode_full, prefill, read_bytes, at_most } = speed.unwrap();
    for rate in [decode, decode_full, prefill, read_bytes] {
        assert!(rate.is_finite() && rate > 0.0, "{name}: {rate}");
    }
    assert!(decode_full <= decode && !at_most, "{name}");
}

#[test]
fn speeds_are_those_of_steps_of_the_model() {
    for name in ["qwen3", "qwen3_moe", "gemma3", "mamba2", "lfm2", "gpt2", "qwen3_next"] {
        assert_told(speed(&open(name)), name);
    }
    let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings/bert_mean");
    let none = HubOptions::offline(Path::new("none"));
    let encoder = ModelSource::open(&ModelRef::Folder(encoder), &none).unwrap();
    assert_eq!(speed(&encoder), None, "it has no cache to decode with");
}

#[cfg(feature = "hub")]
mod remote {
    use candle_core::{DType, Device};
    use sconce::weights::hub::fetch_headers_blocking;
    use sconce::weights::hub::watch::Watch;
    use sconce::weights::model_ref::HubRef;

    use super::*;
    use crate::parity::gguf_files::converted;
    use crate::weights::fake_hub::FakeHub;

    fn options(hub: &FakeHub, cache: &std::path::Path) -> HubOptions {
        HubOptions {
            offline: false,
            progress: false,
            projector: true,
            endpoint: hub.endpoint.clone(),
            cache: cache.to_owned(),
            token: None,
            retries: 1,
            watch: Watch::default(),
        }
    }

    #[test]
    fn the_speed_of_experts_that_were_not_fetched_is_told() {
        let read = |name: &str| std::fs::read(folder("qwen3_moe").join(name)).unwrap();
        let files = [
            ("config.json", read("config.json")),
            ("tokenizer.json", b"{}".to_vec()),
            ("model.safetensors", read("model.safetensors")),
        ];
        let (hub, cache) = (FakeHub::start(&files), tempfile::tempdir().unwrap());
        let reference = HubRef::parse("org/name", None).unwrap();
        let headers = fetch_headers_blocking(&reference, &options(&hub, cache.path())).unwrap();
        let source = ModelSource::open_headers(&headers, "name".to_owned()).unwrap();
        let outlines = source.outlines().unwrap();
        let numbers = |name: &str| -> Vec<f32> {
            let shape = &outlines.iter().find(|one| one.name == name).unwrap().dims;
            let tensor = source.weights(&Device::Cpu).dense(name, shape, DType::F32).unwrap();
            tensor.flatten_all().unwrap().to_vec1().unwrap()
        };
        // A router of zeros would choose the same experts for all tokens.
        let router = numbers("model.layers.0.mlp.gate.weight");
        assert!(router.iter().any(|weight| *weight < 0.0) && router.iter().any(|w| *w > 0.0));
        assert!(router.iter().all(|weight| weight.abs() < 0.06));
        let norm = numbers("model.norm.weight");
        assert!(norm.iter().all(|weight| weight.to_bits() == 1f32.to_bits()));
        assert_told(speed(&source), "of headers");
    }

    /// The forecast of headers, and what was asked of the hub for them.
    fn forecast(files: &[(&str, Vec<u8>)], text: &str) -> (Forecast, Vec<String>) {
        let (hub, cache) = (FakeHub::start(files), tempfile::tempdir().unwrap());
        let reference = HubRef::parse(text, None).unwrap();
        let headers = fetch_headers_blocking(&reference, &options(&hub, cache.path())).unwrap();
        let source = ModelSource::open_headers(&headers, "name".to_owned()).unwrap();
        let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
        let forecast = Forecast::new(&source, &config(None), &cpu).unwrap();
        assert!(
            std::fs::read_dir(cache.path()).unwrap().next().is_none(),
            "the cache is as it was"
        );
        (forecast, hub.take_requests())
    }

    #[test]
    fn a_folder_of_the_hub_is_planned_from_its_headers() {
        let read = |name: &str| std::fs::read(folder("qwen3").join(name)).unwrap();
        let files = [
            ("config.json", read("config.json")),
            ("tokenizer.json", b"{}".to_vec()),
            ("model.safetensors", read("model.safetensors")),
        ];
        let (forecast, requests) = forecast(&files, "org/name");
        let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
        let whole = Forecast::new(&open("qwen3"), &config(None), &cpu).unwrap();
        assert_eq!(forecast.weights, whole.weights);
        assert_eq!(forecast.kv_dtype, whole.kv_dtype);
        let large: Vec<_> = requests.iter().filter(|one| one.contains("cdn/")).collect();
        assert!(large.iter().all(|one| one.contains(" from 0 to ")), "{requests:?}");
    }

    #[test]
    fn a_gguf_file_of_the_hub_is_planned_from_its_header() {
        let file = converted("qwen3").unwrap();
        let (forecast, _) = forecast(&[("m-F32.gguf", file)], "org/name:F32");
        let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
        let whole = Forecast::new(&open("qwen3"), &config(None), &cpu).unwrap();
        assert_eq!(forecast.parameters(), whole.parameters());
        assert_eq!(forecast.facts.unwrap().model_context, whole.context);
    }
}

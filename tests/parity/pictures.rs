//! Models that see, beside transformers: how pictures are prepared, what the decoder says of them, and
//! that it says the same to the bit whatever else is computed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce::config::{EngineConfig, KvCacheDtype, WeightKind};
use sconce::engine::EngineHandle;
use sconce::engine::request::EngineRequest;
use sconce::pictures::decode::decode;
use sconce::pictures::picture::{Picture, PlacedPicture};
use sconce::pictures::processor::{Detail, Processor};
use sconce::sampling::params::SamplingParams;
use serde::Deserialize;

use super::engine::{Answer, VOCAB, collect, one, request, start};
use super::open;

/// Folders below `tests/fixtures/pictures`.
pub(crate) const MODELS: &[&str] = &["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"];
const IMAGE_TOKEN: u32 = 150;

/// What transformers computed.
#[derive(Deserialize)]
struct Reference {
    runs: Vec<Run>,
}

#[derive(Clone, Deserialize)]
struct Run {
    parts: Vec<(String, usize)>,
    tokens: Vec<u32>,
    ids: Vec<Vec<u32>>,
    logprobs: Vec<Vec<f32>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pictures")
}

fn name_of(model: &str) -> String {
    format!("../pictures/{model}")
}

fn runs(model: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(folder().join(model).join("reference.json")).unwrap();
    serde_json::from_str::<Reference>(&text).unwrap().runs
}

fn processor(model: &str) -> Processor {
    let source = open(&name_of(model));
    let processor = Processor::from_json(&source.config, source.processor_config.as_ref());
    processor.unwrap().unwrap()
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// The pictures of the fixtures.
fn pictures(model: &str) -> Vec<Arc<Picture>> {
    let processor = processor(model);
    (0..3).map(|at| processor.read(&file(&format!("{at}.png")), Detail::Full).unwrap()).collect()
}

/// The fixed tokens of a text, as the fixture script computes them.
fn text(length: usize, start: usize) -> impl Iterator<Item = u32> {
    (0..length).map(move |i| ((length * 31 + i * i * 7 + i * 3 + start) % 140 + 4) as u32)
}

/// A prompt of parts, and the pictures in it.
fn prompt(parts: &[(String, usize)], pictures: &[Arc<Picture>]) -> (Vec<u32>, Vec<PlacedPicture>) {
    let (mut tokens, mut placed) = (Vec::new(), Vec::new());
    for (kind, value) in parts {
        let offset = tokens.len();
        if kind == "text" {
            tokens.extend(text(*value, offset));
        } else {
            let picture = pictures[*value].clone();
            tokens.resize(offset + picture.num_tokens(), IMAGE_TOKEN);
            placed.push(PlacedPicture { offset, picture });
        }
    }
    (tokens, placed)
}

fn asked(parts: &[(String, usize)], pictures: &[Arc<Picture>], max_tokens: usize) -> EngineRequest {
    let (tokens, pictures) = prompt(parts, pictures);
    let request = request(&tokens, max_tokens, 0);
    let sampling = SamplingParams { temperature: 0.0, ..request.sampling };
    EngineRequest { sampling, pictures, ..request }
}

fn config() -> EngineConfig {
    EngineConfig {
        max_num_seqs: 4,
        target_step_time: None,
        max_model_len: Some(512),
        kv_cache_bytes: Some(16 << 20),
        kv_cache_dtype: KvCacheDtype::F32,
        weight_kind: Some(WeightKind::named("f32").unwrap()),
        ..EngineConfig::default()
    }
}

fn cold(model: &str) -> EngineHandle {
    start(&name_of(model), &EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() })
}

#[test]
fn pictures_are_prepared_as_the_reference_does() {
    for at in 0..3 {
        let ours = processor("qwen2_vl").read(&file(&format!("{at}.png")), Detail::Full).unwrap();
        let theirs = decode(&file(&format!("{at}_prepared.png"))).unwrap();
        let sizes = |rgb: &sconce::pictures::picture::Rgb| (rgb.width, rgb.height);
        assert_eq!(sizes(ours.rgb()), sizes(&theirs));
        let off = ours.rgb().pixels.iter().zip(&theirs.pixels).map(|(a, b)| a.abs_diff(*b));
        assert_eq!(off.max(), Some(0), "picture {at}");
    }
}

#[test]
fn f32_logprobs_and_greedy_tokens_equal_the_reference() {
    for model in MODELS {
        let (engine, pictures) = (cold(model), pictures(model));
        for run in runs(model) {
            let (answer, _) = one(&engine, asked(&run.parts, &pictures, run.tokens.len()));
            assert_eq!(answer.0, run.tokens, "{model} {:?}", run.parts);
            let off = largest_distance(&answer, &run);
            assert!(off < 2e-4, "{model} {:?}: {off}", run.parts);
        }
    }
}

/// Of our log-probabilities to those of a run.
fn largest_distance((_, ours): &Answer, run: &Run) -> f32 {
    let mut largest = 0.0f32;
    for (ours, (ids, theirs)) in ours.iter().zip(run.ids.iter().zip(&run.logprobs)) {
        for (id, theirs) in ids.iter().zip(theirs) {
            let (_, bits) = ours.iter().find(|(token, _)| token == id).unwrap();
            largest = largest.max((f32::from_bits(*bits) - theirs).abs());
        }
    }
    largest
}

#[test]
fn cached_chunked_and_in_company_answers_have_the_bits_of_a_cold_start() {
    for model in MODELS {
        let (cold, pictures, runs) = (cold(model), pictures(model), runs(model));
        let swapped: Vec<_> = [1, 0, 2].map(|at| pictures[at].clone()).into();
        let requests = || {
            let run = |run: &Run| asked(&run.parts, &pictures, 8);
            let others = runs[1..].iter().map(|run| asked(&run.parts, &swapped, 8));
            runs.iter().map(run).chain(others).collect::<Vec<_>>()
        };
        let expected: Vec<_> =
            requests().into_iter().map(|request| one(&cold, request).0).collect();
        assert_ne!(expected[1], expected[3], "{model} sees no difference");
        let chunks = EngineConfig { max_num_batched_tokens: 33, ..config() };
        for (case, config) in [("in company", config()), ("in chunks", chunks)] {
            let engine = start(&name_of(model), &config);
            for round in 0..2 {
                let streams: Vec<_> = requests().into_iter().map(|r| engine.submit(r)).collect();
                let mut hits = 0;
                for (index, (stream, expected)) in streams.into_iter().zip(&expected).enumerate() {
                    let (answer, cached, _) = collect(stream);
                    assert!(answer == *expected, "{model} {case}, round {round}, {index}");
                    hits += cached;
                }
                assert!(round == 0 || hits > 64, "{model} {case}: {hits}");
            }
        }
    }
}

#[test]
fn pictures_that_can_not_be_there_are_refused() {
    let (engine, pictures) = (cold("qwen2_vl"), pictures("qwen2_vl"));
    let parts = [("image".to_owned(), 0)];
    let reason = |request: EngineRequest| {
        let mut stream = engine.submit(request);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        format!("{:?}", runtime.block_on(stream.next()))
    };
    let whole = || asked(&parts, &pictures, 1);
    let mut beyond = whole();
    beyond.prompt_token_ids.pop();
    assert!(reason(beyond).contains("overlaps"));
    let mut twice = whole();
    twice.pictures.extend(twice.pictures.clone());
    assert!(reason(twice).contains("overlaps"));
    let blind = start("qwen2", &config());
    let mut stream = blind.submit(EngineRequest { ..whole() });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let refused = format!("{:?}", runtime.block_on(stream.next()));
    assert!(refused.contains("doesn't see pictures"), "{refused}");
    assert_eq!(VOCAB, 160);
}

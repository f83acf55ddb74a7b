//! Models that see, beside transformers: how pictures are prepared, what the decoder says of them, and
//! that it says the same to the bit whatever else is computed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce::config::{EngineConfig, KvCacheDtype, WeightKind};
use sconce::engine::EngineHandle;
use sconce::engine::request::EngineRequest;
use sconce::pictures::decode::decode;
use sconce::pictures::picture::{PlacedPicture, Rgb};
use sconce::pictures::place::{Spelling, expand, place};
use sconce::pictures::processor::{Detail, Processor};
use sconce::pictures::wording::Prepared;
use sconce::sampling::params::SamplingParams;
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;
use serde::Deserialize;

use super::engine::{Answer, VOCAB, collect, one, request, start};
use super::open;

/// Folders below `tests/fixtures/pictures`.
pub(crate) const MODELS: &[&str] = &[
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "gemma3",
    "gemma4",
    "gemma4_small",
    "gemma4_unified",
    "idefics3",
    "smolvlm",
    "mistral3",
    "llava",
    "llava_next",
    "glm4v",
    "glm4v_moe",
    "llama4",
    "pixtral",
    "internvl",
    "lfm2_vl",
];

/// What transformers computed.
#[derive(Deserialize)]
struct Reference {
    runs: Vec<Run>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Run {
    pub(super) parts: Vec<(String, usize)>,
    prompt: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    ids: Vec<Vec<u32>>,
    logprobs: Vec<Vec<f32>>,
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pictures")
}

fn name_of(model: &str) -> String {
    format!("../pictures/{model}")
}

pub(super) fn runs(model: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(folder().join(model).join("reference.json")).unwrap();
    serde_json::from_str::<Reference>(&text).unwrap().runs
}

pub(super) fn processor(model: &str) -> Processor {
    let source = open(&name_of(model));
    let processor = Processor::from_json(&source.config, source.processor_config.as_ref());
    processor.unwrap().unwrap()
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// A model's processor, its tokenizer and the pictures of the fixtures.
pub(super) struct Eyes {
    processor: Processor,
    tokenizer: Tokenizer,
    pictures: Vec<Prepared>,
}

impl Eyes {
    pub(super) fn of(model: &str) -> Self {
        let (processor, source) = (processor(model), open(&name_of(model)));
        let json = source.tokenizer_json.unwrap();
        let tokenizer = Tokenizer::from_json(&json, &TokenizerConfig::default()).unwrap();
        let read = |at| processor.read(&file(&format!("{at}.png")), Detail::Full).unwrap();
        Self { pictures: (0..3).map(read).collect(), processor, tokenizer }
    }

    /// A prompt of parts, and the pictures in it.
    fn prompt(&self, parts: &[(String, usize)]) -> (Vec<u32>, Vec<PlacedPicture>) {
        let token = |id| self.tokenizer.token(id).unwrap();
        let image_token_id = self.processor.image_token_id;
        let (placeholder, image_token) = (self.processor.placeholder(token), token(image_token_id));
        let (mut prompt, mut shown) = (String::new(), Vec::new());
        let mut length = 0;
        for (kind, value) in parts {
            if kind == "text" {
                prompt.extend(text(*value, length));
                length += value;
            } else {
                prompt.push_str(&placeholder);
                length += placeholder.len();
                shown.push(self.pictures[*value].clone());
            }
        }
        let spelling =
            Spelling { placeholder: &placeholder, image_token: &image_token, token: &token };
        let expanded = expand(&prompt, &shown, spelling).unwrap();
        let ids = self.tokenizer.encode(&expanded, true).unwrap();
        let placed = place(&ids, image_token_id, &shown).unwrap();
        (ids, placed)
    }

    pub(super) fn asked(&self, parts: &[(String, usize)], max_tokens: usize) -> EngineRequest {
        let (tokens, pictures) = self.prompt(parts);
        let request = request(&tokens, max_tokens, 0);
        let sampling = SamplingParams { temperature: 0.0, ..request.sampling };
        EngineRequest { sampling, pictures, ..request }
    }
}

/// The fixed characters of a text, as the fixture script computes them.
fn text(length: usize, start: usize) -> impl Iterator<Item = char> {
    let code = move |i: usize| (length * 31 + i * i * 7 + i * 3 + start) % 95 + 32;
    (0..length).map(move |i| char::from(u8::try_from(code(i)).unwrap()))
}

pub(super) fn config() -> EngineConfig {
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

pub(super) fn cold(model: &str) -> EngineHandle {
    start(&name_of(model), &EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() })
}

#[test]
fn pictures_are_prepared_as_the_reference_does() {
    let sizes = |rgb: &Rgb| (rgb.width, rgb.height);
    for model in MODELS {
        for (at, ours) in Eyes::of(model).pictures.iter().enumerate() {
            let mut known = HashSet::new();
            let all = ours.parts().map(|(picture, _)| picture).filter(|one| !one.is_separator());
            let views: Vec<_> = all.filter(|picture| known.insert(Arc::as_ptr(picture))).collect();
            for (index, ours) in views.iter().enumerate() {
                let theirs = decode(&file(&format!("{model}/{at}_{index}.png"))).unwrap();
                assert_eq!(sizes(ours.rgb()), sizes(&theirs), "{model} {at} {index}");
                let off = ours.rgb().pixels.iter().zip(&theirs.pixels);
                let off = off.map(|(a, b)| a.abs_diff(*b)).max();
                assert_eq!(off, Some(0), "{model}, view {index} of picture {at}");
            }
            let next = folder().join(format!("{model}/{at}_{}.png", views.len()));
            assert!(!next.exists(), "{model} {at} has more views");
        }
    }
}

#[test]
fn pictures_of_any_size_become_what_the_reference_makes_of_them() {
    type Row = ([usize; 2], Vec<[usize; 2]>, usize);
    let text = std::fs::read_to_string(folder().join("sizes.json")).unwrap();
    let models: HashMap<String, Vec<Row>> = serde_json::from_str(&text).unwrap();
    for model in MODELS {
        let processor = processor(model);
        for ([width, height], views, tokens) in &models[*model] {
            let (width, height) = (*width, *height);
            let rgb = Rgb { width, height, pixels: vec![0; 3 * width * height] };
            let ours = processor.prepare(&rgb, Detail::Full).unwrap();
            let count: usize = ours.parts().map(|(_, part)| part.len()).sum();
            assert_eq!(count, *tokens, "{model} {width} x {height}");
            let mut known = HashSet::new();
            let all = ours.parts().map(|(picture, _)| picture).filter(|one| !one.is_separator());
            let seen = all.filter(|picture| known.insert(Arc::as_ptr(picture)));
            let seen: Vec<_> = seen.map(|one| [one.rgb().width, one.rgb().height]).collect();
            // LLaVA-NeXT's tiles that are only black have no token.
            let all = views.len() == seen.len() || *model == "llava_next";
            assert!(all && views.starts_with(&seen), "{model} {width} x {height}: {seen:?}");
        }
    }
}

#[test]
fn prompts_with_pictures_are_those_of_the_reference() {
    for model in MODELS {
        let eyes = Eyes::of(model);
        for run in runs(model) {
            assert_eq!(eyes.prompt(&run.parts).0, run.prompt, "{model} {:?}", run.parts);
        }
    }
}

#[test]
fn f32_logprobs_and_greedy_tokens_equal_the_reference() {
    for model in MODELS {
        let (engine, eyes) = (cold(model), Eyes::of(model));
        for run in runs(model) {
            let (answer, _) = one(&engine, eyes.asked(&run.parts, run.tokens.len()));
            assert_eq!(answer.0, run.tokens, "{model} {:?}", run.parts);
            let off = largest_distance(&answer, &run);
            assert!(off < 2e-4, "{model} {:?}: {off}", run.parts);
        }
    }
}

/// Of our log-probabilities to those of a run.
pub(super) fn largest_distance((_, ours): &Answer, run: &Run) -> f32 {
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
        let (cold, eyes, runs) = (cold(model), Eyes::of(model), runs(model));
        let pictures = [1, 0, 2].map(|at| eyes.pictures[at].clone()).into();
        let swapped = Eyes { pictures, ..Eyes::of(model) };
        let requests = || {
            let run = |run: &Run| eyes.asked(&run.parts, 8);
            let others = runs[1..].iter().map(|run| swapped.asked(&run.parts, 8));
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
    let (engine, eyes) = (cold("qwen2_vl"), Eyes::of("qwen2_vl"));
    let parts = [("image".to_owned(), 0)];
    let reason = |request: EngineRequest| {
        let mut stream = engine.submit(request);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        format!("{:?}", runtime.block_on(stream.next()))
    };
    let whole = || eyes.asked(&parts, 1);
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
    // Gemma 3 computes a picture of 16 tokens in one step, beside 3 others.
    let narrow = EngineConfig { max_num_batched_tokens: 18, ..config() };
    let (engine, eyes) = (start(&name_of("gemma3"), &narrow), Eyes::of("gemma3"));
    let mut stream = engine.submit(eyes.asked(&parts, 1));
    let refused = format!("{:?}", runtime.block_on(stream.next()));
    assert!(refused.contains("--max-num-seqs 4 it may have 15"), "{refused}");
    assert_eq!(VOCAB, 160);
}

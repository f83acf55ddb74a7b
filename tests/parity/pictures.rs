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

use super::engine::{VOCAB, request, start};
use super::media::{
    Run, Senses, answers_equal_the_reference, answers_have_the_bits_of_a_cold_start,
    prompts_equal_the_reference, runs_in, text,
};
use super::{chosen, open};

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
    "cohere2_vision",
    "aya_vision",
    "deepseek_vl",
    "paddle_ocr",
    "glm_ocr",
    "minicpmv4_6",
    "minicpm_ocr",
    "minicpmv",
    "qwen2_5_omni",
    "qwen3_omni",
    "lighton_ocr",
    "janus",
    "internvl_chat",
    "kimi_vl",
    "kimi_k25",
    "llava_next_video",
    "llava_onevision",
    "vipllava",
    "video_llama3",
    "ovis2",
    "idefics2",
    "granite_docling",
    "perception_lm",
    "paligemma",
    "paligemma2",
];

/// Those of which tiles that are only black have no token.
const BLACK_TILES: &[&str] = &["llava_next", "llava_next_video", "llava_onevision"];

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pictures")
}

fn name_of(model: &str) -> String {
    format!("../pictures/{model}")
}

pub(super) fn runs(model: &str) -> Vec<Run> {
    runs_in(&folder().join(model))
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
        let named = |text: &str| self.tokenizer.token_id(text);
        let image_token_id = self.processor.image_token_id(named).unwrap();
        let (placeholder, image_token) =
            (self.processor.placeholder(token), self.processor.image_token(token));
        let (mut prompt, mut shown) = (String::new(), Vec::new());
        let mut length = 0;
        for (kind, value) in parts {
            if kind == "text" {
                prompt.extend(text(*value, length));
                length += value;
            } else if kind == "token" {
                let spelled = token(u32::try_from(*value).unwrap());
                prompt.push_str(&spelled);
                length += spelled.len();
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
}

impl Senses for Eyes {
    fn ids(&self, parts: &[(String, usize)]) -> Vec<u32> {
        self.prompt(parts).0
    }

    fn asked(&self, parts: &[(String, usize)], max_tokens: usize) -> EngineRequest {
        let (tokens, pictures) = self.prompt(parts);
        let request = request(&tokens, max_tokens, 0);
        let sampling = SamplingParams { temperature: 0.0, ..request.sampling };
        EngineRequest { sampling, pictures, ..request }
    }
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
    for model in chosen(MODELS) {
        for (at, ours) in Eyes::of(model).pictures.iter().enumerate() {
            let mut known = HashSet::new();
            let all = ours.parts().map(|(picture, _)| picture).filter(|one| one.mark().is_none());
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
    for model in chosen(MODELS) {
        let processor = processor(model);
        for ([width, height], views, tokens) in &models[model] {
            let (width, height) = (*width, *height);
            let rgb = Rgb { width, height, pixels: vec![0; 3 * width * height] };
            let ours = processor.prepare(&rgb, Detail::Full).unwrap();
            let count: usize = ours.parts().map(|(_, part)| part.len()).sum();
            assert_eq!(count, *tokens, "{model} {width} x {height}");
            let mut known = HashSet::new();
            let all = ours.parts().map(|(picture, _)| picture).filter(|one| one.mark().is_none());
            let seen = all.filter(|picture| known.insert(Arc::as_ptr(picture)));
            let seen: Vec<_> = seen.map(|one| [one.rgb().width, one.rgb().height]).collect();
            // LLaVA-NeXT's tiles that are only black have no token.
            let all = views.len() == seen.len() || BLACK_TILES.contains(&model);
            assert!(all && views.starts_with(&seen), "{model} {width} x {height}: {seen:?}");
        }
    }
}

#[test]
fn prompts_with_pictures_are_those_of_the_reference() {
    for model in chosen(MODELS) {
        prompts_equal_the_reference(model, &runs(model), &Eyes::of(model));
    }
}

#[test]
fn f32_logprobs_and_greedy_tokens_equal_the_reference() {
    for model in chosen(MODELS) {
        answers_equal_the_reference(model, &runs(model), &Eyes::of(model), &cold(model));
    }
}

#[test]
fn cached_chunked_and_in_company_answers_have_the_bits_of_a_cold_start() {
    for model in chosen(MODELS) {
        let eyes = Eyes::of(model);
        let pictures = [1, 0, 2].map(|at| eyes.pictures[at].clone()).into();
        let swapped = Eyes { pictures, ..Eyes::of(model) };
        let engine = |config: &EngineConfig| start(&name_of(model), config);
        answers_have_the_bits_of_a_cold_start(
            model,
            &runs(model),
            [&eyes, &swapped],
            &config(),
            engine,
        );
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

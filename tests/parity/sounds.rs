//! Models that hear, beside transformers: what the decoder says of sounds, and that it says the same to the bit
//! whatever else is computed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::request::EngineRequest;
use sconce::sampling::params::SamplingParams;
use sconce::sounds::place::{expand, place};
use sconce::sounds::processor::{Bounds, Processor};
use sconce::sounds::sound::{PlacedSound, Sound};
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;

use super::engine::{request, start};
use super::media::{
    Run, Senses, answers_equal_the_reference, answers_have_the_bits_of_a_cold_start,
    prompts_equal_the_reference, runs_in, text,
};
use super::open;
use super::pictures::config as usual;

/// Folders below `tests/fixtures/sounds`, and the samples of their sounds.
pub(crate) const MODELS: &[(&str, [usize; 3])] = &[
    ("voxtral", [11_717, 36_333, 504_123]),
    ("qwen2_audio", [11_717, 36_333, 124_321]),
    ("qwen3_asr", [11_717, 36_333, 504_123]),
];
const SECONDS: u64 = 100;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sounds")
}

fn name_of(model: &str) -> String {
    format!("../sounds/{model}")
}

fn runs(model: &str) -> Vec<Run> {
    runs_in(&folder().join(model))
}

/// A file of 16-bit samples, 16 000 a second: the tone that the fixture script computes.
pub(crate) fn wav(samples: usize) -> Vec<u8> {
    let at = 0..i64::try_from(samples).unwrap();
    let tone = at.map(|at| (at * at / 97 + at * 13) % 4001 - 2000 + (at * 7919) % 997);
    let data: Vec<u8> = tone.flat_map(|one| i16::try_from(one).unwrap().to_le_bytes()).collect();
    let length = u32::try_from(data.len()).unwrap();
    let mut file = b"RIFF".to_vec();
    file.extend((length + 36).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend([16_000u32.to_le_bytes(), 32_000u32.to_le_bytes()].concat());
    file.extend(b"\x02\0\x10\0data");
    file.extend(length.to_le_bytes());
    file.extend(data);
    file
}

/// A model's processor, its tokenizer and the sounds of the fixtures.
struct Ears {
    processor: Processor,
    tokenizer: Tokenizer,
    sounds: Vec<Arc<Sound>>,
}

impl Ears {
    fn of((model, samples): (&str, [usize; 3])) -> Self {
        let source = open(&name_of(model));
        let processor = Processor::from_json(&source.config, source.processor_config.as_ref());
        let processor = processor.unwrap().unwrap();
        let json = source.tokenizer_json.unwrap();
        let tokenizer = Tokenizer::from_json(&json, &TokenizerConfig::default()).unwrap();
        let bounds = Bounds { seconds: SECONDS, tokens: 1000 };
        let read = |samples| processor.read(Bytes::from(wav(samples)), bounds).unwrap();
        let sounds = samples.into_iter().map(|samples| Arc::new(read(samples))).collect();
        Self { processor, tokenizer, sounds }
    }

    /// A prompt of parts, and the sounds in it.
    fn prompt(&self, parts: &[(String, usize)]) -> (Vec<u32>, Vec<PlacedSound>) {
        let token = self.tokenizer.token(self.processor.sound_token_id).unwrap();
        let [before, behind] = self.processor.around;
        let placeholder = format!("{before}{token}{behind}");
        let (mut prompt, mut heard, mut length) = (String::new(), Vec::new(), 0);
        for (kind, value) in parts {
            if kind == "text" {
                prompt.extend(text(*value, length));
                length += value;
            } else {
                prompt.push_str(&placeholder);
                length += placeholder.len();
                heard.push(Arc::clone(&self.sounds[*value]));
            }
        }
        let expanded = expand(&prompt, &heard, &token).unwrap();
        let ids = self.tokenizer.encode(&expanded, true).unwrap();
        let placed = place(&ids, self.processor.sound_token_id, &heard).unwrap();
        (ids, placed)
    }
}

impl Senses for Ears {
    fn ids(&self, parts: &[(String, usize)]) -> Vec<u32> {
        self.prompt(parts).0
    }

    fn asked(&self, parts: &[(String, usize)], max_tokens: usize) -> EngineRequest {
        let (tokens, sounds) = self.prompt(parts);
        let request = request(&tokens, max_tokens, 0);
        let sampling = SamplingParams { temperature: 0.0, ..request.sampling };
        EngineRequest { sampling, sounds, ..request }
    }
}

fn config() -> EngineConfig {
    EngineConfig { max_model_len: Some(1024), ..usual() }
}

fn cold(model: &str) -> EngineHandle {
    start(&name_of(model), &EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() })
}

#[test]
fn prompts_with_sounds_are_those_of_the_reference() {
    for model in MODELS {
        prompts_equal_the_reference(model.0, &runs(model.0), &Ears::of(*model));
    }
}

#[test]
fn f32_logprobs_and_greedy_tokens_of_sounds_equal_the_reference() {
    for model in MODELS {
        let (name, ears) = (model.0, Ears::of(*model));
        answers_equal_the_reference(name, &runs(name), &ears, &cold(name));
    }
}

#[test]
fn cached_chunked_and_in_company_answers_to_sounds_have_the_bits_of_a_cold_start() {
    for model in MODELS {
        let (name, samples) = *model;
        let ears = Ears::of(*model);
        let swapped = Ears::of((name, [samples[1], samples[0], samples[1]]));
        let engine = |config: &EngineConfig| start(&name_of(name), config);
        answers_have_the_bits_of_a_cold_start(
            name,
            &runs(name),
            [&ears, &swapped],
            &config(),
            engine,
        );
    }
}

#[test]
fn sounds_that_can_not_be_there_are_refused() {
    let model = MODELS[0];
    let (engine, ears) = (cold(model.0), Ears::of(model));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reason = |engine: &EngineHandle, request: EngineRequest| {
        let mut stream = engine.submit(request);
        format!("{:?}", runtime.block_on(stream.next()))
    };
    let whole = || ears.asked(&[("audio".to_owned(), 0)], 1);
    let mut beyond = whole();
    beyond.prompt_token_ids.pop();
    assert!(reason(&engine, beyond).contains("overlaps"));
    let mut twice = whole();
    twice.sounds.extend(twice.sounds.clone());
    assert!(reason(&engine, twice).contains("overlaps"));
    let deaf = start("qwen2", &usual());
    let refused = reason(&deaf, whole());
    assert!(refused.contains("doesn't hear sounds"), "{refused}");
}

#[test]
fn sounds_are_bounded_in_seconds_and_tokens() {
    let refused = |at: usize, samples, seconds, tokens| {
        let ears = Ears::of(MODELS[at]);
        let bounds = Bounds { seconds, tokens };
        let refused = ears.processor.read(Bytes::from(wav(samples)), bounds);
        refused.map(|sound| sound.num_tokens()).map_err(|error| error.to_string())
    };
    assert_eq!(refused(0, 64_000, 4, 50), Ok(50));
    assert!(refused(0, 64_001, 4, 999).unwrap_err().contains("at most 4 s"));
    assert!(refused(0, 64_001, 9, 74).unwrap_err().contains("more than 74 tokens"));
    assert!(refused(1, 128_001, 99, 999).unwrap_err().contains("the model hears no more"));
    assert!(refused(2, 1000, 99, 999).unwrap_err().contains("at least 0.1 s"));
}

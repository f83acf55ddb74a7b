//! Beam search beside that of transformers, on logits of the same tiny checkpoints.

use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use sconce::layers::forward::KvFormat;
use sconce::sampling::SamplerState;
use sconce::sampling::beams::{Beam, BeamSearch};
use sconce::sampling::params::{BeamParams, EarlyStopping, SamplingParams};
use sconce::scheduler::stop::StopConditions;
use serde::Deserialize;
use serde_json::Value;

use super::driver::Driver;
use super::{folder, load_as, prompt};

#[derive(Deserialize)]
struct Recorded {
    ends: Vec<u32>,
    searches: Vec<Search>,
}

#[derive(Deserialize)]
struct Search {
    model: String,
    prompt: u32,
    width: usize,
    answers: usize,
    length_penalty: f64,
    early_stopping: Value,
    max_tokens: usize,
    repetition_penalty: Option<f32>,
    min_tokens: Option<usize>,
    answers_found: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    tokens: Vec<u32>,
    score: f64,
}

impl Search {
    fn params(&self) -> BeamParams {
        BeamParams {
            width: self.width,
            answers: self.answers,
            length_penalty: self.length_penalty,
            early_stopping: match &self.early_stopping {
                Value::Bool(false) => EarlyStopping::Estimated,
                Value::Bool(true) => EarlyStopping::WhenFull,
                _ => EarlyStopping::Never,
            },
        }
    }

    /// Searches with a sequence of its own for every beam of every step.
    fn run(&self, ends: &[u32]) -> Vec<Beam> {
        let model = load_as(&self.model, Some(GgmlDType::F32));
        let prompt = prompt(self.prompt, u32::try_from(model.vocab_size()).unwrap());
        let mut driver = Driver::new(model, KvFormat::F32, 2048, None);
        let stop = StopConditions {
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens.unwrap_or(0),
            eos_token_ids: Arc::from(ends),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
        };
        let sampling = SamplingParams {
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            ..SamplingParams::default()
        };
        let suppressed = stop.suppressed_before_min_tokens();
        let sampler = SamplerState::new(sampling, &prompt, stop.min_tokens, suppressed);
        let mut search = BeamSearch::new(self.params(), self.max_tokens);
        let count = search.num_continuations(ends.len());
        let mut beams = vec![(prompt, sampler)];
        loop {
            let continuations = beams.iter_mut().map(|(tokens, sampler)| {
                let sequence = driver.add(tokens);
                let mut logits = driver.finish(sequence, usize::MAX);
                sampler.expand(&mut logits, count).unwrap()
            });
            let continuations = continuations.collect();
            let ended = |token, length| stop.check(token, length).is_some();
            let chosen = search.advance(continuations, ended);
            if chosen.is_empty() {
                return search.answers().to_vec();
            }
            let next = chosen.iter().map(|chosen| {
                let (mut tokens, mut sampler) = beams[chosen.parent].clone();
                tokens.push(chosen.token_id);
                sampler.take(chosen.token_id).unwrap();
                (tokens, sampler)
            });
            beams = next.collect();
        }
    }
}

#[test]
fn finds_what_transformers_finds() {
    let text = std::fs::read_to_string(folder("beams.json")).unwrap();
    let Recorded { ends, searches } = serde_json::from_str(&text).unwrap();
    assert!(searches.len() > 30);
    for search in searches {
        let found = search.run(&ends);
        assert_eq!(found.len(), search.answers_found.len());
        for (found, expected) in found.iter().zip(&search.answers_found) {
            let what = format!("{} {} width {}", search.model, search.prompt, search.width);
            assert_eq!(found.token_ids, expected.tokens, "{what}");
            // Scores grow with the power of the length.
            let bound = 1e-4 * expected.score.abs().max(1.0);
            assert!((found.score - expected.score).abs() < bound, "{what}: {}", found.score);
        }
    }
}

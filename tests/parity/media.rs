//! What models that see and models that hear show alike: prompts and answers are those of transformers, and the
//! same to the bit whatever else is computed.

use std::path::Path;

use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::request::EngineRequest;
use serde::Deserialize;

use super::engine::{Answer, collect, one};

/// What transformers computed.
#[derive(Deserialize)]
struct Reference {
    runs: Vec<Run>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Run {
    pub(super) parts: Vec<(String, usize)>,
    pub(super) prompt: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    ids: Vec<Vec<u32>>,
    logprobs: Vec<Vec<f32>>,
}

/// The runs that the folder of a model has.
pub(super) fn runs_in(folder: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    serde_json::from_str::<Reference>(&text).unwrap().runs
}

/// The fixed characters of a text, as the fixture script computes them.
pub(super) fn text(length: usize, start: usize) -> impl Iterator<Item = char> {
    let code = move |i: usize| (length * 31 + i * i * 7 + i * 3 + start) % 95 + 32;
    (0..length).map(move |i| char::from(u8::try_from(code(i)).unwrap()))
}

/// What prepares the pictures or the sounds of a model's prompts.
pub(super) trait Senses {
    /// The tokens of a prompt of these parts.
    fn ids(&self, parts: &[(String, usize)]) -> Vec<u32>;

    /// A greedy request with such a prompt.
    fn asked(&self, parts: &[(String, usize)], max_tokens: usize) -> EngineRequest;
}

/// Whether all prompts of `runs` become the tokens that the reference makes of them.
pub(super) fn prompts_equal_the_reference(model: &str, runs: &[Run], senses: &impl Senses) {
    for run in runs {
        assert_eq!(senses.ids(&run.parts), run.prompt, "{model} {:?}", run.parts);
    }
}

/// Whether an engine in f32 answers as the reference does.
pub(super) fn answers_equal_the_reference(
    model: &str,
    runs: &[Run],
    senses: &impl Senses,
    engine: &EngineHandle,
) {
    for run in runs {
        let (answer, _) = one(engine, senses.asked(&run.parts, run.tokens.len()));
        assert_eq!(answer.0, run.tokens, "{model} {:?}", run.parts);
        let off = largest_distance(&answer, run);
        assert!(off < 2e-4, "{model} {:?}: {off}", run.parts);
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

/// Whether answers have the bits of an engine that knows nothing, of one request alone: in company, in chunks, and
/// from the prefix cache. The `senses` are those of the model and others that know other pictures or sounds by the
/// same names.
pub(super) fn answers_have_the_bits_of_a_cold_start<S: Senses>(
    model: &str,
    runs: &[Run],
    senses: [&S; 2],
    config: &EngineConfig,
    engine: impl Fn(&EngineConfig) -> EngineHandle,
) {
    let [own, swapped] = senses;
    let requests = || {
        let asked = runs.iter().map(|run| own.asked(&run.parts, 8));
        let others = runs[1..].iter().map(|run| swapped.asked(&run.parts, 8));
        asked.chain(others).collect::<Vec<_>>()
    };
    let cold = EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config.clone() };
    let cold = engine(&cold);
    let expected: Vec<_> = requests().into_iter().map(|request| one(&cold, request).0).collect();
    assert_ne!(expected[1], expected[runs.len()], "{model} knows no difference");
    let chunks = EngineConfig { max_num_batched_tokens: chunk(model), ..config.clone() };
    for (case, config) in [("in company", config), ("in chunks", &chunks)] {
        let engine = engine(config);
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

/// Tokens of a small step: prompts that see themselves have to fit into one.
fn chunk(model: &str) -> usize {
    if model.starts_with("paligemma") { 96 } else { 33 }
}

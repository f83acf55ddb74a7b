//! What transformers hears in the same recording with the same weights.

use serde_json::Value;

use super::{file, fixtures, model, options, transcribe};
use crate::speech::alignment::ends_of_tokens;
use crate::speech::audio::SoundFile;
use crate::speech::features::{Features, Listener};
use crate::speech::languages;
use crate::speech::marks::Task;
use crate::speech::transcriber::{Options, Transcriber};
use crate::speech::words::words;

fn reference(name: &str) -> Value {
    let text = std::fs::read_to_string(fixtures().join("reference.json")).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    all[name].take()
}

fn features(mels: usize) -> Features {
    let mut sound = SoundFile::open(file("said.flac")).unwrap();
    let mut listener = Listener::new(mels);
    while let Some(piece) = sound.read().unwrap() {
        assert_eq!(piece.rate, 16_000);
        listener.push(piece.samples);
    }
    listener.finish()
}

#[expect(clippy::cast_possible_truncation, reason = "they were single precision")]
fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn assert_near(found: &[f32], expected: &[f32], bound: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < bound, "{what}[{at}]: {found} for {expected}");
    }
}

#[test]
fn features_are_those_of_the_feature_extractor() {
    for (name, mels) in [("tiny", 80), ("english", 128)] {
        let (reference, features) = (reference(name), features(mels));
        let frames = features.frames();
        assert_eq!(Some(frames as u64), reference["frames"].as_u64());
        let places = [0, 1, frames / 2, frames - 2, frames - 1];
        for (at, expected) in places.into_iter().zip(reference["features"].as_array().unwrap()) {
            let found = features.window(at, 1);
            assert_near(&found, &numbers(expected), 1e-4, &format!("{name}, frame {at}"));
        }
        let window = features.window(0, 200);
        let loudest = window.chunks(200).map(|row| row.iter().copied().fold(f32::MIN, f32::max));
        let loudest: Vec<f32> = loudest.collect();
        assert_near(&loudest, &numbers(&reference["loudest_window"]), 1e-4, name);
    }
}

#[test]
fn states_and_logits_are_those_of_transformers() {
    for (name, mels) in [("tiny", 80), ("english", 128)] {
        let (model, reference) = (model(name), reference(name));
        let network = model.network();
        let states = network.encode(features(mels).window(0, 200), &|| false).unwrap().unwrap();
        let rows: Vec<Vec<f32>> = states.squeeze(0).unwrap().to_vec2().unwrap();
        for (at, expected) in [0, 50, 99].into_iter().zip(reference["states"].as_array().unwrap()) {
            assert_near(&rows[at], &numbers(expected), 2e-4, &format!("{name}, state {at}"));
        }
        let heard = network.hear(&states).unwrap();
        let prompt: Vec<u32> = serde_json::from_value(reference["prompt"].clone()).unwrap();
        let last = u32::try_from(prompt.len() - 1).unwrap();
        let wanted = [0, u32::try_from(prompt.len() / 2).unwrap(), last];
        let logits = network.logits(&prompt, &mut network.begin(), &heard, &wanted).unwrap();
        // One token after the other is the same as all at once.
        let mut past = network.begin();
        let mut alone: Vec<Vec<f32>> = Vec::new();
        for token in &prompt {
            alone.extend(network.logits(&[*token], &mut past, &heard, &[0]).unwrap());
        }
        assert_eq!(past.len(), prompt.len());
        for (at, expected) in reference["logits"].as_array().unwrap().iter().enumerate() {
            let expected = numbers(expected);
            assert_near(&logits[at], &expected, 2e-4, &format!("{name}, logits {at}"));
            assert_near(
                &alone[wanted[at] as usize],
                &expected,
                2e-4,
                &format!("{name}, {at} alone"),
            );
        }
    }
}

#[test]
fn a_long_file_has_the_segments_of_transformers() {
    for name in ["tiny", "english"] {
        let (model, reference) = (model(name), reference(name));
        for case in reference["cases"].as_array().unwrap() {
            check_case(&model, case);
        }
    }
}

/// Compares tokens, times of segments and times of tokens.
fn check_case(model: &Transcriber, case: &Value) {
    let language = case["language"].as_str().map(|code| languages::code_of(code).unwrap());
    let options = Options {
        task: if case["task"] == "translate" { Task::Translate } else { Task::Transcribe },
        language,
        prompt: case["prompt"].as_str().map(str::to_owned),
        condition_on_previous: case["condition"] == true,
        words: true,
        ..options()
    };
    let (segments, summary) = transcribe(model, file("said.flac"), &options).unwrap();
    assert!((summary.seconds - 5.37).abs() < 1e-3, "{}", summary.seconds);
    // A part without text is no segment.
    let expected = case["segments"].as_array().unwrap().iter();
    let expected: Vec<&Value> =
        expected.filter(|one| !one["text"].as_str().unwrap().trim().is_empty()).collect();
    assert_eq!(segments.len(), expected.len(), "{case} {segments:?}");
    for (segment, expected) in segments.iter().zip(expected) {
        let mut tokens: Vec<u32> = serde_json::from_value(expected["tokens"].clone()).unwrap();
        // Where the window goes on, transformers leaves the time in that begins what follows.
        let times = tokens.iter().rev().take_while(|token| model.marks().is_time(**token)).count();
        tokens.truncate(tokens.len() - times.saturating_sub(1));
        assert_eq!(segment.tokens, tokens, "{case}");
        assert_eq!(segment.text, expected["text"].as_str().unwrap());
        let near = |found: f64, name: &str| {
            // No time is behind the end of the file.
            let expected = expected[name].as_f64().unwrap().min(summary.seconds);
            assert!((found - expected).abs() < 1e-3, "{name}: {found} for {expected} in {case}");
        };
        near(segment.start, "start");
        near(segment.end, "end");
        let spaces = languages::has_spaces(summary.language);
        check_words(model, segment, expected, summary.seconds, spaces);
    }
}

/// A word ends when its last token does.
fn check_words(
    model: &Transcriber,
    segment: &crate::speech::transcriber::Segment,
    expected: &Value,
    seconds: f64,
    spaces: bool,
) {
    let ends: Vec<f64> = serde_json::from_value(expected["ends"].clone()).unwrap();
    let texts: Vec<usize> =
        (0..segment.tokens.len()).filter(|at| model.marks().is_text(segment.tokens[*at])).collect();
    let tokens: Vec<u32> = texts.iter().map(|at| segment.tokens[*at]).collect();
    let made = words(model.tokenizer(), &tokens, spaces);
    let made: Vec<_> = made.iter().filter(|word| !word.text.trim().is_empty()).collect();
    assert!(!segment.words.is_empty());
    for (found, word) in segment.words.iter().zip(&made) {
        let end = ends[texts[*word.tokens.last().unwrap()]].min(seconds);
        assert!((found.end - end).abs() < 1e-3, "{found:?} ends at {end}: {expected}");
        let first = texts[word.tokens[0]];
        if first > 0 {
            let start = ends[first - 1].min(seconds);
            assert!((found.start - start).abs() < 1e-3, "{found:?} starts at {start}");
        }
    }
}

#[test]
fn the_language_is_the_one_that_transformers_detects() {
    let (model, reference) = (model("tiny"), reference("tiny"));
    let (_, summary) = transcribe(&model, file("said.flac"), &options()).unwrap();
    assert_eq!(format!("<|{}|>", summary.language), reference["language"].as_str().unwrap());
    let (_, summary) = transcribe(&self::model("english"), file("said.flac"), &options()).unwrap();
    assert_eq!(summary.language, "en");
}

#[test]
fn words_are_those_of_the_tokenizer() {
    let (model, reference) = (model("tiny"), reference("tiny"));
    for case in reference["words"].as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        let found = words(model.tokenizer(), &ids, case["spaces"] == true);
        let texts: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
        let places: Vec<&[usize]> = found.iter().map(|word| &word.tokens[..]).collect();
        assert_eq!(serde_json::to_value(texts).unwrap(), case["words"]);
        assert_eq!(serde_json::to_value(places).unwrap(), case["places"]);
    }
}

#[test]
fn times_of_tokens_need_rows() {
    let looks = crate::speech::model::Looks { heads: vec![vec![Vec::new(); 3]] };
    assert_eq!(ends_of_tokens(&looks, 3, 0, 7), [0.0; 3]);
}

//! The rules, the fallback and the division of windows, by logits and tokens that are made up.

use super::{file, model, options, transcribe};
use crate::speech::error::SpeechError;
use crate::speech::marks::{Marks, Task};
use crate::speech::rules::apply;
use crate::speech::segments::divide;
use crate::speech::transcriber::Options;
use crate::speech::window::{
    Thresholds, Writer, Written, compression_ratio, likeliest, with_fallback,
};

const END: u32 = 10;
const FIRST: u32 = 14;
const SIZE: usize = 40;

/// Ten tokens of text, the end, three marks, then times.
fn marks() -> Marks {
    Marks {
        start: 11,
        end: END,
        previous: Some(12),
        no_timestamps: 13,
        first_time: FIRST,
        no_speech: 12,
        tasks: None,
        languages: Vec::new(),
        suppressed: vec![3, 11, 12],
        suppressed_first: vec![4],
        latest_first: Some(5),
        alignment_heads: Vec::new(),
    }
}

/// The tokens that may follow, where all are as likely but `likely`, which is likelier than all others.
fn allowed(written: &[u32], likely: u32) -> Vec<u32> {
    let mut logits = vec![0.0; SIZE];
    logits[likely as usize] = 20.0;
    apply(&marks(), written, &mut logits);
    let all = (0..).zip(logits).filter(|(_, logit)| logit.is_finite());
    all.map(|(token, _)| token).collect()
}

#[test]
fn a_window_begins_with_an_early_time() {
    assert_eq!(allowed(&[], 1), (FIRST..=FIRST + 5).collect::<Vec<_>>());
}

#[test]
fn text_follows_the_first_time() {
    // 3 and the marks never come.
    let text = [0, 1, 2, 4, 5, 6, 7, 8, 9, END];
    assert_eq!(allowed(&[FIRST + 2], 1), text);
    // However likely times are: nothing else may follow a pair either.
    assert_eq!(allowed(&[FIRST + 2], FIRST + 3), text);
    assert_eq!(allowed(&[FIRST, 1, FIRST + 3, FIRST + 3], FIRST + 4), text);
}

#[test]
fn a_time_behind_text_is_followed_by_another_or_the_end() {
    let found = allowed(&[FIRST, 1, FIRST + 20], END);
    let times = FIRST + 20..u32::try_from(SIZE).unwrap();
    assert_eq!(found, [END].into_iter().chain(times).collect::<Vec<_>>());
}

#[test]
fn times_do_not_go_back_and_segments_have_a_length() {
    let found = allowed(&[FIRST + 2, 1, 2], FIRST + 9);
    // They are likelier together than any text.
    assert_eq!(found, (FIRST + 3..u32::try_from(SIZE).unwrap()).collect::<Vec<_>>());
    let found = allowed(&[FIRST, 1, FIRST + 20, FIRST + 20, 1], FIRST + 22);
    assert_eq!(found, (FIRST + 21..u32::try_from(SIZE).unwrap()).collect::<Vec<_>>());
}

#[test]
fn times_come_where_they_are_likelier_together_than_any_text() {
    let mut logits = vec![f32::NEG_INFINITY; SIZE];
    logits[1] = 1.0;
    // Each of three is less likely than the text; together they are likelier.
    logits[30..33].fill(0.5);
    let before = logits.clone();
    apply(&marks(), &[FIRST, 1], &mut logits);
    assert!(!logits[1].is_finite() && logits[31].is_finite());
    let mut logits = before;
    logits[31..33].fill(f32::NEG_INFINITY);
    apply(&marks(), &[FIRST, 1], &mut logits);
    assert!(logits[1].is_finite() && logits[30].is_finite());
}

#[test]
fn windows_are_divided_where_two_times_meet() {
    let marks = marks();
    let t = |step: u32| FIRST + step;
    let parts = |tokens: &[u32], frames| {
        let division = divide(&marks, tokens, frames);
        let steps = |seconds: f64| (seconds / 0.02).round();
        let parts: Vec<_> = division
            .parts
            .iter()
            .map(|part| (steps(part.start), steps(part.end), part.tokens.clone()))
            .collect();
        (parts, division.next)
    };
    // What follows the last pair was cut off.
    let cut = [t(0), 1, t(3), t(3), 2, t(7), t(8), 5];
    assert_eq!(parts(&cut, 200), (vec![(0.0, 3.0, 0..3), (3.0, 7.0, 3..6)], 14));
    // One time at the end: nothing was.
    let whole = [t(0), 1, t(3), t(4), 2, t(7)];
    assert_eq!(parts(&whole, 200), (vec![(0.0, 3.0, 0..3), (4.0, 7.0, 3..6)], 200));
    // No pair: one segment, as long as it says, or as the window is.
    assert_eq!(parts(&[t(0), 1, 2, t(9)], 200), (vec![(0.0, 9.0, 0..4)], 200));
    assert_eq!(parts(&[t(0), 1, 2], 150), (vec![(0.0, 75.0, 0..3)], 150));
    assert_eq!(parts(&[], 30), (vec![(0.0, 15.0, 0..0)], 30));
    // Every window moves on.
    assert_eq!(parts(&[t(0), t(0), 1], 200).1, 200);
}

fn written(temperature: f64, ratio: f64, mean: f64, no_speech: f64) -> Written {
    Written {
        tokens: vec![1],
        log_probabilities: vec![0.0],
        mean_log_probability: mean,
        no_speech,
        temperature,
        compression_ratio: ratio,
        ended: true,
    }
}

#[test]
fn failures_are_written_again_at_higher_temperatures() {
    let thresholds = Thresholds::default();
    assert_eq!((thresholds.compression_ratio, thresholds.log_probability), (2.4, -1.0));
    let ladder = [0.0, 0.2, 0.4, 0.6];
    let tried = |results: [(f64, f64, f64); 4]| {
        let mut tries = Vec::new();
        let chosen = with_fallback(&ladder, &thresholds, |temperature| {
            let (ratio, mean, no_speech) = results[tries.len()];
            tries.push(temperature);
            Ok(written(temperature, ratio, mean, no_speech))
        });
        (tries.len(), chosen.unwrap().temperature)
    };
    let fine = (1.5, -0.3, 0.1);
    assert_eq!(tried([fine; 4]), (1, 0.0));
    // It repeats itself, then it guesses.
    assert_eq!(tried([(2.5, -0.3, 0.1), (1.5, -1.2, 0.1), fine, fine]), (3, 0.4));
    // The last one counts, whatever it is.
    assert_eq!(tried([(9.0, -9.0, 0.1); 4]), (4, 0.6));
    // Silence is none.
    assert_eq!(tried([(9.0, -9.0, 0.9); 4]), (1, 0.0));
    assert!(written(0.0, 1.0, -1.5, 0.7).is_silence(&thresholds));
    assert!(!written(0.0, 1.0, -0.5, 0.7).is_silence(&thresholds));
    assert!(!written(0.0, 1.0, -1.5, 0.5).is_silence(&thresholds));
}

#[test]
fn draws_follow_probabilities_and_the_seed() {
    let marks = marks();
    let mut logits = vec![f32::NEG_INFINITY; SIZE];
    (logits[5], logits[6]) = (2.0_f32.ln(), 0.0);
    let draw = |seed: u64| {
        let mut writer = Writer::new(&marks, 1.0, [seed, 0, 0]);
        // Behind the first time.
        let mut first = vec![f32::NEG_INFINITY; SIZE];
        first[FIRST as usize] = 0.0;
        writer.next(first);
        writer.next(logits.clone()).unwrap()
    };
    let count = (0..3000).filter(|seed| draw(*seed) == 5).count();
    assert!((1850..2150).contains(&count), "{count} of 3000 for a share of two thirds");
    assert_eq!(draw(7), draw(7));
    assert_eq!(likeliest(&logits), 5);
}

#[test]
fn probabilities_are_those_among_what_the_rules_left() {
    let marks = marks();
    let mut writer = Writer::new(&marks, 0.0, [0; 3]);
    assert_eq!(writer.next(vec![0.0; SIZE]), Some(FIRST));
    let mut logits = vec![f32::NEG_INFINITY; SIZE];
    logits[END as usize] = 0.0;
    assert_eq!(writer.next(logits), None);
    let written = writer.finish(true, 0.5, 1.0);
    // One of six times, then the end for sure.
    let expected = -(6.0_f64.ln());
    assert!((f64::from(written.log_probabilities[0]) - expected).abs() < 1e-6);
    assert!((written.mean_log_probability - expected / 2.0).abs() < 1e-6);
}

#[test]
fn repetition_compresses() {
    assert!(compression_ratio(&"again and ".repeat(30)) > 2.4);
    assert!(compression_ratio("He has grave doubts whether it is really Greek after all.") < 1.2);
    assert!(compression_ratio("") < 1.0);
}

#[test]
fn a_request_that_nobody_waits_for_ends() {
    let model = model("tiny");
    let looks = std::cell::Cell::new(0);
    let stop = || {
        looks.set(looks.get() + 1);
        looks.get() > 20
    };
    let ended = model.transcribe(file("said.flac"), &options(), &stop, &mut |_| {});
    assert!(matches!(ended, Err(SpeechError::Stopped)), "{ended:?}");
}

#[test]
fn what_the_model_does_not_know_is_refused() {
    let refused = |name: &str, options: &Options| model(name).check(options).unwrap_err();
    let spanish = Options { language: Some("es"), ..options() };
    let error = refused("tiny", &spanish).to_string();
    assert!(error.contains("\"es\"") && error.contains("de, en, fr, ja"), "{error}");
    let error = refused("english", &spanish).to_string();
    assert!(error.contains("knows en"), "{error}");
    let translate = Options { task: Task::Translate, ..options() };
    assert!(matches!(refused("english", &translate), SpeechError::Field("model", _)));
    model("english").check(&Options { language: Some("en"), ..options() }).unwrap();
    // What looks like a mark in a prompt is text.
    let prompt = Options { prompt: Some("<|endoftext|> hi".to_owned()), ..options() };
    model("tiny").check(&prompt).unwrap();
    transcribe(&model("tiny"), file("said.flac"), &prompt).unwrap();
}

#[test]
fn draws_at_a_temperature_differ_by_seed_alone() {
    let model = model("tiny");
    let hot = |seed| {
        let options = Options { temperature: 1.0, seed, ..options() };
        transcribe(&model, file("said.flac"), &options).unwrap().0
    };
    assert_eq!(hot(1), hot(1));
    assert_ne!(hot(1), hot(2));
    assert!(hot(1).iter().all(|segment| (segment.temperature - 1.0).abs() < 1e-9));
}

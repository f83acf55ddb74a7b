//! The recording in every format, which sox and ffmpeg wrote.

use super::file;
use crate::speech::audio::SoundFile;
use crate::speech::audio::resample::Resampler;

/// A file's samples at the model's rate, and the rate that it had.
fn decoded(name: &str) -> (Vec<f32>, usize) {
    let mut sound = SoundFile::open(file(name)).unwrap();
    let (mut samples, mut resampler, mut rate) = (Vec::new(), None, 0);
    while let Some(piece) = sound.read().unwrap() {
        rate = piece.rate;
        let resampler = resampler.get_or_insert_with(|| Resampler::new(piece.rate));
        resampler.push(piece.samples, |more| samples.extend_from_slice(more));
    }
    resampler.unwrap().finish(|more| samples.extend_from_slice(more));
    (samples, rate)
}

/// How alike two sounds are where `found` is delayed by as many samples as makes them most alike.
fn likeness(found: &[f32], expected: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let expected = &expected[..expected.len() - 1600];
    let at = |delay: usize| {
        let found = &found[delay..];
        let length = found.len().min(expected.len());
        let (found, expected) = (&found[..length], &expected[..length]);
        dot(found, expected) / (dot(found, found) * dot(expected, expected)).sqrt()
    };
    (0..1600).map(at).fold(0.0, f32::max)
}

#[test]
fn every_format_holds_the_recording() {
    let (said, rate) = decoded("said.flac");
    assert_eq!((said.len(), rate), (85_920, 16_000));
    for (name, rate, seconds, alike) in [
        ("said.mp3", 22_050, 2.0, 0.97),
        ("said.ogg", 44_100, 2.0, 0.97),
        ("said.m4a", 16_000, 2.0, 0.95),
        // Coded as speech is on the phone, which filters it.
        ("said.opus", 48_000, 2.0, 0.8),
        ("said.webm", 48_000, 2.0, 0.95),
        ("said_8k.wav", 8000, 2.0, 0.98),
        ("said.aiff", 8000, 1.0, 0.97),
    ] {
        let (samples, found) = decoded(name);
        assert_eq!(found, rate, "{name}");
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let length = samples.len() as f64 / 16_000.0;
        // Coders fill up their last block.
        assert!((seconds - 0.01..seconds + 0.2).contains(&length), "{name}: {length}");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let expected = &said[..(seconds * 16_000.0) as usize];
        let found = likeness(&samples, expected);
        assert!(found > alike, "{name}: {found}");
    }
}

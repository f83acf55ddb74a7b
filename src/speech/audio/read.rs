//! A whole file, piece by piece, to the samples that models hear.

use bytes::Bytes;

use super::resample::Resampler;
use super::{AudioError, SAMPLE_RATE, SoundFile};

/// Seconds of sound below which nothing is heard.
const LEAST_SECONDS: f64 = 0.1;

/// Hands the samples of a file to `sink`, 16 000 a second, and gives its seconds; `None` if `stop` turned true.
///
/// # Errors
/// The file can't be decoded, or it has less than a tenth of a second of sound or more than `most_seconds`.
pub fn read(
    file: Bytes,
    most_seconds: u64,
    stop: &dyn Fn() -> bool,
    sink: &mut dyn FnMut(&[f32]),
) -> Result<Option<f64>, AudioError> {
    let mut file = SoundFile::open(file)?;
    let (mut resampler, mut taken) = (None, 0);
    let mut take = |samples: &[f32]| {
        taken += samples.len();
        sink(samples);
        taken
    };
    let check = |taken: usize, found| {
        let (seconds, most) = (seconds(taken), most_seconds);
        let too_long = taken as u64 > most * SAMPLE_RATE as u64;
        if too_long { Err(AudioError::TooLong { found, seconds, most }) } else { Ok(seconds) }
    };
    let mut count = 0;
    while let Some(piece) = file.read()? {
        if stop() {
            return Ok(None);
        }
        let resampler = resampler.get_or_insert_with(|| Resampler::new(piece.rate));
        resampler.push(piece.samples, |samples| count = take(samples));
        check(count, "more than ")?;
    }
    if let Some(resampler) = resampler {
        resampler.finish(|samples| count = take(samples));
    }
    let seconds = check(count, "")?;
    if seconds < LEAST_SECONDS {
        return Err(AudioError::TooShort { seconds, least: LEAST_SECONDS });
    }
    Ok(Some(seconds))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn seconds(samples: usize) -> f64 {
    samples as f64 / SAMPLE_RATE as f64
}

//! How a checkpoint's feature extractor makes features of a sound. `families` reads what its files say.

use std::cell::Cell;

use bytes::Bytes;

use super::sound::Sound;
use crate::speech::audio::read::read;
use crate::speech::audio::{AudioError, SAMPLE_RATE};
use crate::speech::features::{HOP, Listener};

/// A feature extractor, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The token that a template leaves for a sound, and that stands for each token of one.
    pub sound_token_id: u32,
    /// What stands around that token where a template doesn't know sounds.
    pub around: [&'static str; 2],
    /// Numbers of a log-mel vector.
    pub mels: usize,
    /// How sounds are padded, and how many tokens they take.
    pub rule: Rule,
}

/// How sounds are padded, and how many tokens they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// With silence to whole windows of so many vectors, all of which are heard; a window takes so many
    /// tokens.
    Windows {
        /// Vectors of a window.
        frames: usize,
        /// Tokens of a window.
        tokens: usize,
    },
    /// With silence to one window of so many vectors, which no sound may be longer than; of the vectors of the
    /// sound itself every second one, rounded up, is a position, and two positions are a token.
    Window {
        /// Vectors of the window.
        frames: usize,
    },
    /// Sounds that are shorter than so many samples with silence to that length. Of a chunk of vectors every
    /// eighth one, rounded up, takes a token.
    Chunks {
        /// Samples that there are at least.
        samples: usize,
        /// Vectors of a chunk.
        frames: usize,
    },
}

/// How much of a sound is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most seconds of a file.
    pub seconds: u64,
    /// Most tokens.
    pub tokens: usize,
}

/// Why a sound can't be heard; the text is for the client that sent it.
#[derive(Debug, thiserror::Error)]
pub enum SoundError {
    /// The file is not what it should be.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// The sound is longer than the model's only window.
    #[error("{0}: the model hears no more")]
    Window(AudioError),
    /// The sound doesn't fit the prompt.
    #[error("the sound takes more than {0} tokens, which is all that fit the context")]
    Context(usize),
}

/// Why a checkpoint's feature extractor can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: `{field}` is {value}, {bound}")]
pub struct ProcessorError {
    pub(super) file: &'static str,
    pub(super) field: &'static str,
    pub(super) value: String,
    pub(super) bound: String,
}

impl Rule {
    /// Samples that a sound of so many is padded to.
    fn padded(self, samples: usize) -> usize {
        match self {
            Self::Windows { frames, .. } | Self::Window { frames } => {
                samples.next_multiple_of(frames * HOP)
            }
            Self::Chunks { samples: least, .. } => samples.max(least),
        }
    }

    /// Vectors that are heard of a sound of so many samples.
    fn heard(self, samples: usize) -> usize {
        match self {
            Self::Windows { .. } | Self::Chunks { .. } => self.padded(samples) / HOP,
            Self::Window { .. } => samples.div_ceil(HOP),
        }
    }

    /// Tokens of a sound of so many samples.
    fn tokens(self, samples: usize) -> usize {
        let heard = self.heard(samples);
        match self {
            Self::Windows { frames, tokens } => heard / frames * tokens,
            Self::Window { .. } => heard.div_ceil(2) / 2,
            Self::Chunks { frames, .. } => {
                heard / frames * frames.div_ceil(8) + (heard % frames).div_ceil(8)
            }
        }
    }
}

impl Processor {
    /// Decodes a file and makes its features.
    ///
    /// # Errors
    ///
    /// See [`read`]; a sound that is longer than the model hears, or takes more than `bounds.tokens`.
    pub fn read(&self, file: Bytes, bounds: Bounds) -> Result<Sound, SoundError> {
        let Bounds { seconds, tokens: most } = bounds;
        let window = match self.rule {
            Rule::Window { frames } => (frames * HOP / SAMPLE_RATE) as u64,
            Rule::Windows { .. } | Rule::Chunks { .. } => u64::MAX,
        };
        let (mut listener, taken) = (Listener::new(self.mels), Cell::new(0));
        let too_many = || self.rule.tokens(taken.get()) > most;
        let mut sink = |samples: &[f32]| {
            taken.set(taken.get() + samples.len());
            listener.push(samples);
        };
        match read(file, seconds.min(window), &too_many, &mut sink) {
            Ok(Some(_)) if !too_many() => {}
            Ok(_) => return Err(SoundError::Context(most)),
            Err(error @ AudioError::TooLong { .. }) if window < seconds => {
                return Err(SoundError::Window(error));
            }
            Err(error) => return Err(error.into()),
        }
        let samples = taken.get();
        let silence = [0.0; HOP];
        let mut missing = self.rule.padded(samples) - samples;
        while missing > 0 {
            let some = missing.min(HOP);
            listener.push(&silence[..some]);
            missing -= some;
        }
        let features = listener.finish();
        Ok(Sound::new(features, self.rule.heard(samples), self.rule.tokens(samples)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_as_the_encoders_count_positions() {
        let windows = Rule::Windows { frames: 3000, tokens: 375 };
        let tokens = |rule: Rule, seconds: &[f64]| {
            let samples = seconds.iter().map(|seconds| (seconds * 16_000.0).round());
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            samples.map(|samples| rule.tokens(samples as usize)).collect::<Vec<_>>()
        };
        assert_eq!(tokens(windows, &[0.1, 30.0, 30.1, 61.0]), [375, 375, 750, 1125]);
        let window = Rule::Window { frames: 3000 };
        assert_eq!(tokens(window, &[0.1, 0.11, 1.0, 30.0]), [2, 3, 25, 750]);
        let chunks = Rule::Chunks { samples: 8000, frames: 100 };
        assert_eq!(tokens(chunks, &[0.1, 0.5, 1.0, 1.01, 8.5]), [7, 7, 13, 14, 111]);
    }
}

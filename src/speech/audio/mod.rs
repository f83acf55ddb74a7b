//! Files of sound to samples as a speech model hears them: one channel, 16 000 a second, -1 to 1.
//!
//! [`decode`] opens a file and hands out its samples piece by piece, [`resample`] changes their rate, and
//! [`read`] does both within bounds. No file is ever decoded whole: a small file may hold hours.

pub mod decode;
pub mod error;
mod opus;
pub mod read;
pub mod resample;

pub use decode::SoundFile;
pub use error::AudioError;

/// Samples of a second that models hear.
pub const SAMPLE_RATE: usize = candle_transformers::models::whisper::SAMPLE_RATE;

//! Why a file is not taken for sound.

/// What is wrong with a file; every message names the value and the bound.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// No known container.
    #[error("the file is in no format that is read here: {}", FORMATS)]
    UnknownFormat,
    /// A container without sound in it.
    #[error("the file has no track of sound")]
    NoTrack,
    /// A codec that nothing here decodes.
    #[error("the sound is coded as {0}, which is not decoded here: {FORMATS} are")]
    UnknownCodec(String),
    /// The file says how it was recorded, and nobody records so.
    #[error("the file has {found} {what}, it must have {least} to {most}")]
    OutOfRange {
        /// What there is too much or too little of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// The least there may be.
        least: usize,
        /// The most there may be.
        most: usize,
    },
    /// The file breaks off or makes no sense.
    #[error("the file can't be decoded {place}: {reason}")]
    Broken {
        /// After how much sound.
        place: String,
        /// What the decoder says.
        reason: String,
    },
    /// The rate or the channels change within the file.
    #[error("the file changes its sample rate or its channels after {0:.1} s")]
    Changes(f64),
    /// A sample is no number.
    #[error("the file has a sample that is no finite number, after {0:.3} s")]
    NotFinite(f64),
    /// There is more sound than a request may have.
    #[error("the file has {found}{seconds:.0} s of sound, at most {most} s are taken")]
    TooLong {
        /// `more than `, where decoding ended there.
        found: &'static str,
        /// Seconds in the file.
        seconds: f64,
        /// Seconds that are taken.
        most: u64,
    },
    /// There is too little sound to hear anything.
    #[error("the file has {seconds:.4} s of sound, it must have at least {least} s")]
    TooShort {
        /// Seconds in the file.
        seconds: f64,
        /// Seconds that there must be.
        least: f64,
    },
}

/// What files may be.
pub const FORMATS: &str = "wav, aiff, flac, mp3, ogg with Opus, Vorbis or FLAC, webm and mkv with \
                           Opus or Vorbis, m4a and mp4 with AAC or ALAC, adts";

//! How speech is transcribed.

/// Bounds of transcriptions, and what they run with; every value is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeechConfig {
    /// Threads that compute; `None` takes one for each processor. They give way to answers.
    pub threads: Option<usize>,
    /// Most seconds of sound in a file.
    pub max_seconds: u64,
    /// Most bytes of a file.
    pub max_file_bytes: usize,
    /// Files that may wait beside the one that is transcribed; one more is answered 429.
    pub max_queued: usize,
    /// Bytes of files that may be there at once, at least those of one; more are answered 429.
    pub max_queued_bytes: usize,
}

impl Default for SpeechConfig {
    fn default() -> Self {
        Self {
            threads: None,
            max_seconds: 2 * 60 * 60,
            max_file_bytes: 128 << 20,
            max_queued: 16,
            max_queued_bytes: 512 << 20,
        }
    }
}

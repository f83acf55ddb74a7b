//! What speech did.

use std::time::Duration;

use super::{MetricsHandle, as_value};

impl MetricsHandle {
    /// Files that wait to be transcribed or are.
    pub fn set_speech_load(&self, files: usize) {
        self.metrics.speech_files.set(as_value(files));
    }

    /// A request for a transcript was answered: `task` and `outcome` are from short lists.
    pub fn speech_answered(&self, task: &'static str, outcome: &'static str) {
        let labels = [("task", task.into()), ("outcome", outcome.into())];
        self.metrics.speech_requests.with(&labels).increment(1);
    }

    /// A file was worked at for so long, and had so many seconds of sound that were transcribed.
    pub fn speech_worked(&self, took: Duration, seconds: f64) {
        self.metrics.speech_time.record(took);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few seconds")]
        self.metrics.speech_audio_milliseconds.increment((seconds * 1000.0).round() as u64);
    }
}

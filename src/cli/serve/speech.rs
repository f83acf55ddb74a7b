//! The flags of speech: which model transcribes, and how much of it there may be.

use super::byte_size::ByteSize;
use crate::app::choice::SpeechChoice;
use crate::config::SpeechConfig;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Speech")]
pub(super) struct SpeechArgs {
    /// A Whisper that transcribes beside the model, at a low priority: a hub id or a folder. As --model it is
    /// served alone.
    #[arg(long, value_name = "MODEL")]
    speech_model: Option<String>,
    /// Name that requests use for it; repeat for aliases, such as whisper-1 [default: its own].
    #[arg(long, value_name = "NAME", requires = "speech_model")]
    served_speech_model_name: Vec<String>,
    /// Threads that transcribe [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    speech_threads: Option<u16>,
    /// Largest file of sound.
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    max_audio_size: ByteSize,
    /// Most seconds of sound in a file.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    max_audio_seconds: u64,
    /// Files that may wait to be transcribed; one more is answered 429.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10_000))]
    max_queued_audio: usize,
    /// Bytes of files that may wait; more are answered 429.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    max_queued_audio_size: ByteSize,
}

impl SpeechArgs {
    /// Most bytes and seconds of a file of sound.
    pub(super) fn bounds(&self) -> (usize, u64) {
        (self.max_audio_size.0, self.max_audio_seconds)
    }

    /// Which model transcribes, and how; `threads` is for all computation.
    pub(super) fn choice(&self, threads: Option<u16>) -> SpeechChoice {
        SpeechChoice {
            model: self.speech_model.clone(),
            names: self.served_speech_model_name.clone(),
            config: SpeechConfig {
                threads: self.speech_threads.or(threads).map(usize::from),
                max_seconds: self.max_audio_seconds,
                max_file_bytes: self.max_audio_size.0,
                max_queued: self.max_queued_audio,
                max_queued_bytes: self.max_queued_audio_size.0,
            },
        }
    }
}

//! The thread that transcribes, one file at a time, and the way to it.
//!
//! It never stalls token streams: nothing of it runs on the engine's thread or its team, and its own
//! threads have a low priority, so that they get the processor's time that answers leave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use candle_core::Device;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;
use tokio::sync::mpsc;

use super::error::{LoadError, SpeechError};
use super::features::other_features;
use super::marks::Marks;
use super::model::Whisper;
use super::model::config::Config;
use super::transcriber::{Options, Segment, Summary, Transcriber};
use crate::config::SpeechConfig;
use crate::metrics::MetricsHandle;
use crate::text::tokenizer::Tokenizer;
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;

/// What a thread of speech gives way by: with as many threads of both kinds on a core, answers get nine
/// tenths of its time.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// What a request is told, in order; the last is [`Event::Done`] or [`Event::Failed`].
#[derive(Debug)]
pub enum Event {
    /// A part of the transcript.
    Segment(Box<Segment>),
    /// There are no more.
    Done(Summary),
    /// There is no transcript, or no more of it.
    Failed(SpeechError),
}

/// One file to transcribe.
struct Job {
    file: Bytes,
    options: Options,
    events: mpsc::UnboundedSender<Event>,
}

/// A cloneable way to the thread, which ends when the last one is gone.
#[derive(Clone)]
pub struct SpeechHandle {
    jobs: mpsc::UnboundedSender<Job>,
    transcriber: Arc<Transcriber>,
}

impl std::fmt::Debug for SpeechHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SpeechHandle").finish_non_exhaustive()
    }
}

impl SpeechHandle {
    /// Loads the model that `source` describes and starts its thread.
    ///
    /// # Errors
    /// The files make no model that is computed here.
    pub fn start(
        source: &ModelSource,
        tokenizer: Arc<Tokenizer>,
        config: &SpeechConfig,
        metrics: MetricsHandle,
        progress: ProgressSink,
    ) -> Result<Self, LoadError> {
        let shape = Config::from_json(&source.config)?;
        check_processor(source.processor_config.as_ref(), shape.shape.num_mel_bins)?;
        let generation = source.generation_config.as_ref().unwrap_or(&Value::Null);
        let marks = Marks::read(&shape, [generation, &source.config], &tokenizer)?;
        let weights = source.weights(&Device::Cpu).with_progress(progress);
        let network = Whisper::load(&weights, shape)?;
        source.release_pages();
        let transcriber = Transcriber::new(network, marks, tokenizer, config.max_seconds);
        let transcriber = Arc::new(transcriber);
        let pool = pool(config.threads)?;
        let (jobs, receiver) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("speech".to_owned());
        let own = Arc::clone(&transcriber);
        thread
            .spawn(move || work(&own, &pool, receiver, &metrics))
            .map_err(|error| LoadError::Threads(error.to_string()))?;
        Ok(Self { jobs, transcriber })
    }

    /// Queues a file. Dropping the receiver ends its transcription.
    pub fn submit(&self, file: Bytes, options: Options) -> mpsc::UnboundedReceiver<Event> {
        let (events, receiver) = mpsc::unbounded_channel();
        if let Err(unsent) = self.jobs.send(Job { file, options, events }) {
            let error = SpeechError::Internal("its thread has ended".to_owned());
            // The receiver is still here.
            let _ = unsent.0.events.send(Event::Failed(error));
        }
        receiver
    }

    /// Whether files are still transcribed.
    pub fn is_running(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// The model, for what can be known of a request before it is queued.
    pub fn transcriber(&self) -> &Transcriber {
        &self.transcriber
    }
}

/// Transcribes until there are no handles.
fn work(
    transcriber: &Transcriber,
    pool: &ThreadPool,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    metrics: &MetricsHandle,
) {
    give_way();
    while let Some(Job { file, options, events }) = jobs.blocking_recv() {
        if events.is_closed() {
            continue;
        }
        let began = Instant::now();
        let stop = || events.is_closed();
        let mut sink = |segment| drop(events.send(Event::Segment(Box::new(segment))));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| transcriber.transcribe(file, &options, &stop, &mut sink))
        }));
        let ended = ended.unwrap_or_else(|_| {
            tracing::error!("a transcription panicked; the next one begins anew");
            Err(SpeechError::Internal("the transcription panicked".to_owned()))
        });
        metrics.speech_worked(began.elapsed(), ended.as_ref().map_or(0.0, |ended| ended.seconds));
        let last = ended.map_or_else(Event::Failed, Event::Done);
        // Nobody may wait any more.
        let _ = events.send(last);
    }
}

/// Threads for the products of matrices, of a low priority.
fn pool(threads: Option<usize>) -> Result<ThreadPool, LoadError> {
    let usual = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or_else(usual))
        .thread_name(|index| format!("speech {index}"))
        .start_handler(|_| give_way())
        .build()
        .map_err(|error| LoadError::Threads(error.to_string()))
}

/// Makes the calling thread give way to others. Only Linux knows priorities of single threads by this call;
/// elsewhere it would be the whole process that gives way.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "speech runs at the priority of answers");
    }
}

/// Refuses a model whose features are made in another way than Whisper's.
fn check_processor(processor: Option<&Value>, mels: usize) -> Result<(), LoadError> {
    match processor.and_then(|processor| other_features(processor, mels)) {
        Some((name, found, wanted)) => Err(LoadError::Config(format!(
            "preprocessor_config.json: {name} is {found}, it must be {wanted}"
        ))),
        None => Ok(()),
    }
}

//! From a file of sound to segments of text: window after window of 30 s, each of which begins where the
//! one before says that it stopped understanding.
//!
//! The algorithm is that of the reference code's `transcribe` (section 3.8 of the paper), which transformers
//! calls long-form generation: timestamps always, each window told of the text before it, windows without
//! speech left out, failures written again at higher temperatures.

use std::sync::Arc;

use bytes::Bytes;
use candle_transformers::models::whisper::TEMPERATURES;

use super::alignment::ends_of_tokens;
use super::audio::read::read;
use super::error::SpeechError;
use super::features::{Features, Listener};
use super::languages;
use super::marks::{Marks, Task};
use super::model::{Heard, Whisper};
use super::rules::log_sum_exp;
use super::segments::{Part, SECONDS_OF_FRAME, divide};
use super::window::{Thresholds, Writer, Written, compression_ratio, likeliest, with_fallback};
use super::words::words;
use crate::text::tokenizer::Tokenizer;

/// A window written hotter than this says nothing to the next.
const WARM: f64 = 0.5;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What to do with what was said.
    pub task: Task,
    /// The code of the language that is spoken; `None` is found out.
    pub language: Option<&'static str>,
    /// A text that the transcript is to look like a continuation of.
    pub prompt: Option<String>,
    /// 0 for the likeliest tokens, and higher ones where that fails; else how tokens are drawn.
    pub temperature: f64,
    /// What makes draws differ.
    pub seed: u64,
    /// Whether to find out when each word was said.
    pub words: bool,
    /// Whether each window is told of the text before it.
    pub condition_on_previous: bool,
    /// When a window counts as a failure.
    pub thresholds: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            task: Task::Transcribe,
            language: None,
            prompt: None,
            temperature: 0.0,
            seed: 0,
            words: false,
            condition_on_previous: true,
            thresholds: Thresholds::default(),
        }
    }
}

/// A stretch of speech. Times are seconds after the file's start.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Counts from 0.
    pub id: usize,
    /// Feature vectors before the window that it was heard in, a hundred a second.
    pub seek: usize,
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// What was said, with the space before it.
    pub text: String,
    /// Its tokens, with those that are times.
    pub tokens: Vec<u32>,
    /// Each token of text and the logarithm of its probability.
    pub log_probabilities: Vec<(u32, f32)>,
    /// Its words, where they were asked for.
    pub words: Vec<TimedWord>,
    /// How the window's tokens were chosen.
    pub temperature: f64,
    /// The mean log probability of the window's tokens.
    pub mean_log_probability: f64,
    /// Of the window's text.
    pub compression_ratio: f64,
    /// The probability that nobody spoke in the window.
    pub no_speech: f64,
}

/// A word and when it was said.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedWord {
    /// Without spaces around it.
    pub text: String,
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// What is known of a file at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The code of the language that was spoken.
    pub language: &'static str,
    /// Seconds of sound.
    pub seconds: f64,
}

/// A model with everything that belongs to it.
pub struct Transcriber {
    network: Whisper,
    marks: Marks,
    tokenizer: Arc<Tokenizer>,
    /// Most seconds of sound in a file.
    most_seconds: u64,
}

/// One file on its way.
struct Run<'a> {
    options: &'a Options,
    stop: &'a dyn Fn() -> bool,
    features: Features,
    seconds: f64,
    /// Tokens of the request's prompt.
    prompt: Vec<u32>,
    /// Tokens of the text so far that windows are told of.
    history: Vec<u32>,
    language: Option<&'static str>,
    /// Where the window starts, in feature vectors.
    seek: usize,
    segments: usize,
}

impl Transcriber {
    /// A transcriber that takes up to `most_seconds` of sound at a time.
    pub fn new(
        network: Whisper,
        marks: Marks,
        tokenizer: Arc<Tokenizer>,
        most_seconds: u64,
    ) -> Self {
        Self { network, marks, tokenizer, most_seconds }
    }

    /// The tokens that stand for no text.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The network.
    pub fn network(&self) -> &Whisper {
        &self.network
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Tokens that the decoder has room for: before a window's text, and of it.
    pub fn context(&self) -> usize {
        self.network.config().shape.max_target_positions
    }

    /// Checks what can be checked without hearing anything.
    ///
    /// # Errors
    /// The model lacks the language or the task, or the prompt has tokens that are no text.
    pub fn check(&self, options: &Options) -> Result<(), SpeechError> {
        let marks = &self.marks;
        if options.task == Task::Translate && marks.tasks.is_none() {
            let reason = "the model knows one language and doesn't translate".to_owned();
            return Err(SpeechError::Field("model", reason));
        }
        if let Some(code) = options.language
            && marks.language(code).is_none()
            && (marks.is_multilingual() || code != "en")
        {
            let known = if marks.is_multilingual() {
                let known = marks.languages.iter().map(|(code, _)| code.as_str());
                known.collect::<Vec<_>>().join(", ")
            } else {
                "en".to_owned()
            };
            let reason = format!("language: the model doesn't know {code:?}, it knows {known}");
            return Err(SpeechError::Field("language", reason));
        }
        self.prompt_tokens(options).map(drop)
    }

    /// Transcribes a file; `sink` gets each segment when it is there. Ends early once `stop` says so.
    ///
    /// # Errors
    /// As [`SpeechError`] says.
    pub fn transcribe(
        &self,
        file: Bytes,
        options: &Options,
        stop: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(Segment),
    ) -> Result<Summary, SpeechError> {
        let (features, seconds) = self.listen(file, stop)?;
        let mut run = Run {
            options,
            stop,
            features,
            seconds,
            prompt: self.prompt_tokens(options)?,
            history: Vec::new(),
            language: options.language,
            seek: 0,
            segments: 0,
        };
        while run.seek < run.features.frames() {
            self.hear_window(&mut run, sink)?;
        }
        Ok(Summary { language: run.language.unwrap_or("en"), seconds })
    }

    /// Decodes a file to features, and says how long it is.
    fn listen(&self, file: Bytes, stop: &dyn Fn() -> bool) -> Result<(Features, f64), SpeechError> {
        let mut listener = Listener::new(self.network.config().shape.num_mel_bins);
        let seconds = read(file, self.most_seconds, stop, &mut |samples| listener.push(samples))?;
        Ok((listener.finish(), seconds.ok_or(SpeechError::Stopped)?))
    }

    /// Writes one window and moves on to the next.
    fn hear_window(
        &self,
        run: &mut Run<'_>,
        sink: &mut dyn FnMut(Segment),
    ) -> Result<(), SpeechError> {
        let window = self.network.config().window();
        let frames = (run.features.frames() - run.seek).min(window);
        let states = self.network.encode(run.features.window(run.seek, window), run.stop)?;
        let heard = self.network.hear(&states.ok_or(SpeechError::Stopped)?)?;
        let language = match run.language {
            Some(language) => language,
            None => *run.language.insert(self.detect_language(&heard)?),
        };
        let (prompt, start) = self.tokens_before(run, language);
        let thresholds = &run.options.thresholds;
        let temperature = [run.options.temperature];
        let temperatures: &[f64] =
            if run.options.temperature > 0.0 { &temperature } else { &TEMPERATURES };
        let written = with_fallback(temperatures, thresholds, |temperature| {
            let seed = [run.options.seed, run.seek as u64, temperature.to_bits()];
            self.write(
                &heard,
                &prompt,
                start,
                Writer::new(&self.marks, temperature, seed),
                run.stop,
            )
        })?;
        if written.is_silence(thresholds) {
            run.seek += frames;
            return Ok(());
        }
        let division = divide(&self.marks, &written.tokens, frames);
        let ends = run.options.words.then(|| self.ends_of(&written, &prompt, &heard, run, frames));
        let ends = ends.transpose()?;
        for part in &division.parts {
            if let Some(segment) = self.segment(run, &written, part, ends.as_deref(), language) {
                run.history.extend_from_slice(&segment.tokens);
                run.segments += 1;
                sink(segment);
            }
        }
        if !run.options.condition_on_previous || written.temperature > WARM {
            run.history.clear();
        }
        run.seek += division.next;
        Ok(())
    }

    /// The language that the window is spoken in.
    fn detect_language(&self, heard: &Heard) -> Result<&'static str, SpeechError> {
        if !self.marks.is_multilingual() {
            return Ok("en");
        }
        let mut past = self.network.begin();
        let logits = self.network.logits(&[self.marks.start], &mut past, heard, &[0])?.remove(0);
        let of =
            self.marks.languages.iter().map(|(_, id)| logits[*id as usize]).collect::<Vec<_>>();
        let (code, _) = &self.marks.languages[likeliest(&of) as usize];
        languages::code_of(code).ok_or_else(|| {
            SpeechError::Internal(format!("the model heard a language that isn't known: {code:?}"))
        })
    }

    /// The tokens before the window's text, and the place among them that begins it.
    fn tokens_before(&self, run: &Run<'_>, language: &str) -> (Vec<u32>, usize) {
        let marks = &self.marks;
        let mut tokens = Vec::new();
        let told: Vec<u32> = run.prompt.iter().chain(&run.history).copied().collect();
        if let Some(previous) = marks.previous.filter(|_| !told.is_empty()) {
            let most = self.network.config().shape.max_target_positions / 2 - 1;
            tokens.push(previous);
            tokens.extend_from_slice(&told[told.len().saturating_sub(most)..]);
        }
        let start = tokens.len();
        tokens.push(marks.start);
        tokens.extend(marks.language(language));
        if let Some([transcribe, translate]) = marks.tasks {
            tokens.push(match run.options.task {
                Task::Transcribe => transcribe,
                Task::Translate => translate,
            });
        }
        (tokens, start)
    }

    /// Writes a window's text once.
    fn write(
        &self,
        heard: &Heard,
        prompt: &[u32],
        start: usize,
        mut writer: Writer<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Written, SpeechError> {
        // Half of the positions are for the text before and the marks behind it, even if there is none.
        let most = self.network.config().shape.max_target_positions / 2 - 4;
        let mut past = self.network.begin();
        let place = |at: usize| u32::try_from(at).expect("prompts are short");
        let wanted = [place(start), place(prompt.len() - 1)];
        let mut rows = self.network.logits(prompt, &mut past, heard, &wanted)?;
        let mut logits = rows.remove(1);
        let at_start = &rows[0];
        let no_speech = f64::from(at_start[self.marks.no_speech as usize]) - log_sum_exp(at_start);
        let ended = loop {
            if logits.iter().any(|logit| logit.is_nan()) {
                let reason = "the model's logits are no numbers".to_owned();
                return Err(SpeechError::Internal(reason));
            }
            let Some(token) = writer.next(logits) else { break true };
            if writer.tokens().len() == most {
                break false;
            }
            if stop() {
                return Err(SpeechError::Stopped);
            }
            logits = self.network.logits(&[token], &mut past, heard, &[0])?.remove(0);
        };
        let text = self.text(writer.tokens());
        let ratio = compression_ratio(text.trim());
        Ok(writer.finish(ended, no_speech.exp(), ratio))
    }

    /// The text of tokens, without those that are none.
    fn text(&self, tokens: &[u32]) -> String {
        let text: Vec<u32> =
            tokens.iter().copied().filter(|token| self.marks.is_text(*token)).collect();
        self.tokenizer.decode(&text, true)
    }

    /// When each token of a window ends, in seconds after the window's start.
    fn ends_of(
        &self,
        written: &Written,
        prompt: &[u32],
        heard: &Heard,
        run: &Run<'_>,
        frames: usize,
    ) -> Result<Vec<f64>, SpeechError> {
        if (run.stop)() {
            return Err(SpeechError::Stopped);
        }
        // The last token of a text that was cut off was never read.
        let read = written.tokens.len() - usize::from(!written.ended);
        let tokens = [prompt, &written.tokens[..read]].concat();
        let mut looks = self.network.looks(&tokens, heard, &self.marks.alignment_heads)?;
        for head in &mut looks.heads {
            head.drain(..prompt.len());
        }
        let config = self.network.config();
        let positions = (frames / 2).min(config.shape.max_source_positions);
        Ok(ends_of_tokens(&looks, written.tokens.len(), positions, config.median_filter_width))
    }

    /// A part of a window as a segment, if anything was said in it.
    fn segment(
        &self,
        run: &Run<'_>,
        written: &Written,
        part: &Part,
        ends: Option<&[f64]>,
        language: &str,
    ) -> Option<Segment> {
        let tokens = &written.tokens[part.tokens.clone()];
        let text = self.text(tokens);
        if text.trim().is_empty() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let offset = run.seek as f64 * SECONDS_OF_FRAME;
        let within = |seconds: f64| (offset + seconds).min(run.seconds);
        let log_probabilities = part.tokens.clone().filter_map(|at| {
            let token = written.tokens[at];
            self.marks.is_text(token).then_some((token, written.log_probabilities[at]))
        });
        let words = ends.map(|ends| {
            // A part of a word has the start of its first token, which is the end of the one before.
            let start = |at: usize| at.checked_sub(1).map_or(0.0, |before| ends[before]);
            let places: Vec<usize> =
                part.tokens.clone().filter(|at| self.marks.is_text(written.tokens[*at])).collect();
            let text: Vec<u32> = places.iter().map(|at| written.tokens[*at]).collect();
            let timed = words(&self.tokenizer, &text, languages::has_spaces(language));
            let timed = timed.into_iter().filter_map(|word| {
                let (first, last) = (*word.tokens.first()?, *word.tokens.last()?);
                Some(TimedWord {
                    text: word.text.trim().to_owned(),
                    start: within(start(places[first])),
                    end: within(ends[places[last]]),
                })
            });
            timed.filter(|word| !word.text.is_empty()).collect()
        });
        Some(Segment {
            id: run.segments,
            seek: run.seek,
            start: within(part.start),
            end: within(part.end),
            text,
            tokens: tokens.to_vec(),
            log_probabilities: log_probabilities.collect(),
            words: words.unwrap_or_default(),
            temperature: written.temperature,
            mean_log_probability: written.mean_log_probability,
            compression_ratio: written.compression_ratio,
            no_speech: written.no_speech,
        })
    }

    /// The tokens of the request's prompt.
    fn prompt_tokens(&self, options: &Options) -> Result<Vec<u32>, SpeechError> {
        let Some(prompt) = options.prompt.as_ref().filter(|prompt| !prompt.trim().is_empty())
        else {
            return Ok(Vec::new());
        };
        if self.marks.previous.is_none() {
            let reason = "prompt: the model has no token that stands before one".to_owned();
            return Err(SpeechError::Field("prompt", reason));
        }
        let tokens = self.tokenizer.encode_plain(&format!(" {}", prompt.trim()));
        tokens.map_err(|error| SpeechError::Field("prompt", format!("prompt: {error}")))
    }
}

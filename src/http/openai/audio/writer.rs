//! A transcript as the request wants it.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::input::{Asked, Format};
use super::subtitles;
use crate::http::wire::audio::{
    DurationUsage, Transcript, TranscriptLogprob, TranscriptSegment, TranscriptWord,
    VerboseTranscript,
};
use crate::speech::languages;
use crate::speech::marks::Task;
use crate::speech::transcriber::{Segment, Summary};
use crate::text::tokenizer::Tokenizer;

/// The whole transcript.
pub(super) fn whole(
    asked: &Asked,
    tokenizer: &Tokenizer,
    segments: Vec<Segment>,
    summary: Summary,
) -> Response {
    match asked.format {
        Format::Json => axum::Json(Transcript {
            text: text(&segments),
            logprobs: asked.logprobs.then(|| {
                segments.iter().flat_map(|segment| logprobs(tokenizer, segment)).collect()
            }),
            usage: usage(asked, summary),
        })
        .into_response(),
        Format::VerboseJson => axum::Json(verbose(asked, segments, summary)).into_response(),
        Format::Text => plain("text/plain; charset=utf-8", text(&segments) + "\n"),
        Format::Srt => plain("application/x-subrip; charset=utf-8", subtitles::srt(&segments)),
        Format::Vtt => plain("text/vtt; charset=utf-8", subtitles::vtt(&segments)),
    }
}

/// What was said in all segments.
pub(super) fn text(segments: &[Segment]) -> String {
    let all: String = segments.iter().map(|segment| segment.text.as_str()).collect();
    all.trim().to_owned()
}

/// How likely the tokens of a segment's text were.
pub(super) fn logprobs<'a>(
    tokenizer: &'a Tokenizer,
    segment: &'a Segment,
) -> impl Iterator<Item = TranscriptLogprob> + 'a {
    segment.log_probabilities.iter().map(|(token, logprob)| TranscriptLogprob {
        token: tokenizer.token_text(*token),
        bytes: tokenizer.token_bytes(*token),
        logprob: *logprob,
    })
}

fn verbose(asked: &Asked, segments: Vec<Segment>, summary: Summary) -> VerboseTranscript {
    let words = asked.options.words.then(|| {
        let words = segments.iter().flat_map(|segment| &segment.words);
        let word = |word: &crate::speech::transcriber::TimedWord| TranscriptWord {
            word: word.text.clone(),
            start: hundredths(word.start),
            end: hundredths(word.end),
        };
        words.map(word).collect()
    });
    let (task, code) = match asked.options.task {
        Task::Transcribe => ("transcribe", summary.language),
        Task::Translate => ("translate", "en"),
    };
    VerboseTranscript {
        task,
        language: languages::name_of(code).unwrap_or(code),
        duration: summary.seconds,
        text: text(&segments),
        segments: asked.segments.then(|| segments.into_iter().map(written).collect()),
        words,
        usage: usage(asked, summary),
    }
}

fn written(segment: Segment) -> TranscriptSegment {
    TranscriptSegment {
        id: segment.id,
        seek: segment.seek,
        start: hundredths(segment.start),
        end: hundredths(segment.end),
        text: segment.text,
        tokens: segment.tokens,
        temperature: segment.temperature,
        avg_logprob: segment.mean_log_probability,
        compression_ratio: segment.compression_ratio,
        no_speech_prob: segment.no_speech,
    }
}

/// Times are steps of two hundredths; sums of them are not quite.
fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// How much was transcribed; OpenAI's contract has it for that task alone.
fn usage(asked: &Asked, summary: Summary) -> Option<DurationUsage> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few hours")]
    let seconds = summary.seconds.ceil() as u64;
    let usage = DurationUsage { kind: "duration", seconds };
    (asked.options.task == Task::Transcribe).then_some(usage)
}

fn plain(kind: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

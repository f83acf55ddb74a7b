//! A transcript as server-sent events: each segment when it is there, and the whole text at the end.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::running::{Progress, Running};
use super::writer;
use crate::http::answer::writer::SseEvent;
use crate::http::error::ApiError;
use crate::http::wire::audio::{TranscriptEvent, TranscriptLogprob};

/// Answers with a stream. An error before the first segment is a status, if it comes before the first
/// sign of life is due.
pub(super) async fn respond(
    running: Running,
    logprobs: bool,
    keep_alive: Duration,
) -> Result<Response, ApiError> {
    let mut stream = Stream {
        running,
        logprobs: logprobs.then(Vec::new),
        text: String::new(),
        keep_alive,
        ended: false,
    };
    let mut first = match tokio::time::timeout(keep_alive, stream.running.next()).await {
        Err(_elapsed) => Some(SseEvent::comment()),
        Ok(progress) => Some(stream.event(progress?)),
    };
    let body = futures::stream::unfold(stream, move |mut stream| {
        let first = first.take();
        async move {
            let event = match first {
                Some(first) => first,
                None => stream.next().await?,
            };
            Some((Ok::<Bytes, Infallible>(Bytes::from(event.as_str().to_owned())), stream))
        }
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

struct Stream {
    running: Running,
    /// Those of all segments so far, where they are wanted.
    logprobs: Option<Vec<TranscriptLogprob>>,
    /// The text so far, as the deltas have it.
    text: String,
    keep_alive: Duration,
    ended: bool,
}

impl Stream {
    /// The next event; `None` after the last.
    async fn next(&mut self) -> Option<SseEvent> {
        if self.ended {
            return None;
        }
        let event = match tokio::time::timeout(self.keep_alive, self.running.next()).await {
            Err(_elapsed) => SseEvent::comment(),
            Ok(Ok(progress)) => self.event(progress),
            Ok(Err(error)) => {
                self.ended = true;
                SseEvent::event("error", &error.body())
            }
        };
        Some(event)
    }

    fn event(&mut self, progress: Progress) -> SseEvent {
        let event = match progress {
            Progress::Segment(segment) => {
                let said = segment.text.as_str();
                let delta = if self.text.is_empty() { said.trim_start() } else { said }.to_owned();
                self.text.push_str(&delta);
                let own: Option<Vec<TranscriptLogprob>> = self
                    .logprobs
                    .is_some()
                    .then(|| writer::logprobs(self.running.tokenizer(), &segment).collect());
                if let (Some(all), Some(own)) = (&mut self.logprobs, &own) {
                    all.extend_from_slice(own);
                }
                TranscriptEvent::Delta { delta, logprobs: own }
            }
            Progress::Done(_) => {
                self.ended = true;
                let text = std::mem::take(&mut self.text);
                TranscriptEvent::Done { text, logprobs: self.logprobs.take() }
            }
        };
        SseEvent::event(event.name(), &event)
    }
}

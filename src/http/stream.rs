//! A running request to an HTTP response: server-sent events as deltas come, or one object folded
//! from the same deltas.
//!
//! Writers make the frames; a comment is sent when nothing came for a while, so that proxies keep
//! the connection. An error after the first frame is a frame.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::answer::{AnswerWriter, Cost, Frame};
use super::delta::Folded;
use super::error::ApiError;
use super::generation::{ChoiceDelta, Generation};

/// Waits for all choices and answers with one object.
pub(crate) async fn whole(
    mut generation: Generation,
    mut writer: impl AnswerWriter,
) -> Result<Response, ApiError> {
    let mut choices = vec![Folded::default(); generation.num_choices()];
    while let Some(delta) = generation.next().await {
        let delta = delta?;
        writer.folding(&delta);
        let ChoiceDelta { index, delta } = delta;
        choices[index].add(delta);
    }
    let answer = writer.whole(choices, cost(&generation));
    Ok(axum::Json(answer).into_response())
}

/// Answers with a stream of events. An error before the first token is a status, if it comes
/// before the first comment is due.
pub(crate) async fn events(
    generation: Generation,
    writer: impl AnswerWriter,
    keep_alive: Duration,
) -> Result<Response, ApiError> {
    let frames = VecDeque::new();
    let mut stream = EventStream { frames, generation, writer, keep_alive, ended: false };
    stream.open();
    let first = tokio::time::timeout(keep_alive, stream.generation.next()).await;
    match first {
        Err(_elapsed) => stream.frames.push_back(Frame::comment()),
        Ok(Some(Err(error))) => return Err(error),
        Ok(outcome) => stream.take(outcome),
    }
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let frames = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(frames), stream))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

struct EventStream<W> {
    frames: VecDeque<Frame>,
    generation: Generation,
    writer: W,
    keep_alive: Duration,
    ended: bool,
}

impl<W: AnswerWriter> EventStream<W> {
    /// All frames that are ready, at least one; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while self.frames.is_empty() && !self.ended {
            match tokio::time::timeout(self.keep_alive, self.generation.next()).await {
                Err(_elapsed) => self.frames.push_back(Frame::comment()),
                Ok(outcome) => self.take(outcome),
            }
        }
        if self.frames.is_empty() {
            return None;
        }
        let bytes: String = self.frames.iter().map(Frame::as_str).collect();
        self.frames.clear();
        Some(Bytes::from(bytes))
    }

    fn open(&mut self) {
        self.frames.extend(self.writer.opening(cost(&self.generation)));
    }

    fn take(&mut self, outcome: Option<Result<ChoiceDelta, ApiError>>) {
        let cost = cost(&self.generation);
        match outcome {
            Some(Ok(delta)) => self.frames.extend(self.writer.delta(delta, cost)),
            Some(Err(error)) => {
                self.frames.extend(self.writer.failed(&error));
                self.ended = true;
            }
            None => {
                self.frames.extend(self.writer.closing(cost));
                self.ended = true;
            }
        }
    }
}

fn cost(generation: &Generation) -> Cost {
    Cost { usage: generation.usage(), timings: generation.timings() }
}

//! A running request to an HTTP response: server-sent events as deltas come, or one object folded
//! from the same deltas.
//!
//! Writers make the events; one that says nothing is sent when nothing came for a while, so that
//! proxies keep the connection. An error after the first event is an event.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::delta::{ChoiceDelta, CompletedChoice};
use super::generation::Generation;
use super::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::request::fields::Ignored;

/// Says how many tokens an answer may have, where they are fewer than asked for.
const MAX_TOKENS_HEADER: HeaderName = HeaderName::from_static("x-sconce-max-tokens");

/// Answers in the way the request asked for, and tells the fields that had no effect, or not all. A stream
/// shows that it lives when nothing came for `keep_alive`.
pub(crate) async fn respond(
    generation: Generation,
    writer: impl AnswerWriter,
    streams: bool,
    keep_alive: Duration,
    ignored: &Ignored,
) -> Result<Response, ApiError> {
    let shortened = generation.shortened;
    let mut response = if streams {
        events(generation, writer, keep_alive).await?
    } else {
        whole(generation, writer).await?
    };
    if let Some(max_tokens) = shortened {
        response.headers_mut().insert(MAX_TOKENS_HEADER, HeaderValue::from(max_tokens));
    }
    Ok(ignored.tell(response))
}

/// Waits for all choices and answers with one object.
async fn whole(
    mut generation: Generation,
    mut writer: impl AnswerWriter,
) -> Result<Response, ApiError> {
    let mut choices = vec![CompletedChoice::default(); generation.num_choices()];
    while let Some(delta) = generation.next().await {
        let delta = delta?;
        writer.note(&delta);
        let ChoiceDelta { index, delta } = delta;
        choices[index].add(delta);
    }
    let totals = totals(&generation);
    writer.settle(totals).await;
    let answer = writer.whole(choices, totals);
    Ok(axum::Json(answer).into_response())
}

/// Answers with a stream of events. An error before the first token is a status, if it comes
/// before the first sign of life is due.
async fn events<W: AnswerWriter>(
    generation: Generation,
    writer: W,
    keep_alive: Duration,
) -> Result<Response, ApiError> {
    let pending = VecDeque::new();
    let mut stream = EventStream { pending, generation, writer, keep_alive, ended: false };
    stream.open();
    let first = tokio::time::timeout(keep_alive, stream.generation.next()).await;
    match first {
        Err(_elapsed) => stream.keep_alive(),
        Ok(Some(Err(error))) => return Err(error),
        Ok(outcome) => stream.take(outcome).await,
    }
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let pending = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(pending), stream))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(W::CONTENT_TYPE)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

struct EventStream<W> {
    pending: VecDeque<SseEvent>,
    generation: Generation,
    writer: W,
    keep_alive: Duration,
    ended: bool,
}

impl<W: AnswerWriter> EventStream<W> {
    /// All events that are ready, at least one; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() && !self.ended {
            match tokio::time::timeout(self.keep_alive, self.generation.next()).await {
                Err(_elapsed) => self.keep_alive(),
                Ok(outcome) => self.take(outcome).await,
            }
        }
        if self.pending.is_empty() {
            return None;
        }
        let bytes: String = self.pending.iter().map(SseEvent::as_str).collect();
        self.pending.clear();
        Some(Bytes::from(bytes))
    }

    fn open(&mut self) {
        self.pending.extend(self.writer.opening(totals(&self.generation)));
    }

    fn keep_alive(&mut self) {
        self.pending.extend(self.writer.keep_alive(totals(&self.generation)));
    }

    async fn take(&mut self, outcome: Option<Result<ChoiceDelta, ApiError>>) {
        let totals = totals(&self.generation);
        match outcome {
            Some(Ok(delta)) => self.pending.extend(self.writer.delta(delta, totals)),
            Some(Err(error)) => {
                self.writer.settle_failed(&error).await;
                self.pending.extend(self.writer.failed(&error));
                self.ended = true;
            }
            None => {
                self.writer.settle(totals).await;
                self.pending.extend(self.writer.closing(totals));
                self.ended = true;
            }
        }
    }
}

fn totals(generation: &Generation) -> UsageAndTimings {
    UsageAndTimings { usage: generation.usage(), timings: generation.timings() }
}

//! `/v1/audio/transcriptions` and `/v1/audio/translations`: a form with a file to its transcript, whole or
//! segment after segment.

mod form;
mod input;
mod running;
mod stream;
mod subtitles;
mod writer;

use axum::extract::State;
use axum::extract::multipart::{Multipart, MultipartRejection};
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::state::speech::ROUTE;
use crate::speech::audio::SoundFile;
use crate::speech::marks::Task;
use input::{Asked, refused};
use running::{Progress, Running, Ticket};

/// `POST /v1/audio/transcriptions`.
pub(crate) async fn transcriptions(
    State(state): State<AppState>,
    headers: HeaderMap,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    answer(state, Task::Transcribe, &headers, form).await
}

/// `POST /v1/audio/translations`.
pub(crate) async fn translations(
    State(state): State<AppState>,
    headers: HeaderMap,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    answer(state, Task::Translate, &headers, form).await
}

async fn answer(
    state: AppState,
    task: Task,
    headers: &HeaderMap,
    form: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    let (mut running, asked) = match submit(&state, task, headers, form).await {
        Ok(submitted) => submitted,
        Err(error) => {
            state.metrics.speech_answered(running::name(task), "refused");
            return Err(error);
        }
    };
    let ignored = asked.ignored.clone();
    let response = if asked.streams {
        stream::respond(running, asked.logprobs, state.keep_alive).await?
    } else {
        let mut segments = Vec::new();
        loop {
            match running.next().await? {
                Progress::Segment(segment) => segments.push(*segment),
                Progress::Done(summary) => {
                    break writer::whole(&asked, running.tokenizer(), segments, summary);
                }
            }
        }
    };
    Ok(ignored.tell(response))
}

/// Reads and checks a request and queues its file.
async fn submit(
    state: &AppState,
    task: Task,
    headers: &HeaderMap,
    form: Result<Multipart, MultipartRejection>,
) -> Result<(Running, Asked), ApiError> {
    let Some(speech) = &state.speech else {
        let message =
            format!("{ROUTE} needs a model for speech, and none is served (--speech-model)");
        return Err(ApiError::Invalid { message, param: None, code: Some("unsupported_route") });
    };
    let deadline = Arrival::now(headers, &Extensions::new())?.deadline(None)?;
    let ticket = Ticket::take(state, speech)?;
    let form = form::read(form, speech.config.max_file_bytes, ticket.permit()).await?;
    let asked = input::read(state, speech, task, &form.fields)?;
    // What is no sound at all is told so at once, however many wait.
    let file = form.file.clone();
    off_thread(move || SoundFile::open(file).map(drop).map_err(|error| refused(&error.into())))
        .await?;
    let events = speech.handle.submit(form.file, asked.options.clone());
    Ok((Running::new(ticket, task, events, deadline), asked))
}

//! A file while it waits and is transcribed.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::input::refused;
use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::http::state::admission::Permit;
use crate::http::state::speech::SpeechService;
use crate::speech::marks::Task;
use crate::speech::room::{Event, SpeechHandle};
use crate::speech::transcriber::{Segment, Summary};
use crate::text::tokenizer::Tokenizer;

/// A place in the queue, which shows in the metrics.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Gone only while it is dropped.
    permit: Option<Permit>,
    state: AppState,
    handle: SpeechHandle,
}

impl Ticket {
    /// Takes a place, or says how full it is.
    pub(super) fn take(state: &AppState, speech: &SpeechService) -> Result<Self, ApiError> {
        let permit = speech.admit(&state.metrics)?;
        state.metrics.set_speech_load(speech.admission.in_use());
        Ok(Self { permit: Some(permit), state: state.clone(), handle: speech.handle.clone() })
    }

    /// The place itself.
    pub(super) fn permit(&self) -> &Permit {
        self.permit.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        drop(self.permit.take());
        if let Some(speech) = &self.state.speech {
            self.state.metrics.set_speech_load(speech.admission.in_use());
        }
    }
}

/// What came of a file.
#[derive(Debug)]
pub(super) enum Progress {
    /// A part of its transcript.
    Segment(Box<Segment>),
    /// The end of it.
    Done(Summary),
}

/// A file that was queued. Dropping it ends its transcription.
#[derive(Debug)]
pub(super) struct Running {
    ticket: Ticket,
    task: Task,
    events: mpsc::UnboundedReceiver<Event>,
    cut: watch::Receiver<bool>,
    /// Until when something must have come, and how long that was.
    deadline: Option<(Instant, Duration)>,
    ended: bool,
}

impl Running {
    /// A file whose events come; the first within `deadline`.
    pub(super) fn new(
        ticket: Ticket,
        task: Task,
        events: mpsc::UnboundedReceiver<Event>,
        deadline: Option<Duration>,
    ) -> Self {
        let cut = ticket.state.cut_signal();
        let deadline = deadline.map(|deadline| (Instant::now() + deadline, deadline));
        Self { ticket, task, events, cut, deadline, ended: false }
    }

    /// What tokens mean.
    pub(super) fn tokenizer(&self) -> &Tokenizer {
        self.ticket.handle.transcriber().tokenizer()
    }

    /// What comes next. Nothing does after the end or an error.
    pub(super) async fn next(&mut self) -> Result<Progress, ApiError> {
        let late = self.deadline;
        let deadline = async {
            match late {
                Some((at, _)) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = self.events.recv() => Ok(event),
            // The sender lives as long as the server.
            _ = self.cut.wait_for(|cut| *cut) => {
                let error = ApiError::Unavailable("the server is shutting down".to_owned());
                Err(("cut", error))
            }
            () = deadline => {
                let millis = late.map_or(0, |(_, deadline)| deadline.as_millis());
                let millis = u64::try_from(millis).unwrap_or(u64::MAX);
                Err(("late", ApiError::DeadlineExceeded(millis)))
            }
        };
        self.deadline = None;
        let event = event.map_err(|(outcome, error)| {
            self.end(outcome);
            error
        })?;
        match event {
            Some(Event::Segment(segment)) => Ok(Progress::Segment(segment)),
            Some(Event::Done(summary)) => {
                self.end("ok");
                Ok(Progress::Done(summary))
            }
            Some(Event::Failed(error)) => {
                let error = refused(&error);
                self.end(if error.status().is_client_error() { "refused" } else { "failed" });
                Err(error)
            }
            None => {
                self.end("failed");
                Err(ApiError::Internal("the thread for speech has ended".to_owned()))
            }
        }
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        self.ticket.state.metrics.speech_answered(name(self.task), outcome);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.end("aborted");
        }
    }
}

/// What a task is called in metrics.
pub(super) fn name(task: Task) -> &'static str {
    match task {
        Task::Transcribe => "transcribe",
        Task::Translate => "translate",
    }
}

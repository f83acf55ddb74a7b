//! The routes that transcribe, as the document tells them.

use super::routes::{Answer, Events, RUNS, Route};

pub(super) const AUDIO_ROUTES: &[Route] = &[
    Route {
        path: "/v1/audio/transcriptions",
        name: "createTranscription",
        summary: "What is said in a file of sound.",
        request: &["TranscriptionForm"],
        answer: Answer::JsonOrText("AnyTranscript"),
        events: Some(Events::Named("TranscriptEvent")),
        ..RUNS
    },
    Route {
        path: "/v1/audio/translations",
        name: "createTranslation",
        summary: "What is said in a file of sound, in English.",
        request: &["TranscriptionForm"],
        answer: Answer::JsonOrText("AnyTranscript"),
        events: Some(Events::Named("TranscriptEvent")),
        ..RUNS
    },
];

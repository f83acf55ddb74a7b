//! The routes that SGLang's routers ask, as the document tells them.

use super::routes::{Answer, OPEN, Route};

/// All of them.
pub(super) const SGLANG_ROUTES: &[Route] = &[
    Route {
        path: "/server_info",
        name: "getServerInfo",
        summary: "What is served, for SGLang's routers.",
        answer: Answer::Json("SglangServerInfo"),
        ..OPEN
    },
    Route {
        path: "/get_server_info",
        name: "getServerInfoByOldName",
        summary: "The same under its old name.",
        answer: Answer::Json("SglangServerInfo"),
        ..OPEN
    },
    Route {
        path: "/model_info",
        name: "getModelInfo",
        summary: "What the model is, for SGLang's routers.",
        answer: Answer::Json("SglangModelInfo"),
        ..OPEN
    },
    Route {
        path: "/get_model_info",
        name: "getModelInfoByOldName",
        summary: "The same under its old name.",
        answer: Answer::Json("SglangModelInfo"),
        ..OPEN
    },
    Route {
        path: "/health_generate",
        name: "healthByGenerating",
        summary: "Whether requests are welcome.",
        answer: Answer::Json("Ready"),
        guarded: false,
        ..OPEN
    },
];

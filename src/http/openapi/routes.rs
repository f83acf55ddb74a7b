//! The routes as the document tells them: one row each, and the statuses that follow from it.

use super::parameters::Parameter;
use crate::http::tei;

/// A route as the document tells it.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// What generated clients call it.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Schemas that all hold for the body; none for routes without one.
    pub(super) request: &'static [&'static str],
    /// Schema of the answer, if it ever succeeds.
    pub(super) answer: Answer,
    /// What a stream is made of, where the route can stream.
    pub(super) events: Option<Events>,
    /// What the path and the part behind the question mark hold.
    pub(super) parameters: &'static [Parameter],
    /// Whether it takes a place in the queue, and can be late.
    pub(super) runs: bool,
    /// Whether only a key of the server may call it, if it has any.
    pub(super) guarded: bool,
    /// Whether it is refused when the server is not ready, or no longer.
    pub(super) can_be_unavailable: bool,
}

/// What a request that succeeds is answered with.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// JSON of a schema.
    Json(&'static str),
    /// JSON of a schema, or bytes if the request wants those.
    JsonOrBytes(&'static str),
    /// JSON of a schema, or a transcript as text, if the request wants that.
    JsonOrText(&'static str),
    /// Bytes, as they were stored.
    Bytes,
    /// Text that Prometheus reads.
    Metrics,
    /// A sentence that says what was changed of what is served; not every server allows it.
    Changed,
    /// None succeeds.
    Never,
}

/// What the events of a stream hold.
#[derive(Clone, Copy)]
pub(super) enum Events {
    /// Each holds one of these or an error, the last `[DONE]`.
    Chunks(&'static str),
    /// Each has a name, which is the type of the object that it holds.
    Named(&'static str),
    /// Each is a line that is one of these or an error in Ollama's shape.
    Lines(&'static str),
}

/// A route that needs a key and nothing else.
pub(super) const OPEN: Route = Route {
    method: "get",
    path: "",
    name: "",
    summary: "",
    request: &[],
    answer: Answer::Never,
    events: None,
    parameters: &[],
    runs: false,
    guarded: true,
    can_be_unavailable: true,
};

/// A route that asks the model.
pub(super) const RUNS: Route =
    Route { method: "post", parameters: &[Parameter::Deadline], runs: true, ..OPEN };

/// A route that changes what is served.
const CHANGES: Route = Route { method: "post", answer: Answer::Changed, ..OPEN };

/// A route that only counts or renders.
const COUNTS: Route = Route { method: "post", parameters: &[Parameter::Deadline], ..OPEN };

pub(super) const ROUTES: &[Route] = &[
    Route {
        path: "/v1/chat/completions",
        name: "createChatCompletion",
        summary: "Answer a conversation.",
        request: &["ChatCompletionRequest", "SamplingFields", "SearchLimits"],
        answer: Answer::Json("ChatCompletion"),
        events: Some(Events::Chunks("ChatCompletionChunk")),
        ..RUNS
    },
    Route {
        path: "/v1/chat/completions/render",
        name: "renderChatCompletion",
        summary: "The prompt that a chat request would run.",
        request: &["ChatCompletionRequest", "SamplingFields", "SearchLimits"],
        answer: Answer::Json("RenderedPrompt"),
        ..COUNTS
    },
    Route {
        path: "/v1/completions/render",
        name: "renderCompletion",
        summary: "What a request for completions would run, prompt by prompt.",
        request: &["CompletionRequest", "SamplingFields", "SearchLimits", "CompletionLimits"],
        answer: Answer::Json("RenderedPrompts"),
        ..COUNTS
    },
    Route {
        path: "/v1/messages/render",
        name: "renderMessage",
        summary: "What a request for a message would run.",
        request: &["MessagesRequest", "CommonFields"],
        answer: Answer::Json("RenderedPrompt"),
        ..COUNTS
    },
    Route {
        path: "/v1/responses/render",
        name: "renderResponse",
        summary: "What a request for a response would run.",
        request: &["ResponsesRequest", "SamplingFields", "SearchLimits", "ResponsesLimits"],
        answer: Answer::Json("RenderedPrompt"),
        ..COUNTS
    },
    Route {
        path: "/invocations",
        name: "invoke",
        summary: "Whatever the body and the model say that is asked for: to generate, to embed, to judge.",
        request: &["Invocation"],
        answer: Answer::JsonOrBytes("InvocationAnswer"),
        events: Some(Events::Chunks("InvocationChunk")),
        ..RUNS
    },
    Route {
        path: "/slots",
        name: "getSlots",
        summary: "The sequences that can run at once.",
        answer: Answer::Json("Slots"),
        ..OPEN
    },
    Route {
        path: "/v1/completions",
        name: "createCompletion",
        summary: "Continue prompts.",
        request: &["CompletionRequest", "SamplingFields", "SearchLimits", "CompletionLimits"],
        answer: Answer::Json("Completion"),
        events: Some(Events::Chunks("Completion")),
        ..RUNS
    },
    Route {
        path: "/v1/responses",
        name: "createResponse",
        summary: "Answer a conversation as items.",
        request: &["ResponsesRequest", "SamplingFields", "SearchLimits", "ResponsesLimits"],
        answer: Answer::Json("Response"),
        events: Some(Events::Named("ResponseEvent")),
        ..RUNS
    },
    Route {
        path: "/v1/responses/{id}",
        name: "retrieveResponse",
        summary: "A stored response.",
        parameters: &[
            Parameter::Id,
            Parameter::Include,
            Parameter::Stream,
            Parameter::StartingAfter,
        ],
        answer: Answer::Json("Response"),
        events: Some(Events::Named("ResponseEvent")),
        ..OPEN
    },
    Route {
        method: "delete",
        path: "/v1/responses/{id}",
        name: "deleteResponse",
        summary: "Forget a response.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("DeletedResponse"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/v1/responses/{id}/cancel",
        name: "cancelResponse",
        summary: "End a response that runs in the background.",
        parameters: &[Parameter::Id],
        answer: Answer::Json("Response"),
        ..OPEN
    },
    Route {
        path: "/v1/responses/{id}/input_items",
        name: "listInputItems",
        summary: "What a kept response was asked.",
        parameters: &[
            Parameter::Id,
            Parameter::After,
            Parameter::Limit,
            Parameter::Order,
            Parameter::Include,
        ],
        answer: Answer::Json("ResponseItemList"),
        ..OPEN
    },
    Route {
        path: "/v1/responses/input_tokens",
        name: "countInputTokens",
        summary: "How many tokens such a prompt has.",
        request: &["ResponsesRequest", "SamplingFields", "SearchLimits", "ResponsesLimits"],
        answer: Answer::Json("InputTokens"),
        ..COUNTS
    },
    Route {
        path: "/v1/responses/compact",
        name: "compactResponse",
        summary: "Make a long conversation short: what its user said, and a summary.",
        request: &["ResponsesRequest", "SamplingFields", "SearchLimits", "ResponsesLimits"],
        answer: Answer::Json("CompactedResponse"),
        ..RUNS
    },
    Route {
        path: "/v1/messages",
        name: "createMessage",
        summary: "Answer a conversation in Anthropic's shape.",
        request: &["MessagesRequest", "MessagesLimit", "CommonFields"],
        answer: Answer::Json("Message"),
        events: Some(Events::Named("MessageStreamEvent")),
        ..RUNS
    },
    Route {
        path: "/v1/messages/count_tokens",
        name: "countMessageTokens",
        summary: "How many tokens such a prompt has.",
        request: &["MessagesRequest", "CommonFields"],
        answer: Answer::Json("CountedTokens"),
        ..COUNTS
    },
    Route {
        path: "/v1/decisions",
        name: "createDecision",
        summary: "Answer questions about one input by probabilities.",
        request: &["DecisionRequest", "DecisionFields"],
        answer: Answer::Json("Decision"),
        ..RUNS
    },
    Route {
        path: "/v1/systemone",
        name: "createStructuredDecision",
        summary: "The same in the shape of System One.",
        request: &["SystemOneRequest", "DecisionFields"],
        answer: Answer::Json("SystemOneDecision"),
        ..RUNS
    },
    Route {
        path: "/v1/load_lora_adapter",
        name: "loadLoraAdapter",
        summary: "Load an adapter, which requests then name as their model.",
        request: &["LoadAdapterRequest"],
        ..CHANGES
    },
    Route {
        path: "/v1/unload_lora_adapter",
        name: "unloadLoraAdapter",
        summary: "Forget an adapter; requests that run keep it.",
        request: &["UnloadAdapterRequest"],
        ..CHANGES
    },
    Route {
        path: "/api/chat",
        name: "ollamaChat",
        summary: "Answer a conversation in Ollama's shape.",
        request: &["OllamaChatRequest", "OllamaFields"],
        answer: Answer::Json("OllamaChatAnswer"),
        events: Some(Events::Lines("OllamaChatAnswer")),
        ..RUNS
    },
    Route {
        path: "/api/generate",
        name: "ollamaGenerate",
        summary: "Answer or continue a prompt in Ollama's shape.",
        request: &["OllamaGenerateRequest", "OllamaFields"],
        answer: Answer::Json("OllamaGenerateAnswer"),
        events: Some(Events::Lines("OllamaGenerateAnswer")),
        ..RUNS
    },
    Route {
        path: "/api/embed",
        name: "ollamaEmbed",
        summary: "Texts as vectors in Ollama's shape.",
        request: &["OllamaEmbedRequest"],
        answer: Answer::Json("OllamaEmbedAnswer"),
        ..RUNS
    },
    Route {
        path: "/api/embeddings",
        name: "ollamaEmbeddings",
        summary: "One text as a vector in Ollama's older shape.",
        request: &["OllamaEmbeddingsRequest"],
        answer: Answer::Json("OllamaEmbeddingsAnswer"),
        ..RUNS
    },
    Route {
        path: "/api/tags",
        name: "ollamaTags",
        summary: "The names that the model answers to, in Ollama's shape.",
        answer: Answer::Json("OllamaModels"),
        ..OPEN
    },
    Route {
        path: "/api/ps",
        name: "ollamaPs",
        summary: "The same names: all stay loaded.",
        answer: Answer::Json("OllamaProcesses"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/api/show",
        name: "ollamaShow",
        summary: "The model in detail, in Ollama's shape.",
        request: &["OllamaShowRequest", "OllamaShowName"],
        answer: Answer::Json("OllamaShown"),
        ..OPEN
    },
    Route {
        path: "/api/version",
        name: "ollamaVersion",
        summary: "The version of Ollama whose API this is.",
        answer: Answer::Json("OllamaVersion"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/tokenize",
        name: "tokenize",
        summary: "The token ids of a text or a conversation.",
        request: &["TokenizeRequest"],
        answer: Answer::Json("Tokenized"),
        ..OPEN
    },
    Route {
        method: "post",
        path: "/detokenize",
        name: "detokenize",
        summary: "The text of token ids.",
        request: &["DetokenizeRequest"],
        answer: Answer::Json("Detokenized"),
        ..OPEN
    },
    Route {
        path: "/apply-template",
        name: "applyTemplate",
        summary: "The prompt of a conversation.",
        request: &["ChatCompletionRequest"],
        answer: Answer::Json("AppliedTemplate"),
        ..COUNTS
    },
    Route {
        path: "/v1/chat/completions/input_tokens",
        name: "countChatTokens",
        summary: "How many tokens the prompt of a chat has.",
        request: &["ChatCompletionRequest", "SamplingFields", "SearchLimits"],
        answer: Answer::Json("InputTokens"),
        ..COUNTS
    },
    Route {
        path: "/v1/models",
        name: "listModels",
        summary: "The names that the model answers to, and its adapters.",
        answer: Answer::Json("ModelList"),
        ..OPEN
    },
    Route {
        path: "/v1/models/{id}",
        name: "retrieveModel",
        summary: "One of these names.",
        parameters: &[Parameter::ModelName],
        answer: Answer::Json("Model"),
        ..OPEN
    },
    Route {
        path: "/",
        name: "getRoot",
        summary: "What this server is.",
        answer: Answer::Json("Root"),
        ..OPEN
    },
    Route {
        path: "/load",
        name: "getLoad",
        summary: "Sequences that run or wait.",
        answer: Answer::Json("Load"),
        ..OPEN
    },
    Route {
        path: "/props",
        name: "getProps",
        summary: "The model's properties.",
        answer: Answer::Json("Props"),
        ..OPEN
    },
    Route {
        path: "/tokenizer_info",
        name: "getTokenizerInfo",
        summary: "Special tokens and the chat template.",
        answer: Answer::Json("TokenizerInfo"),
        ..OPEN
    },
    Route {
        path: "/ping",
        name: "ping",
        summary: "Whether requests are welcome.",
        answer: Answer::Json("Ready"),
        guarded: false,
        ..OPEN
    },
    Route {
        method: "post",
        path: "/ping",
        name: "pingByPost",
        summary: "Whether requests are welcome.",
        answer: Answer::Json("Ready"),
        guarded: false,
        ..OPEN
    },
    Route {
        path: "/version",
        name: "getVersion",
        summary: "The server's version and features.",
        answer: Answer::Json("Version"),
        ..OPEN
    },
    Route {
        path: "/v1/usage",
        name: "getUsage",
        summary: "What keys have used of models, by day or hour.",
        parameters: &[
            Parameter::StartTime,
            Parameter::EndTime,
            Parameter::BucketWidth,
            Parameter::KeyName,
        ],
        answer: Answer::Json("UsagePage"),
        ..OPEN
    },
    Route {
        path: "/openapi.json",
        name: "getDocument",
        summary: "This document.",
        answer: Answer::Json("Document"),
        ..OPEN
    },
    Route {
        path: "/metrics",
        name: "getMetrics",
        summary: "Metrics as Prometheus reads them.",
        answer: Answer::Metrics,
        can_be_unavailable: false,
        ..OPEN
    },
    Route {
        path: "/health",
        name: "getHealth",
        summary: "Whether requests are welcome.",
        answer: Answer::Json("Ready"),
        guarded: false,
        ..OPEN
    },
    Route {
        path: "/health/ready",
        name: "getReadiness",
        summary: "Whether requests are welcome.",
        answer: Answer::Json("Ready"),
        guarded: false,
        ..OPEN
    },
    Route {
        path: "/health/live",
        name: "getLiveness",
        summary: "Whether the process should go on; if not, it is to be started again.",
        answer: Answer::Json("Live"),
        guarded: false,
        ..OPEN
    },
    Route {
        path: "/health/startup",
        name: "getStartup",
        summary: "Whether the model is loaded.",
        answer: Answer::Json("Started"),
        guarded: false,
        ..OPEN
    },
];

impl Route {
    /// Whether the body is a form with a file.
    pub(super) fn uploads(&self) -> bool {
        matches!(self.request, ["FileUpload" | "TranscriptionForm"])
    }

    /// Statuses of requests that are not answered, and why.
    pub(super) fn errors(&self, keys: bool) -> Vec<(&'static str, &'static str)> {
        let names_one = self
            .parameters
            .iter()
            .any(|given| matches!(given, Parameter::Id | Parameter::ModelName));
        let reads = !self.request.is_empty();
        let lists = self.parameters.iter().any(|given| {
            use Parameter::{BatchLimit, FileLimit, Limit, StartTime};
            matches!(given, Limit | FileLimit | BatchLimit | StartTime)
        });
        let is_tei = tei::error::covers(self.path) || tei::error::shares(self.path);
        let all = [
            (
                reads || names_one || lists,
                "400",
                "a value that can't be served; the message names field and bound",
            ),
            (keys && self.guarded, "401", "no key, or one that is not known"),
            (
                matches!(self.answer, Answer::Changed) || (keys && self.guarded),
                "403",
                "the key does not open this, or the server was not started for it",
            ),
            (reads || names_one, "404", "the model is not served, or there is no such thing"),
            (
                reads,
                "408",
                "the deadline passed before the first token, or the body stopped coming",
            ),
            (reads, "413", "the body is too large"),
            (reads, "415", "the body is not declared as JSON"),
            (is_tei, "422", "a value that can't be served, in text-embeddings-inference's shape"),
            (is_tei, "424", "the server's fault, in text-embeddings-inference's shape"),
            (
                self.runs || (keys && reads),
                "429",
                "too many sequences are waiting, or a limit of the key is reached",
            ),
            (true, "500", "the server's fault"),
            (self.can_be_unavailable, "503", "not ready, or no longer"),
        ];
        let told = all.into_iter().filter(|(possible, ..)| *possible);
        told.map(|(_, status, description)| (status, description)).collect()
    }
}

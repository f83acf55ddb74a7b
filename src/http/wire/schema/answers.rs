//! Answers that no struct writes: errors, models, health, and what else is a handful of fields.

use serde_json::json;

use super::builders::{
    any_of, count, list, object, optional_text, or_null, reference, text, token_ids, words,
};

written! {
    /// Why a request was not answered.
    Error: object(&["error"], &json!({"error": object(
        &["message", "type", "param", "code"],
        &json!({
            "message": text(),
            "type": words(&[
                "invalid_request_error", "authentication_error", "permission_error",
                "rate_limit_error", "deadline_exceeded", "unavailable_error", "server_error",
            ]),
            "param": optional_text(),
            "code": optional_text(),
        }),
    )}));
    /// A name that the model answers to.
    Model: object(
        &["id", "object", "created", "owned_by", "root", "parent", "max_model_len"],
        &json!({
            "id": text(),
            "object": words(&["model"]),
            "created": count(),
            "owned_by": text(),
            "root": text(),
            "parent": optional_text(),
            "max_model_len": count(),
        }),
    );
    /// All names of the model.
    ModelList: object(&["object", "data"], &json!({
        "object": words(&["list"]), "data": list(&reference("Model")),
    }));
    /// What the server is.
    Version: object(&["version", "features"], &json!({
        "version": text(), "features": list(&text()),
    }));
    /// Whether requests are welcome.
    Ready: object(&["status"], &json!({"status": words(&["ready"])}));
    Started: object(&["status"], &json!({"status": words(&["started"])}));
    /// That the process answers.
    Live: object(&["status"], &json!({"status": words(&["live"])}));
    /// The prompt that a chat request would run.
    RenderedPrompt: object(
        &["request_id", "model", "prompt", "token_ids", "prompt_token_ids", "count", "max_model_len",
            "sampling_params", "stream"],
        &json!({
            "request_id": text(),
            "token_ids": token_ids(),
            "token_offsets": {"type": ["array", "null"], "items":
                {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
            "features": {"type": "null"},
            "cache_salt": optional_text(),
            "priority": {"type": "integer"},
            "kv_transfer_params": {"type": "null"},
            "sampling_params": {"type": "object"},
            "stream": {"type": "boolean"},
            "model": text(),
            "prompt": text(),
            "prompt_token_ids": token_ids(),
            "count": count(),
            "max_model_len": count(),
        }),
    );
    /// What the requests of several prompts would run.
    RenderedPrompts: list(&reference("RenderedPrompt"));
    /// A request of any of these kinds.
    Invocation: any_of(&[
        json!({"allOf": [reference("ChatCompletionRequest"), object(&["messages"], &json!({}))]}),
        json!({"allOf": [reference("CompletionRequest"), object(&["prompt"], &json!({}))]}),
        json!({"allOf": [reference("EmbeddingsRequest"), reference("ConversationFields"),
            reference("EmbeddingSource")]}),
        json!({"allOf": [reference("ClassifyRequest"), reference("ConversationFields"),
            reference("EmbeddingSource"), reference("PoolingFields")]}),
        json!({"allOf": [reference("PoolingRequest"), reference("ConversationFields"),
            reference("EmbeddingSource"), reference("PoolingFields")]}),
        reference("AnyRerankRequest"),
        json!({"allOf": [reference("ScoreRequest"), reference("PoolingFields")]}),
    ]);
    /// The answer to a request of any of these kinds.
    InvocationAnswer: any_of(&[
        reference("ChatCompletion"), reference("Completion"), reference("EmbeddingList"),
        reference("ClassifyAnswer"), reference("PoolingAnswer"), reference("AnyRerankAnswer"),
        reference("ScoreAnswer"),
    ]);
    /// An event of a streamed answer to one of them.
    InvocationChunk: any_of(&[reference("ChatCompletionChunk"), reference("Completion")]);
    /// A request to rerank in the shape of vLLM, Jina and Cohere, or with `texts` in that of
    /// text-embeddings-inference.
    AnyRerankRequest: any_of(&[
        json!({"allOf": [reference("RerankRequest"), reference("PoolingFields"),
            object(&["documents"], &json!({}))]}),
        json!({"allOf": [reference("TeiRerankRequest"), reference("TeiFields"),
            object(&["texts"], &json!({}))]}),
    ]);
    /// The answer in the shape of the request.
    AnyRerankAnswer: any_of(&[reference("RerankAnswer"), list(&reference("TeiRank"))]);
    /// A vector of each text.
    TeiVectors: list(&list(&json!({"type": "number"})));
    /// The vectors of each text's tokens.
    TeiTokenVectors: list(&list(&list(&json!({"type": "number"}))));
    /// The weights of each text that are not 0.
    TeiSparseVectors: list(&list(&reference("TeiSparseValue")));
    /// The classes of a text, or of each of several, the most likely first.
    TeiPredictions: any_of(&[
        list(&reference("TeiPrediction")), list(&list(&reference("TeiPrediction"))),
    ]);
    /// A score of each sentence.
    TeiScores: list(&json!({"type": "number"}));
    /// What is served.
    TeiInfo: object(&["model_id", "model_type", "max_input_length"], &json!({
        "model_id": text(), "model_type": {"type": "object"}, "max_input_length": count(),
    }));
    /// The sequences that can run at once.
    Slots: list(&object(&["id", "n_ctx", "is_processing"], &json!({
        "id": count(), "n_ctx": count(), "is_processing": {"type": "boolean"},
    })));
    /// What is served, in SGLang's words.
    SglangServerInfo: object(&["served_model_name", "context_length"], &json!({
        "version": text(), "model_path": text(), "tokenizer_path": text(), "served_model_name": text(),
        "is_embedding": {"type": "boolean"}, "context_length": count(), "max_running_requests": count(),
        "max_total_num_tokens": count(), "page_size": count(), "dp_size": count(),
        "disaggregation_mode": text(),
    }));
    /// What the model is, in SGLang's words.
    SglangModelInfo: object(&["model_path", "is_generation"], &json!({
        "model_path": text(), "tokenizer_path": text(), "is_generation": {"type": "boolean"},
        "has_image_understanding": {"type": "boolean"}, "has_audio_understanding": {"type": "boolean"},
        "model_type": text(),
    }));
    /// What to tokenize: a text, under either name, or a conversation.
    TokenizeRequest: json!({
        "type": "object",
        "properties": {
            "model": or_null(reference("RequestedModel")),
            "return_token_strs": {"type": ["boolean", "null"]},
            "add_special_tokens": {"type": ["boolean", "null"]},
            "add_special": {"type": ["boolean", "null"]},
            "with_pieces": {"type": ["boolean", "null"]},
        },
        "anyOf": [
            object(&["prompt"], &json!({"prompt": text(), "messages": {"type": "null"}})),
            object(&["content"], &json!({"content": text(), "messages": {"type": "null"}})),
            object(&["messages"], &json!({
                "prompt": {"type": "null"},
                "content": {"type": "null"},
                "messages": {"type": "array", "minItems": 1, "items": reference("ChatInputMessage")},
                "tools": or_null(reference("ChatTools")),
                "tool_choice": or_null(reference("ChatToolChoice")),
                "add_generation_prompt": {"type": ["boolean", "null"]},
                "continue_final_message": {"type": ["boolean", "null"]},
                "chat_template_kwargs": {"type": ["object", "null"]},
            })),
        ],
    });
    /// What the server is.
    Root: object(&["server", "version", "model", "openapi"], &json!({
        "server": text(), "version": text(), "model": text(), "openapi": text(),
    }));
    /// Sequences that run or wait.
    Load: object(&["server_load"], &json!({"server_load": count()}));
    /// The model's properties.
    Props: object(&["total_slots", "default_generation_settings"], &json!({
        "total_slots": count(),
        "default_generation_settings": object(&["n_ctx"], &json!({"n_ctx": count()})),
    }));
    /// Special tokens and the chat template.
    TokenizerInfo: object(&["tokenizer_class", "chat_template"], &json!({
        "tokenizer_class": text(), "chat_template": optional_text(),
    }));
    /// The prompt of a conversation.
    AppliedTemplate: object(&["prompt"], &json!({"prompt": text()}));
    /// How many tokens the prompt of a response would have.
    InputTokens: object(&["object", "input_tokens"], &json!({
        "object": words(&["response.input_tokens"]), "input_tokens": count(),
    }));
    /// That a response is gone.
    DeletedResponse: object(&["id", "object", "deleted"], &json!({
        "id": text(), "object": words(&["response"]), "deleted": {"type": "boolean"},
    }));
    /// An OpenAPI document.
    Document: object(&["openapi", "info", "paths"], &json!({
        "openapi": text(), "info": {"type": "object"}, "paths": {"type": "object"},
    }));
}

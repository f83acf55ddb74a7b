//! Ollama's API where serde's structs don't tell.

use serde_json::json;

use super::builders::{any_of, count, list, object, reference, text, words};
use crate::http::wire::bounds::THINK_LEVELS;

written! {
    /// What the answer must be like: JSON, or what a schema says; an empty text asks for nothing.
    OllamaFormat: any_of(&[words(&["", "json"]), json!({"type": "object"})]);
    /// How much to reason.
    OllamaThinkLevel: words(&THINK_LEVELS);
    /// A text to embed, or several.
    OllamaInput: any_of(&[text(), list(&json!({"type": "string", "minLength": 1}))]);
    /// How many numbers of an embedding to keep; 0 for all.
    OllamaDimensions: any_of(&[json!({"enum": [0]}), reference("EmbeddingDimensions")]);
    /// Sampling parameters and bounds, under Ollama's names and all others that this server has.
    OllamaOptions: json!({"allOf": [reference("OllamaOwnOptions"), reference("CommonFields")]});
    /// How an answer ended; `load` answers a request that asked for none.
    OllamaDoneReason: words(&["stop", "length", "load"]);
    /// What is known of the model.
    OllamaDetails: object(
        &["parent_model", "format", "family", "families", "parameter_size", "quantization_level"],
        &json!({
            "parent_model": text(),
            "format": text(),
            "family": text(),
            "families": list(&text()),
            "parameter_size": text(),
            "quantization_level": text(),
            "context_length": count(),
            "embedding_length": count(),
        }),
    );
    /// A name that the model answers to.
    OllamaModel: object(
        &["name", "model", "modified_at", "size", "digest", "details", "capabilities"],
        &json!({
            "name": text(),
            "model": text(),
            "modified_at": {"type": "string", "format": "date-time"},
            "size": count(),
            "digest": text(),
            "details": reference("OllamaDetails"),
            "capabilities": list(&text()),
        }),
    );
    OllamaModels: object(&["models"], &json!({"models": list(&reference("OllamaModel"))}));
    /// A name of the model, which stays loaded.
    OllamaProcess: object(
        &["name", "model", "size", "digest", "details", "expires_at", "size_vram", "context_length"],
        &json!({
            "name": text(),
            "model": text(),
            "size": count(),
            "digest": text(),
            "details": reference("OllamaDetails"),
            "expires_at": {"type": "string", "format": "date-time"},
            "size_vram": count(),
            "context_length": count(),
        }),
    );
    OllamaProcesses: object(&["models"], &json!({"models": list(&reference("OllamaProcess"))}));
    /// Which model to show, under either name of the field.
    OllamaShowName: any_of(&[
        json!({"type": "object", "required": ["model"], "properties": {"model": text()}}),
        json!({"type": "object", "required": ["name"], "properties": {"name": text()}}),
    ]);
    /// The model in detail.
    OllamaShown: object(
        &["modelfile", "parameters", "template", "details", "model_info", "capabilities", "modified_at"],
        &json!({
            "modelfile": text(),
            "parameters": text(),
            "template": text(),
            "details": reference("OllamaDetails"),
            "model_info": {"type": "object", "additionalProperties": true},
            "capabilities": list(&text()),
            "modified_at": {"type": "string", "format": "date-time"},
        }),
    );
    OllamaVersion: object(&["version"], &json!({"version": text(), "sconce": text()}));
}

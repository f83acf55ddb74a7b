//! What `/v1/responses` reads by hand: items, tools, and the shape of the answer's text.

use serde_json::{Value, json};

use super::builders::{any_of, list, object, optional_text, reference, tagged, text, words};
use crate::http::wire::bounds::{
    HOSTED_TOOLS, INCLUDABLES, MAX_METADATA_KEY_CHARS, MAX_METADATA_PAIRS, MAX_METADATA_VALUE_CHARS,
};

written! {
    /// How a prompt goes on another one.
    ResponseCacheDiagnostics: object(&["type"], &json!({
        "type": words(&["cache_hit", "cache_miss", "comparison_response_not_found", "unavailable"]),
        "reason": words(&[
            "model_changed", "prompt_cache_key_changed", "tools_changed", "text_format_changed",
            "reasoning_effort_changed", "service_tier_changed", "input_changed",
        ]),
        "cache_missed_tokens": {"type": "integer", "minimum": 0},
        "comparison_reusable_tokens": {"type": "integer", "minimum": 0},
    }));
    /// A text of the user, or the items of a conversation.
    ResponseInput: any_of(&[
        text(),
        json!({"type": "array", "minItems": 1, "items": reference("ResponseInputItem")}),
    ]);
    /// What somebody said, thought, called or gave back. Without a type, it is a message if it has
    /// a role, else a reference.
    ResponseInputItem: any_of(&[
        json!({
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "type": {"enum": ["message", null]},
                "id": optional_text(),
                "status": status(),
                "role": words(&["user", "assistant", "system", "developer"]),
                "content": any_of(&[text(), list(&any_of(&[
                    tagged("input_text", &["text"], &json!({"text": text()})),
                    tagged("output_text", &["text"], &json!({"text": text()})),
                    tagged("refusal", &["refusal"], &json!({"refusal": text()})),
                ]))]),
            },
        }),
        item("function_call", &["name", "arguments"], &json!({
            "call_id": optional_text(), "name": text(), "arguments": text(),
            "namespace": optional_text(),
        })),
        item("function_call_output", &["call_id", "output"], &tool_output()),
        item("custom_tool_call", &["name", "input"], &json!({
            "call_id": optional_text(), "name": text(), "input": text(),
        })),
        item("custom_tool_call_output", &["call_id", "output"], &tool_output()),
        item("reasoning", &[], &json!({
            "summary": any_of(&[parts(&["summary_text"]), json!({"type": "null"})]),
            "content": any_of(&[parts(&["reasoning_text", "text"]), json!({"type": "null"})]),
        })),
        json!({
            "type": "object",
            "required": ["id"],
            "properties": {"type": {"enum": ["item_reference", null]}, "id": text()},
        }),
    ]);
    /// What responses lack of what chat completions can, or have under another name.
    ResponsesLimits: object(&[], &json!({
        "background": {"enum": [false, null]},
        "truncation": {"enum": ["disabled", null]},
        "conversation": {"type": "null"},
        "prompt": {"type": "null"},
        "context_management": {"type": ["array", "null"], "maxItems": 0},
        "n": {"enum": [1, null]},
        "max_tokens": {"type": "null"},
        "max_completion_tokens": {"type": "null"},
        "n_predict": {"type": "null"},
        "n_probs": {"enum": [0, null]},
        "n_cmpl": {"enum": [1, null]},
        "response_format": {"type": "null"},
        "prompt_logprobs": {"type": "null"},
        "return_token_ids": {"enum": [false, null]},
    }));
    /// A tool that the client runs, or one that nobody runs here and that is left out.
    ResponseTool: any_of(&[
        function_tool(),
        tagged("namespace", &["name", "tools"], &json!({
            "name": {"type": "string", "minLength": 1},
            "description": optional_text(),
            "tools": list(&function_tool()),
        })),
        tagged("custom", &["name"], &json!({
            "name": {"type": "string", "minLength": 1},
            "description": optional_text(),
            "format": {"type": ["object", "null"]},
        })),
        object(&["type"], &json!({"type": words(&HOSTED_TOOLS)})),
    ]);
    /// A function as the request had it.
    FunctionTool: tagged("function", &["name", "description", "parameters", "strict"], &json!({
        "name": text(),
        "description": optional_text(),
        "parameters": {"type": ["object", "null"]},
        "strict": {"type": "boolean"},
    }));
    /// What the answer's text is to be.
    ResponseTextFormat: any_of(&[
        tagged("text", &[], &json!({})),
        tagged("json_object", &[], &json!({})),
        tagged("json_schema", &["name", "schema"], &json!({
            "name": {"type": "string", "minLength": 1}, "schema": {"type": "object"},
        })),
    ]);
    /// What else the response is to hold.
    Includable: words(&INCLUDABLES);
    /// What a client keeps with a response.
    Metadata: json!({
        "type": "object",
        "maxProperties": MAX_METADATA_PAIRS,
        "propertyNames": {"maxLength": MAX_METADATA_KEY_CHARS},
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE_CHARS},
    });
}

fn function_tool() -> Value {
    tagged(
        "function",
        &["name"],
        &json!({
            "name": {"type": "string", "minLength": 1},
            "description": optional_text(),
            "parameters": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]},
        }),
    )
}

fn tool_output() -> Value {
    json!({
        "call_id": text(),
        "output": any_of(&[text(), list(&any_of(&[
            tagged("input_text", &["text"], &json!({"text": text()})),
            tagged("input_image", &[], &json!({})),
            tagged("input_file", &[], &json!({})),
        ]))]),
    })
}

fn status() -> Value {
    json!({"enum": ["in_progress", "completed", "incomplete", null]})
}

fn item(kind: &str, required: &[&str], properties: &Value) -> Value {
    let mut schema = tagged(kind, required, properties);
    schema["properties"]["id"] = optional_text();
    schema["properties"]["status"] = status();
    schema
}

fn parts(kinds: &[&str]) -> Value {
    list(&object(&["type", "text"], &json!({"type": words(kinds), "text": text()})))
}

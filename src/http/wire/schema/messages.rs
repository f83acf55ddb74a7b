//! What `/v1/messages` reads by hand: content blocks, tools, and the shape of the answer.

use serde_json::{Value, json};

use super::builders::{
    any_of, list, object, optional_text, or_null, reference, tagged, text, words,
};
use crate::http::wire::bounds::{MAX_STOP_STRINGS, MESSAGE_EFFORTS};

written! {
    /// Why a prompt was not in the cache.
    MessageDiagnostics: object(&["cache_miss_reason"], &json!({
        "cache_miss_reason": object(&["type"], &json!({
            "type": words(&[
                "model_changed", "system_changed", "tools_changed", "messages_changed",
                "previous_message_not_found", "unavailable",
            ]),
            "cache_missed_input_tokens": {"type": "integer", "minimum": 0},
        })),
    }));
    /// What only counting tokens can do without.
    MessagesLimit: json!({"type": "object", "required": ["max_tokens"], "properties": {
        "max_tokens": {"type": "integer", "minimum": 0},
    }});
    /// What one side said; which blocks there can be depends on the side.
    MessageInput: any_of(&[
        said("user", &[
            text_block(),
            tool_result(),
            tagged("image", &["source"], &json!({"source": {"type": "object"}})),
            tagged("document", &["source"], &json!({
                "source": {"type": "object"}, "title": optional_text(), "context": optional_text(),
            })),
        ]),
        said("assistant", &[
            text_block(),
            tagged("thinking", &["thinking"], &json!({
                "thinking": text(), "signature": optional_text(),
            })),
            tagged("redacted_thinking", &[], &json!({})),
            tagged("tool_use", &["id", "name", "input"], &json!({
                "id": text(), "name": text(), "input": {"type": "object"},
            })),
        ]),
        said("system", &[
            text_block(),
            tagged("tool_removal", &["tool"], &json!({"tool": referenced_tool()})),
            tagged("tool_addition", &["tool"], &json!({"tool": any_of(&[
                referenced_tool(),
                tagged("tool_definition", &["definition"], &json!({
                    "definition": reference("MessageTool"),
                })),
            ])})),
        ]),
    ]);
    /// What the model is told before the conversation.
    SystemContent: text_or(&text_block());
    /// A tool that the client runs, or one of Anthropic's own, which is left out.
    MessageTool: any_of(&[
        object(&["name", "input_schema"], &json!({
            "type": {"enum": ["custom", null]},
            "name": {"type": "string", "minLength": 1},
            "description": optional_text(),
            "input_schema": {"type": "object"},
            "strict": {"type": ["boolean", "null"]},
        })),
        object(&["type"], &json!({
            "type": {"type": "string", "pattern": "^([a-z_]+_[0-9]{8}|mcp_toolset)$"},
        })),
    ]);
    /// Which tools the answer may or must use.
    MessageToolChoiceKind: words(&["auto", "any", "tool", "none"]);
    /// Whether to think.
    ThinkingKind: words(&["enabled", "disabled", "adaptive", "between_tools"]);
    /// Whether the answer shows the reasoning.
    ThinkingDisplay: words(&["summarized", "updates", "omitted"]);
    /// How much effort to make.
    MessageEffort: words(&MESSAGE_EFFORTS);
    /// A schema that the answer keeps to.
    MessageOutputFormat: tagged("json_schema", &["schema"], &json!({
        "schema": {"type": "object"},
    }));
    /// Texts that end the answer.
    StopSequences: json!({
        "type": "array", "maxItems": MAX_STOP_STRINGS, "items": {"type": "string", "minLength": 1},
    });
    /// Why a message ended; null before it has.
    MessageStopReason: or_null(words(&[
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded",
    ]));
    /// The kind of an error.
    MessageErrorKind: words(&[
        "invalid_request_error", "authentication_error", "not_found_error", "request_too_large",
        "rate_limit_error", "timeout_error", "overloaded_error", "api_error",
    ]);
    /// An event of a streamed message.
    MessageStreamEvent: any_of(&[reference("MessageEvent"), reference("MessageError")]);
}

fn said(role: &str, blocks: &[Value]) -> Value {
    object(
        &["role", "content"],
        &json!({
            "role": words(&[role]), "content": text_or(&any_of(blocks)),
        }),
    )
}

fn tool_result() -> Value {
    tagged(
        "tool_result",
        &["tool_use_id"],
        &json!({
            "tool_use_id": text(),
            "content": any_of(&[optional_text(), list(&any_of(&[
                text_block(),
                tagged("image", &[], &json!({})),
                tagged("document", &[], &json!({})),
                tagged("tool_reference", &["tool_name"], &json!({"tool_name": text()})),
            ]))]),
            "is_error": {"type": ["boolean", "null"]},
        }),
    )
}

fn referenced_tool() -> Value {
    tagged("tool_reference", &["name"], &json!({"name": text()}))
}

fn text_block() -> Value {
    tagged("text", &["text"], &json!({"text": text()}))
}

fn text_or(block: &Value) -> Value {
    any_of(&[text(), json!({"type": "array", "minItems": 1, "items": block})])
}

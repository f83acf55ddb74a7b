//! Decisions where serde's structs don't tell.

use serde_json::{Value, json};

use super::builders::{any_of, list, object, or_null, reference, tagged, text, words};

/// Parts of a message or of instructions.
fn parts() -> Value {
    list(&any_of(&[
        tagged("input_text", &["text"], &json!({"text": text()})),
        tagged(
            "input_json",
            &["data"],
            &json!({"data": any_of(&[
                json!({"type": "object"}), list(&json!({"type": "object"})),
            ])}),
        ),
    ]))
}

fn said(role: &str, content: &Value) -> Value {
    object(
        &["role", "content"],
        &json!({
            "type": words(&["message"]),
            "role": words(&[role]),
            "content": any_of(&[text(), content.clone()]),
        }),
    )
}

/// The properties of a question, with those of its type.
fn question(mut properties: Value) -> Value {
    properties["name"] = or_null(text());
    properties["instructions"] = reference("DecisionInstructions");
    properties
}

written! {
    /// What questions are about.
    DecisionInput: any_of(&[
        json!({"type": "string", "minLength": 1}),
        json!({"type": "array", "minItems": 1, "items": reference("DecisionItem")}),
    ]);
    /// An item of a conversation.
    DecisionItem: any_of(&[
        said("user", &parts()),
        said("developer", &list(&tagged("input_text", &["text"], &json!({"text": text()})))),
        said("system", &list(&tagged("input_text", &["text"], &json!({"text": text()})))),
        said("assistant", &list(&any_of(&[
            tagged("output_text", &["text"], &json!({"text": text()})),
            tagged("refusal", &["refusal"], &json!({"refusal": text()})),
        ]))),
        json!({"type": "object", "required": ["type", "call_id"], "properties": {
            "type": words(&["function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"]),
            "call_id": text(),
        }}),
    ]);
    /// What is asked: a text, or parts of one.
    DecisionInstructions: any_of(&[text(), parts()]);
    /// A text, or JSON that is shown as one.
    DecisionText: json!({});
    /// A question.
    DecisionQuestion: any_of(&[
        tagged("predicate", &["instructions"], &question(json!({}))),
        tagged("choice", &["instructions", "choices"], &question(json!({"choices": {
            "type": "array", "minItems": 2, "maxItems": 255,
            "items": object(&["value"], &json!({
                "value": {"type": ["string", "boolean"]}, "description": or_null(text()),
            })),
        }}))),
        tagged("score", &["instructions", "levels"], &question(json!({"levels": {
            "type": "array", "minItems": 2, "maxItems": 10,
            "items": object(&["label"], &json!({"label": text(), "description": or_null(text())})),
        }}))),
    ]);
    /// Questions by name.
    SystemOneQuestions: json!({
        "type": "object", "minProperties": 1, "maxProperties": 400,
        "propertyNames": {"minLength": 1},
        "additionalProperties": reference("SystemOneQuestion"),
    });
    /// A question; instructions and criteria that are no texts are shown as JSON.
    SystemOneQuestion: any_of(&[
        tagged("noul", &[], &json!({"criteria": or_null(json!({
            "type": "object", "properties": {"true": {}, "false": {}}, "additionalProperties": false,
        }))})),
        tagged("choice", &["criteria"], &json!({"criteria": {
            "type": "object", "minProperties": 1, "maxProperties": 255,
        }})),
        tagged("score", &["criteria"], &json!({"criteria": {
            "type": "array", "minItems": 2, "maxItems": 10,
        }})),
    ]);
}

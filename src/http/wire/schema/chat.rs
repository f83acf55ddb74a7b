//! What chat and text completions read by hand: contents, tools, stop strings, prompts, and what
//! an answer must be like.

use serde_json::{Value, json};

use super::builders::{
    any_of, list, object, optional_text, or_null, reference, tagged, text, words,
};
use crate::http::wire::bounds::{
    EFFORTS, MAX_BAD_WORD_BYTES, MAX_BAD_WORDS, MAX_BREAKER_BYTES, MAX_BREAKERS, MAX_INPUTS,
    MAX_PROMPTS, MAX_STOP_STRINGS, SERVICE_TIERS,
};

written! {
    /// Who said a message: `developer`, `system`, `user`, `assistant`, `tool`, or one that the model's
    /// template knows.
    ChatRole: json!({"type": "string", "minLength": 1});
    /// A message: only the assistant calls tools, and only it can have said nothing.
    ChatInputMessage: json!({"allOf": [reference("ChatMessage"), any_of(&[
        object(&[], &json!({"role": words(&["assistant"])})),
        object(&["content"], &json!({
            "role": reference("ChatRole"),
            "content": reference("ChatContent"),
            "tool_calls": {"type": ["array", "null"], "maxItems": 0},
        })),
    ])]});
    /// What a message says.
    ChatContent: any_of(&[text(), list(&reference("ChatContentPart"))]);
    /// Texts are the only parts that are read.
    ChatContentPart: tagged("text", &["text"], &json!({"text": text()}));
    /// How much to think.
    ReasoningEffort: words(&EFFORTS);
    /// Whether reasoning is told apart from the answer.
    ReasoningFormat: words(&["auto", "deepseek", "none"]);
    /// A token's text, or its bytes.
    TokenPiece: any_of(&[text(), list(&json!({"type": "integer"}))]);
    /// How urgent the request is.
    ServiceTierName: words(&SERVICE_TIERS);
    /// What may be called.
    ChatTools: list(&reference("ChatTool"));
    /// A function that the client runs.
    ChatTool: tagged("function", &["function"], &json!({"function": object(&["name"], &json!({
        "name": {"type": "string", "minLength": 1},
        "description": optional_text(),
        "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]},
    }))}));
    /// What must or must not be called.
    ChatToolChoice: any_of(&[
        words(&["none", "auto", "required"]),
        tagged("function", &["function"], &json!({"function": named()})),
        tagged("allowed_tools", &["allowed_tools"], &json!({
            "allowed_tools": object(&["tools"], &json!({
                "mode": words(&["auto", "required"]),
                "tools": {"type": "array", "minItems": 1, "items":
                    object(&["function"], &json!({"function": named()}))},
            })),
        })),
        // The flat shapes of responses.
        tagged("function", &["name"], &json!({"name": text()})),
        tagged("allowed_tools", &["tools"], &json!({
            "mode": words(&["auto", "required"]),
            "tools": {"type": "array", "minItems": 1, "items": named()},
        })),
    ]);
    /// JSON in a string, or the object itself.
    CallArguments: any_of(&[text(), json!({"type": ["object", "null"]})]);
    /// What the answer must be like.
    ResponseFormat: any_of(&[
        tagged("text", &[], &json!({})),
        tagged("json_object", &[], &json!({"schema": {"type": ["object", "boolean", "null"]}})),
        tagged("json_schema", &["json_schema"], &json!({
            "json_schema": object(&["name"], &json!({
                "name": {"type": "string", "minLength": 1},
                "schema": {"type": ["object", "boolean", "null"]},
            })),
        })),
        tagged("structural_tag", &["structures", "triggers"], &structural_tag()),
    ]);
    /// A JSON schema, or its JSON in a string.
    AnySchema: json!({"type": ["string", "object", "boolean"]});
    /// What the answer must be like; exactly one of the fields is given.
    StructuredOutputs: any_of(&[
        only("json", reference("AnySchema")),
        only("json_object", json!({"enum": [true]})),
        only("regex", text()),
        only("choice", list(&text())),
        only("grammar", text()),
        only("structural_tag", any_of(&[
            text(),
            object(&["structures", "triggers"], &structural_tag()),
        ])),
    ]);
    /// A text or several.
    Stop: any_of(&[
        json!({"type": "string", "minLength": 1}),
        json!({"type": "array", "maxItems": MAX_STOP_STRINGS,
            "items": {"type": "string", "minLength": 1}}),
    ]);
    /// Texts that an answer may not hold.
    BadWords: json!({"type": "array", "maxItems": MAX_BAD_WORDS,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_BAD_WORD_BYTES}});
    /// Texts at which a repetition ends.
    SequenceBreakers: json!({"type": "array", "maxItems": MAX_BREAKERS,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_BREAKER_BYTES}});
    /// A search draws nothing, so nothing shapes a draw; without one, nothing shapes a search.
    SearchLimits: any_of(&[
        object(&["use_beam_search"], &json!({
            "use_beam_search": {"enum": [true]},
            "temperature": {"enum": [0, 1, null]},
            "top_p": {"enum": [1, null]},
            "top_k": {"type": ["integer", "null"], "maximum": 0},
            "min_p": {"enum": [0, null]},
            "typical_p": {"enum": [1, null]},
            "top_n_sigma": {"type": ["number", "null"], "maximum": 0},
            "xtc_probability": {"enum": [0, null]},
        })),
        object(&[], &json!({
            "use_beam_search": {"enum": [false, null]},
            "beam_width": {"enum": [1, null]},
            "length_penalty": {"enum": [1, null]},
            "early_stopping": {"enum": [false, null]},
        })),
    ]);
    /// When a search for the best answer ends.
    EarlyStopping: any_of(&[json!({"type": "boolean"}), words(&["never"])]);
    /// Token ids to what is added to their logits.
    LogitBias: any_of(&[
        json!({
            "type": "object",
            "propertyNames": {"pattern": "^\\+?[0-9]+$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }),
        // As llama.cpp has them; false for a token that is never drawn.
        list(&json!({"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [
            any_of(&[
                reference("TokenId"),
                json!({"type": "string", "pattern": "^\\+?[0-9]+$"}),
            ]),
            any_of(&[
                json!({"type": "number", "minimum": -100, "maximum": 100}),
                json!({"type": "boolean", "enum": [false]}),
            ]),
        ]})),
    ]);
    /// A prompt or several, as text or as token ids.
    CompletionPrompt: texts_or_ids(MAX_PROMPTS, 0);
    /// What completions lack of what chat completions can.
    CompletionLimits: object(&[], &json!({"thinking_token_budget": {"type": "null"}}));
    /// What to embed: a text or several, or the token ids of one or several.
    EmbeddingInput: any_of(&[
        texts_or_ids(MAX_INPUTS, 1),
        json!({"type": "array", "minItems": 1, "maxItems": MAX_INPUTS, "items": any_of(&[
            json!({"type": "string", "minLength": 1}),
            json!({"type": "array", "minItems": 1, "items": reference("TokenId")}),
        ])}),
    ]);
    /// Texts or a conversation, not both.
    EmbeddingSource: any_of(&[
        object(&["input"], &json!({
            "input": reference("EmbeddingInput"), "messages": {"type": "null"},
        })),
        object(&["messages"], &json!({
            "messages": {"type": "array", "minItems": 1},
            "input": {"type": "null"}, "prompt_name": {"type": "null"},
        })),
    ]);
    /// How vectors are written.
    EncodingFormat: words(&["float", "base64", "bytes", "bytes_only"]);
    /// The type of an embedding's numbers as bytes.
    EmbeddingNumbers: words(&["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]);
    /// The order of a number's bytes.
    ByteOrder: words(&["little", "big", "native"]);
    /// Which end of a long text stays.
    TruncationSide: words(&["left", "right"]);
    /// How an answer ended.
    FinishReason: words(&["stop", "length", "tool_calls"]);
    /// What ended an answer: a stop string, the id of a stop token, `deadline`, or null for an
    /// end-of-sequence token and for the length.
    StopCause: json!({"type": ["string", "integer", "null"]});
    /// The model's reasoning, under both names that clients look for.
    ReasoningText: object(&[], &json!({
        "reasoning": optional_text(), "reasoning_content": optional_text(),
    }));
    /// One entry per token of a prompt: the token itself and the most likely ones at its place, by
    /// their ids. Null for the first, which nothing predicts.
    PromptLogprobs: list(&or_null(json!({
        "type": "object", "additionalProperties": reference("PromptTokenLogprob"),
    })));
    /// The token and the most likely ones, by their text, with their logprobs.
    TopLogprobs: list(&or_null(json!({
        "type": "object", "additionalProperties": {"type": "number"},
    })));
}

/// Structured outputs with this field and no other.
fn only(field: &str, schema: Value) -> Value {
    let all = ["json", "json_object", "regex", "choice", "grammar", "structural_tag"];
    let mut properties = json!({});
    for other in all.iter().filter(|other| **other != field) {
        properties[other] = json!({"type": "null"});
    }
    properties[field] = schema;
    let mut alone = object(&[field], &properties);
    alone["additionalProperties"] = json!(false);
    alone
}

fn named() -> Value {
    object(&["name"], &json!({"name": text()}))
}

fn structural_tag() -> Value {
    json!({
        "structures": list(&object(&["begin", "end"], &json!({
            "begin": text(), "schema": {"type": ["object", "boolean", "null"]}, "end": text(),
        }))),
        "triggers": list(&text()),
    })
}

fn texts_or_ids(most: usize, shortest: usize) -> Value {
    let ids = || json!({"type": "array", "minItems": 1, "items": reference("TokenId")});
    let text = || json!({"type": "string", "minLength": shortest});
    any_of(&[
        text(),
        json!({"type": "array", "minItems": 1, "maxItems": most, "items": text()}),
        ids(),
        json!({"type": "array", "minItems": 1, "maxItems": most, "items": ids()}),
    ])
}

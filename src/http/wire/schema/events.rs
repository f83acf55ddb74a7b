//! The events of streamed responses: what each kind carries beside its number.

use serde_json::{Value, json};

use super::builders::{any_of, count, list, object, optional_text, reference, text, words};

written! {
    /// An event of a streamed response.
    ResponseEvent: any_of(&[
        reference("ResponseLifecycleEvent"),
        reference("ResponseItemEvent"),
        reference("ResponsePartEvent"),
        reference("ResponseTextDeltaEvent"),
        reference("ResponseTextDoneEvent"),
        reference("ResponseReasoningDeltaEvent"),
        reference("ResponseReasoningDoneEvent"),
        reference("ResponseArgumentsDeltaEvent"),
        reference("ResponseArgumentsDoneEvent"),
        reference("ResponseErrorEvent"),
    ]);
    /// The response as it stands.
    ResponseLifecycleEvent: event(
        &[
            "response.created", "response.in_progress", "response.completed",
            "response.incomplete", "response.failed",
        ],
        &json!({"response": reference("Response")}),
    );
    /// An item begins or ends.
    ResponseItemEvent: event(
        &["response.output_item.added", "response.output_item.done"],
        &json!({"output_index": count(), "item": reference("ResponseItem")}),
    );
    /// A part of an item begins or ends.
    ResponsePartEvent: event(
        &["response.content_part.added", "response.content_part.done"],
        &within_part(&json!({"part": reference("ResponsePart")})),
    );
    /// More of a text.
    ResponseTextDeltaEvent: event(
        &["response.output_text.delta"],
        &within_part(&json!({"delta": text(), "logprobs": logprobs()})),
    );
    /// All of a text.
    ResponseTextDoneEvent: event(
        &["response.output_text.done"],
        &within_part(&json!({"text": text(), "logprobs": logprobs()})),
    );
    /// More of what the model thinks.
    ResponseReasoningDeltaEvent: event(
        &["response.reasoning_text.delta"],
        &within_part(&json!({"delta": text()})),
    );
    /// All that the model thought.
    ResponseReasoningDoneEvent: event(
        &["response.reasoning_text.done"],
        &within_part(&json!({"text": text()})),
    );
    /// More of a call's arguments.
    ResponseArgumentsDeltaEvent: event(
        &["response.function_call_arguments.delta"],
        &within_item(&json!({"delta": text()})),
    );
    /// All of a call's arguments.
    ResponseArgumentsDoneEvent: event(
        &["response.function_call_arguments.done"],
        &within_item(&json!({"arguments": text(), "name": text()})),
    );
    /// What went wrong; the response that failed follows.
    ResponseErrorEvent: event(
        &["error"],
        &json!({"code": text(), "message": text(), "param": optional_text()}),
    );
}

/// An event of one of the kinds, all of whose fields are always there.
fn event(kinds: &[&str], fields: &Value) -> Value {
    let mut properties = json!({"type": words(kinds), "sequence_number": count()});
    let names = add(&mut properties, fields);
    let required: Vec<&str> = names.iter().map(String::as_str).collect();
    object(&required, &properties)
}

fn within_item(fields: &Value) -> Value {
    let mut properties = json!({"item_id": text(), "output_index": count()});
    add(&mut properties, fields);
    properties
}

fn within_part(fields: &Value) -> Value {
    let mut properties = within_item(fields);
    properties["content_index"] = count();
    properties
}

/// Adds fields, and returns the names of all that are there.
fn add(properties: &mut Value, fields: &Value) -> Vec<String> {
    for (name, schema) in fields.as_object().into_iter().flatten() {
        properties[name] = schema.clone();
    }
    properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn logprobs() -> Value {
    let token = json!({"token": text(), "logprob": {"type": "number"}});
    let mut entry = token.clone();
    entry["top_logprobs"] = list(&object(&["token", "logprob"], &token));
    list(&object(&["token", "logprob", "top_logprobs"], &entry))
}

//! What is stored, as it is told: each object says by its `object` or `type` what it is.

use serde_json::json;

use super::builders::{count, list, object, reference, text, words};

written! {
    /// A chat completion, a conversation, a file or a batch.
    StoredObject: json!({"type": "object", "required": ["id"], "properties": {"id": text()}});
    /// A page of stored objects.
    StoredList: object(&["object", "data", "has_more"], &json!({
        "object": words(&["list"]),
        "data": list(&json!({"type": "object"})),
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    }));
    /// That something is gone.
    StoredDeleted: object(&["id", "object", "deleted"], &json!({
        "id": text(), "object": text(), "deleted": {"type": "boolean"},
    }));
    /// A page of batches of messages.
    MessageBatchList: object(&["data", "has_more"], &json!({
        "data": list(&reference("StoredObject")),
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    }));
    /// What keys have used.
    UsagePage: object(&["object", "data", "has_more", "next_page"], &json!({
        "object": words(&["page"]),
        "data": list(&object(&["object", "start_time", "end_time", "results"], &json!({
            "object": words(&["bucket"]),
            "start_time": count(),
            "end_time": count(),
            "results": list(&object(&["object", "key", "model"], &json!({
                "object": words(&["usage"]),
                "key": text(),
                "model": text(),
                "num_model_requests": count(),
                "input_tokens": count(),
                "input_cached_tokens": count(),
                "output_tokens": count(),
            }))),
        }))),
        "has_more": {"enum": [false]},
        "next_page": {"type": "null"},
    }));
    /// A file with what it is for.
    FileUpload: object(&["file", "purpose"], &json!({
        "file": {"type": "string", "format": "binary"},
        "purpose": words(&["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]),
        "expires_after[anchor]": words(&["created_at"]),
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    }));
}

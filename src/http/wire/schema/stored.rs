//! What is stored, as it is told: each object says by its `object` or `type` what it is.

use serde_json::json;

use super::builders::{list, object, reference, text, words};

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
    /// A file with what it is for.
    FileUpload: object(&["file", "purpose"], &json!({
        "file": {"type": "string", "format": "binary"},
        "purpose": words(&["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]),
        "expires_after[anchor]": words(&["created_at"]),
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    }));
}

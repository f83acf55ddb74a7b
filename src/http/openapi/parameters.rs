//! What requests hold beside their bodies, as the document tells it.

use serde_json::{Value, json};

use crate::http::wire::bounds::{MAX_DEADLINE_MS, MAX_PAGE_ITEMS};
use crate::http::wire::schema::builders::reference;

/// A parameter beside the body.
#[derive(Clone, Copy)]
pub(super) enum Parameter {
    /// The `{id}` in the path.
    Id,
    /// The same, where it is a name of the model.
    ModelName,
    /// Items of a list behind this one.
    After,
    /// Most items of a list.
    Limit,
    /// Which items of a list come first.
    Order,
    /// Taken and without effect.
    Include,
    /// Whether the answer is a stream of events.
    Stream,
    /// The number of the event behind which a stream begins.
    StartingAfter,
    /// The `{item}` in the path.
    Item,
    /// Most files of a list.
    FileLimit,
    /// What files are for.
    Purpose,
    /// Behind this one, in Anthropic's words.
    AfterId,
    /// Before this one, in Anthropic's words.
    BeforeId,
    /// When the usage begins that is asked for.
    StartTime,
    /// When it ends.
    EndTime,
    /// How long a time each row stands for.
    BucketWidth,
    /// The name of a key.
    KeyName,
    /// Most batches of a list.
    BatchLimit,
    /// `x-sconce-deadline-ms`.
    Deadline,
}

impl Parameter {
    pub(super) fn describe(self) -> Value {
        let (place, name, schema) = match self {
            Self::Id => ("path", "id", json!({"type": "string", "minLength": 1})),
            Self::ModelName => ("path", "id", reference("ModelName")),
            Self::After => ("query", "after", json!({"type": "string"})),
            Self::Limit => ("query", "limit", up_to(MAX_PAGE_ITEMS)),
            Self::Order => ("query", "order", json!({"type": "string", "enum": ["asc", "desc"]})),
            Self::Include => {
                ("query", "include", json!({"type": "array", "items": {"type": "string"}}))
            }
            Self::Stream => ("query", "stream", json!({"type": "boolean"})),
            Self::StartingAfter => {
                ("query", "starting_after", json!({"type": "integer", "minimum": 0}))
            }
            Self::Item => ("path", "item", json!({"type": "string", "minLength": 1})),
            Self::FileLimit => ("query", "limit", up_to(10_000)),
            Self::Purpose => ("query", "purpose", json!({"type": "string"})),
            Self::AfterId => ("query", "after_id", json!({"type": "string"})),
            Self::BeforeId => ("query", "before_id", json!({"type": "string"})),
            Self::StartTime => ("query", "start_time", json!({"type": "integer", "minimum": 0})),
            Self::EndTime => ("query", "end_time", json!({"type": "integer", "minimum": 0})),
            Self::BucketWidth => {
                ("query", "bucket_width", json!({"type": "string", "enum": ["1h", "1d"]}))
            }
            Self::KeyName => ("query", "key", json!({"type": "string"})),
            Self::BatchLimit => ("query", "limit", up_to(1000)),
            Self::Deadline => {
                let schema = json!({"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS});
                ("header", "x-sconce-deadline-ms", schema)
            }
        };
        json!({"name": name, "in": place, "required": place == "path", "schema": schema})
    }
}

fn up_to(most: usize) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": most})
}

//! What depends on the model that is served; the document of a server says more than stands here.

use serde_json::json;

use super::builders::{any_of, count, text};

written! {
    /// A name that the model answers to.
    ModelName: text();
    /// A name that the model answers to; an empty one is the first.
    RequestedModel: text();
    /// The id of a token of the model.
    TokenId: count();
    /// How many numbers of an embedding to keep.
    EmbeddingDimensions: json!({"type": "integer", "minimum": 1});
    /// To how many tokens a text is cut; -1 for the most that the model takes.
    TruncatedLength: any_of(&[json!({"enum": [-1]}), json!({"type": "integer", "minimum": 1})]);
}

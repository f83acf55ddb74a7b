//! Texts that are always the same, for `#[schema(schema_with = ...)]`.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

/// Declares functions, each the schema of one text.
macro_rules! constants {
    ($($name:ident: $text:literal;)*) => {
        $(
            pub(crate) fn $name() -> RefOr<Schema> {
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some([$text])).into()
            }
        )*
    };
}

constants! {
    assistant: "assistant";
    chat_completion: "chat.completion";
    chat_completion_chunk: "chat.completion.chunk";
    disabled: "disabled";
    duration: "duration";
    embedding: "embedding";
    error: "error";
    function: "function";
    list: "list";
    max_output_tokens: "max_output_tokens";
    medium: "medium";
    message: "message";
    response: "response";
    response_compaction: "response.compaction";
    server_error: "server_error";
    structured_decision: "structured_decision";
    text_completion: "text_completion";
}

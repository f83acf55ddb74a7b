//! How the wire looks in the API's description, where serde's structs don't tell: what is read by
//! hand, what is one of a few words, and answers that no struct writes.
//!
//! A written schema is a type without values, so that a field can name it with
//! `#[schema(value_type = ...)]`; its JSON stands beside it in [`components`].

use serde_json::Value;

/// Declares schemas: a name, what it is, and its JSON.
macro_rules! written {
    ($($(#[doc = $doc:literal])* $name:ident: $body:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[allow(dead_code, reason = "some are only named in other schemas")]
            pub(crate) enum $name {}

            impl utoipa::PartialSchema for $name {
                fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                    // Its place; the JSON is put there when the document is made.
                    utoipa::openapi::schema::empty().into()
                }
            }

            impl utoipa::ToSchema for $name {}
        )*

        pub(super) fn components() -> Vec<(&'static str, serde_json::Value)> {
            vec![$((stringify!($name), $crate::http::wire::schema::builders::described(concat!($($doc),*), $body))),*]
        }
    };
}

pub(crate) mod answers;
pub(crate) mod audio;
pub(crate) mod builders;
pub(crate) mod chat;
pub(crate) mod constants;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod messages;
pub(crate) mod ollama;
pub(crate) mod responses;
pub(crate) mod served;
pub(crate) mod stored;

/// Names and JSON of all written schemas.
pub(crate) fn components() -> Vec<(&'static str, Value)> {
    let written = [
        answers::components(),
        audio::components(),
        chat::components(),
        decisions::components(),
        events::components(),
        messages::components(),
        ollama::components(),
        responses::components(),
        served::components(),
        stored::components(),
    ];
    written.into_iter().flatten().collect()
}

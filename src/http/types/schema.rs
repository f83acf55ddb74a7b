//! How the wire types that read JSON by hand look in the API's description.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::completions::PromptField;
use super::number::Int;
use super::sampling::StopField;

fn plain(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

fn list(of: impl Into<RefOr<Schema>>) -> ArrayBuilder {
    ArrayBuilder::new().items(of.into())
}

impl PartialSchema for Int {
    fn schema() -> RefOr<Schema> {
        plain(Type::Integer).into()
    }
}

impl ToSchema for Int {}

impl PartialSchema for StopField {
    fn schema() -> RefOr<Schema> {
        let strings = list(plain(Type::String)).max_items(Some(16));
        OneOfBuilder::new().item(plain(Type::String)).item(strings).into()
    }
}

impl ToSchema for StopField {}

impl PartialSchema for PromptField {
    fn schema() -> RefOr<Schema> {
        let ids = || list(plain(Type::Integer));
        OneOfBuilder::new()
            .item(plain(Type::String))
            .item(list(plain(Type::String)))
            .item(ids())
            .item(list(ids()))
            .into()
    }
}

impl ToSchema for PromptField {}

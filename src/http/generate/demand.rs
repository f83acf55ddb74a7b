//! What a request says its answer must be like: a schema, a pattern or a grammar, whatever the field
//! was called.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::structured::spec::GrammarSpec;

/// What an answer must be like, and the field that says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) spec: GrammarSpec,
    pub(crate) param: &'static str,
}

impl Demand {
    /// An answer that follows a schema. Checks that the value can be one at all; what it says is
    /// read where it is compiled.
    pub(crate) fn json_schema(schema: &Value, param: &'static str) -> Result<Self, ApiError> {
        Ok(Self { spec: schema_spec(schema, param)?, param })
    }

    /// An answer that is a JSON object.
    pub(crate) fn json_object(param: &'static str) -> Self {
        Self { spec: GrammarSpec::JsonObject, param }
    }
}

/// A value that can be a schema.
pub(crate) fn schema_spec(schema: &Value, param: &str) -> Result<GrammarSpec, ApiError> {
    if schema.is_object() || schema.is_boolean() {
        return Ok(GrammarSpec::JsonSchema(schema.clone()));
    }
    let message = format!("{param}: a JSON schema must be an object or a bool, got {schema}");
    Err(ApiError::field(param, message.chars().take(200).collect::<String>()))
}

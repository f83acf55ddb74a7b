//! `response_format` and `structured_outputs`.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::generate::demand::{Demand, schema_spec};
use crate::http::openai::sampling::SamplingBody;
use crate::http::request::fields::{FieldReader, text_member};
use crate::http::wire::response_format::{
    JsonObjectFormat, JsonSchemaFormat, PlainFormat, StructuralTagFormat, Structure,
    StructuredOutputsField,
};
use crate::structured::spec::{GrammarSpec, StructuralTag, Tag};

const FORMAT: &str = "response_format";
const OUTPUTS: &str = "structured_outputs";

/// What the answer must be like: as `format` says, else as `structured_outputs` or one of its fields
/// under another server's name does. Fields that are given twice must say the same; `name` is what
/// the protocol calls the format.
pub(crate) fn demand(
    format: Option<Demand>,
    name: &str,
    sampling: &SamplingBody,
    fields: &mut FieldReader,
) -> Result<Option<Demand>, ApiError> {
    let structured = sampling.own.structured_outputs.as_ref();
    let structured = structured.map(|value| structured_outputs(value, fields)).transpose()?;
    let mut given: Vec<(&str, Demand)> = format.map(|demand| (name, demand)).into_iter().collect();
    if let (Some(_), Some(_)) = (given.first(), &structured) {
        let message = format!("{name} and {OUTPUTS} can't both be given");
        return Err(ApiError::field(OUTPUTS, message));
    }
    given.extend(structured.map(|demand| (OUTPUTS, demand)));
    for (alias, field) in sampling.aliases.given() {
        let demand = constraint(field, alias, fields)?;
        match given.first() {
            Some((other, first)) if first.spec != demand.spec => {
                let message = format!("{other} and {alias} say different things");
                return Err(ApiError::field(alias, message));
            }
            _ => given.push((alias, demand)),
        }
    }
    Ok(given.into_iter().next().map(|(_, demand)| demand))
}

/// `response_format` of a chat completion or a completion.
pub(crate) fn response_format(
    format: Option<&Value>,
    fields: &mut FieldReader,
) -> Result<Option<Demand>, ApiError> {
    const SCHEMA: &str = "response_format.schema";
    let Some(format) = format else { return Ok(None) };
    match text_member(format, "type") {
        Some("text") => {
            fields.variant::<PlainFormat>(format, FORMAT)?;
            Ok(None)
        }
        Some("json_object") => {
            let JsonObjectFormat { schema } = fields.variant(format, FORMAT)?;
            let schema = schema.map(|schema| Demand::json_schema(&schema, SCHEMA)).transpose()?;
            Ok(Some(schema.unwrap_or_else(|| Demand::json_object(FORMAT))))
        }
        Some("json_schema") => named_schema(fields.variant(format, FORMAT)?).map(Some),
        Some("structural_tag") => {
            let spec = structural_tag(fields.variant(format, FORMAT)?, FORMAT)?;
            Ok(Some(Demand { spec, param: FORMAT }))
        }
        _ => {
            let shown: String = format.to_string().chars().take(80).collect();
            let message = format!(
                "response_format.type must be text, json_object, json_schema or structural_tag, \
                 got {shown}"
            );
            Err(ApiError::field(FORMAT, message))
        }
    }
}

fn named_schema(format: JsonSchemaFormat) -> Result<Demand, ApiError> {
    const SCHEMA: &str = "response_format.json_schema.schema";
    let named = format.json_schema.ok_or_else(|| {
        let message = "response_format.json_schema is required with the type json_schema";
        ApiError::field("response_format.json_schema", message)
    })?;
    if named.name.is_none_or(|name| name.is_empty()) {
        let param = "response_format.json_schema.name";
        return Err(ApiError::field(param, format!("{param} is required")));
    }
    match named.schema {
        None => Ok(Demand::json_object(SCHEMA)),
        Some(schema) => Demand::json_schema(&schema, SCHEMA),
    }
}

fn structured_outputs(value: &Value, fields: &mut FieldReader) -> Result<Demand, ApiError> {
    const NAMES: [&str; 6] = [
        "structured_outputs.json",
        "structured_outputs.json_object",
        "structured_outputs.regex",
        "structured_outputs.choice",
        "structured_outputs.grammar",
        "structured_outputs.structural_tag",
    ];
    let invalid = |message: String| ApiError::field(OUTPUTS, message);
    let object = value.as_object();
    let object = object.ok_or_else(|| invalid(format!("{OUTPUTS} must be an object")))?;
    let given = object.iter().filter(|(_, value)| !value.is_null());
    let given: Vec<&str> = given.map(|(name, _)| name.as_str()).collect();
    let [name] = given[..] else {
        return Err(invalid(format!(
            "{OUTPUTS} must have exactly one of json, json_object, regex, choice, grammar and \
             structural_tag, got {given:?}"
        )));
    };
    let is_named = |param: &&&str| param.rsplit('.').next() == Some(name);
    let param = NAMES.iter().find(is_named).copied().unwrap_or(OUTPUTS);
    constraint(fields.object(value, OUTPUTS)?, param, fields)
}

/// What the one field that is given asks for; `param` is where it was given.
fn constraint(
    field: StructuredOutputsField,
    param: &'static str,
    fields: &mut FieldReader,
) -> Result<Demand, ApiError> {
    let demand = |spec| Ok(Demand { spec, param });
    match field {
        StructuredOutputsField { json: Some(schema), .. } => {
            Demand::json_schema(&parsed(schema, param)?, param)
        }
        StructuredOutputsField { json_object: Some(true), .. } => Ok(Demand::json_object(param)),
        StructuredOutputsField { regex: Some(regex), .. } => demand(GrammarSpec::Regex(regex)),
        StructuredOutputsField { choice: Some(choice), .. } => {
            let choices = serde_json::from_value(choice).map_err(|_| {
                ApiError::field(param, format!("{param} must be a list of strings"))
            })?;
            demand(GrammarSpec::Choice(choices))
        }
        StructuredOutputsField { grammar: Some(grammar), .. } => {
            demand(GrammarSpec::from_grammar_text(&grammar))
        }
        StructuredOutputsField { structural_tag: Some(tag), .. } => {
            let tag = fields.object(&parsed(tag, param)?, param)?;
            demand(structural_tag(tag, param)?)
        }
        _ => Err(ApiError::unsupported(param, "this value")),
    }
}

/// A value that may come as its JSON in a string.
fn parsed(value: Value, param: &str) -> Result<Value, ApiError> {
    let Value::String(text) = value else { return Ok(value) };
    serde_json::from_str(&text)
        .map_err(|error| ApiError::field(param, format!("{param} is no JSON: {error}")))
}

fn structural_tag(format: StructuralTagFormat, path: &str) -> Result<GrammarSpec, ApiError> {
    let invalid = |what: &str| ApiError::field(path, format!("{path}: {what}"));
    let structures = format.structures.ok_or_else(|| invalid("structures must be a list"))?;
    let triggers = format.triggers.ok_or_else(|| invalid("triggers must be a list of strings"))?;
    let tag = |Structure { begin, schema, end }: Structure| {
        let content = match schema {
            None => GrammarSpec::JsonObject,
            Some(schema) => schema_spec(&schema, path)?,
        };
        Ok(Tag { begin, content: Box::new(content), end })
    };
    let tags: Result<Vec<Tag>, ApiError> = structures.into_iter().map(tag).collect();
    Ok(GrammarSpec::StructuralTag(StructuralTag {
        tags: tags?,
        triggers,
        at_least_one: false,
        stop_after_first: false,
    }))
}

//! Keywords of objects.

use serde_json::{Map, Value, json};

use super::super::error::GrammarError;
use super::document::constraints;
use super::formats::{self, Format};
use super::pattern;
use super::rewrite::{Parts, Place, Rewriter, says_nothing};
use super::scalars::count;
use super::types::Types;

/// Objects have fewer properties than this, so a bound above it is none.
const REACHABLE_PROPERTIES: u64 = 1_000_000;
/// Optional properties of which "at least one" is spelled out.
const MAX_ALTERNATIVES: usize = 40;
/// Keywords beside which an unevaluated property may have been evaluated elsewhere.
const EVALUATE_ELSEWHERE: [&str; 7] =
    ["$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"];

/// Adds what the schema says of objects.
pub(super) fn rewrite(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    if !parts.types.intersects(Types::OBJECT) {
        return Ok(());
    }
    let properties = rewriter.schemas(parts.map, "properties", at)?;
    if let Some(properties) = properties {
        parts.body.insert("properties".to_owned(), Value::Object(properties));
    }
    patterns(rewriter, parts, at)?;
    additional(rewriter, parts, at)?;
    let required = required(parts, at)?;
    names(rewriter, parts, at)?;
    counts(parts, required, at)?;
    dependencies(rewriter, parts, at)
}

impl Rewriter<'_> {
    /// The schemas in the object behind `keyword`.
    fn schemas(
        &mut self,
        map: &Map<String, Value>,
        keyword: &str,
        at: Place<'_>,
    ) -> Result<Option<Map<String, Value>>, GrammarError> {
        let schemas = match map.get(keyword) {
            None => return Ok(None),
            Some(Value::Object(schemas)) => schemas,
            Some(_) => {
                let reason = format!("`{keyword}` is not an object");
                return Err(GrammarError::malformed(at.pointer, reason));
            }
        };
        let rewrite = |(name, schema): (&String, &Value)| {
            Ok((name.clone(), self.child(schema, at, &[keyword, name])?))
        };
        schemas.iter().map(rewrite).collect::<Result<_, _>>().map(Some)
    }
}

fn patterns(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let refuse =
        |reason: String| GrammarError::unsupported("patternProperties", at.pointer, reason);
    let Some(schemas) = rewriter.schemas(parts.map, "patternProperties", at)? else {
        return Ok(());
    };
    let mut translated = Map::new();
    for (name, schema) in schemas {
        let pattern = pattern::translate(&name).map_err(refuse)?;
        if translated.insert(pattern, schema).is_some() {
            return Err(refuse(format!("{name:?} matches the same names as another pattern")));
        }
    }
    parts.body.insert("patternProperties".to_owned(), Value::Object(translated));
    Ok(())
}

fn additional(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let map = parts.map;
    let unevaluated = map.get("unevaluatedProperties").filter(|schema| !says_nothing(schema));
    let (keyword, schema) = match (map.get("additionalProperties"), unevaluated) {
        (Some(schema), _) => ("additionalProperties", schema),
        (None, Some(schema)) => {
            if constraints(map).any(|(keyword, _)| EVALUATE_ELSEWHERE.contains(&keyword)) {
                let reason = "it depends on what other keywords of the schema looked at";
                let keyword = "unevaluatedProperties";
                return Err(GrammarError::unsupported(keyword, at.pointer, reason));
            }
            ("unevaluatedProperties", schema)
        }
        (None, None) => {
            if at.alone && names_all(map) {
                parts.body.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            return Ok(());
        }
    };
    let schema = rewriter.child(schema, at, &[keyword])?;
    parts.body.insert("additionalProperties".to_owned(), schema);
    Ok(())
}

/// Whether a schema that says nothing of further properties names all that an object is meant to
/// have. What it leaves open is then left out, or a model may invent names for ever: fewer values
/// than could be, and none that are wrong. Whoever wants them writes `additionalProperties: true`.
fn names_all(map: &Map<String, Value>) -> bool {
    let counted = ["minProperties", "maxProperties", "unevaluatedProperties"];
    let Some(Value::Object(properties)) = map.get("properties") else { return false };
    let required = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_named = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    required.iter().all(is_named) && !counted.iter().any(|keyword| map.contains_key(*keyword))
}

fn required(parts: &mut Parts<'_>, at: Place<'_>) -> Result<u64, GrammarError> {
    let Some(value) = parts.map.get("required") else { return Ok(0) };
    let names = value.as_array().and_then(|names| {
        let texts = names.iter().map(Value::as_str);
        texts.collect::<Option<std::collections::BTreeSet<_>>>()
    });
    let Some(names) = names else {
        let reason = "`required` is not a list of names";
        return Err(GrammarError::malformed(at.pointer, reason));
    };
    parts.body.insert("required".to_owned(), value.clone());
    Ok(names.len() as u64)
}

// Free names can repeat, and of a repeated name only the last value counts: how many different
// ones there are is not known to an automaton, beyond the first. Nor is the number of optional
// properties, beyond one.
fn counts(parts: &mut Parts<'_>, required: u64, at: Place<'_>) -> Result<(), GrammarError> {
    let min = count(parts.map, "minProperties", at)?.filter(|min| *min > required);
    let max = count(parts.map, "maxProperties", at)?.filter(|max| *max < REACHABLE_PROPERTIES);
    let empty = Map::new();
    let properties = parts.body.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let is_required = |name: &String| {
        let names = parts.map.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let optional: Vec<String> =
        properties.keys().filter(|name| !is_required(name)).cloned().collect();
    let closed = parts.body.get("additionalProperties") == Some(&Value::Bool(false))
        && !parts.body.contains_key("patternProperties");
    let max = max.filter(|max| !closed || *max < properties.len() as u64);
    let (min, max) = match (min, max) {
        (None, None) => return Ok(()),
        (Some(1), None) if required == 0 && !closed && !optional.is_empty() => {
            return at_least_one(parts, optional, at);
        }
        bounds => bounds,
    };
    let keyword = if max.is_some() { "maxProperties" } else { "minProperties" };
    let refuse = |reason: &str| Err(GrammarError::unsupported(keyword, at.pointer, reason));
    let one_more =
        min.is_none_or(|min| min == required + 1) && max.is_none_or(|max| max == required + 1);
    if !optional.is_empty() && (!closed || !one_more) {
        return refuse("optional properties are not counted, beyond one");
    }
    if min.is_some_and(|min| min > required + 1) && !closed {
        return refuse("different free names are not told apart");
    }
    for (keyword, bound) in [("minProperties", min), ("maxProperties", max)] {
        if let Some(bound) = bound {
            parts.body.insert(keyword.to_owned(), json!(bound));
        }
    }
    Ok(())
}

// One of the named properties, or none of them and a free one.
fn at_least_one(
    parts: &mut Parts<'_>,
    optional: Vec<String>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    if optional.len() > MAX_ALTERNATIVES {
        let reason = format!("above {MAX_ALTERNATIVES} optional properties");
        return Err(GrammarError::unsupported("minProperties", at.pointer, reason));
    }
    let mut any: Vec<Value> = optional.iter().map(|name| json!({"required": [name]})).collect();
    let absent: Map<_, _> = optional.into_iter().map(|name| (name, Value::Bool(false))).collect();
    any.push(json!({"properties": absent, "minProperties": 1}));
    parts.also_of_same_type(json!({"anyOf": any}));
    Ok(())
}

// A constraint on names limits the named properties to those that keep it, and the others to a
// pattern or a list of names.
fn names(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let refuse =
        |reason: &str| GrammarError::unsupported("propertyNames", at.pointer, reason.to_owned());
    let Some(schema) = parts.map.get("propertyNames") else { return Ok(()) };
    let schema = rewriter.document.follow(schema);
    if says_nothing(schema) || *schema == json!({"type": "string"}) {
        return Ok(());
    }
    if parts.body.contains_key("patternProperties") {
        return Err(refuse("not beside patternProperties"));
    }
    let additional = parts.body.remove("additionalProperties").unwrap_or(Value::Bool(true));
    let mut properties = match parts.body.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    if let Some(allowed) = listed_names(schema) {
        for (name, schema) in &mut properties {
            if !allowed.contains(&name.as_str()) {
                *schema = Value::Bool(false);
            }
        }
        for name in allowed {
            properties.entry(name).or_insert_with(|| additional.clone());
        }
    } else {
        let pattern = name_pattern(schema)
            .ok_or_else(|| refuse("only one of pattern, format, enum, const and lengths"))?;
        let pattern = pattern::translate(&pattern).map_err(|reason| refuse(&reason))?;
        for (name, schema) in &mut properties {
            if !pattern::is_match(&pattern, name).map_err(|reason| refuse(&reason))? {
                *schema = Value::Bool(false);
            }
        }
        parts.body.insert("patternProperties".to_owned(), json!({pattern: additional}));
    }
    parts.body.insert("properties".to_owned(), Value::Object(properties));
    parts.body.insert("additionalProperties".to_owned(), Value::Bool(false));
    Ok(())
}

fn listed_names(schema: &Value) -> Option<Vec<&str>> {
    let map = schema.as_object()?;
    let mut rest = constraints(map).filter(|(keyword, _)| *keyword != "type");
    let (keyword, value) = rest.next().filter(|_| rest.next().is_none())?;
    match keyword {
        "const" => Some(vec![value.as_str()?]),
        "enum" => Some(value.as_array()?.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn name_pattern(schema: &Value) -> Option<String> {
    let map = schema.as_object()?;
    let rest: Vec<_> = constraints(map).filter(|(keyword, _)| *keyword != "type").collect();
    if rest.iter().all(|(keyword, _)| ["minLength", "maxLength"].contains(keyword)) {
        let bound = |keyword| map.get(keyword).map_or(Some(None), |n| n.as_u64().map(Some));
        let (min, max) = (bound("minLength")?.unwrap_or(0), bound("maxLength")?);
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        return Some(format!("^[^]{{{min},{max}}}$"));
    }
    match rest[..] {
        [("pattern", Value::String(pattern))] => Some(pattern.clone()),
        [("format", Value::String(name))] => match formats::lookup(name)? {
            Format::Pattern(pattern) => Some(pattern.to_owned()),
            Format::Annotation => None,
        },
        _ => None,
    }
}

// A property that asks for others: it is absent, or what it asks for holds.
fn dependencies(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    for keyword in ["dependentRequired", "dependentSchemas", "dependencies"] {
        let dependencies = match parts.map.get(keyword) {
            None => continue,
            Some(Value::Object(dependencies)) => dependencies,
            Some(_) => {
                let reason = format!("`{keyword}` is not an object");
                return Err(GrammarError::malformed(at.pointer, reason));
            }
        };
        for (name, asked) in dependencies {
            let holds = match asked {
                Value::Array(_) => json!({"required": asked}),
                Value::String(other) => json!({"required": [other]}),
                schema => rewriter.child(schema, at, &[keyword, name])?,
            };
            let absent = json!({"properties": {name: false}});
            parts.also.push(json!({"anyOf": [absent, holds]}));
        }
    }
    Ok(())
}

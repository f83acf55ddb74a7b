//! Keywords of arrays.

use serde_json::{Value, json};

use super::super::error::GrammarError;
use super::document::constraints;
use super::limits::{MAX_COUNT, too_many};
use super::rewrite::{Parts, Place, Rewriter, says_nothing};
use super::scalars::count;
use super::types::Types;

/// A longer array is out of any context's reach, so a bound above this is none.
const REACHABLE_ITEMS: u64 = 1_000_000;
/// Keywords beside which an unevaluated item may have been evaluated elsewhere.
const EVALUATE_ELSEWHERE: [&str; 7] =
    ["$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "contains"];

/// Adds what the schema says of arrays.
pub(super) fn rewrite(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    if !parts.types.intersects(Types::ARRAY) {
        return Ok(());
    }
    let map = parts.map;
    let max = count(map, "maxItems", at)?;
    if let Some(min) = count(map, "minItems", at)? {
        if min > MAX_COUNT {
            return Err(too_many("minItems", min));
        }
        parts.body.insert("minItems".to_owned(), json!(min));
    }
    if let Some(max) = max.filter(|max| *max < REACHABLE_ITEMS) {
        parts.body.insert("maxItems".to_owned(), json!(max));
    }
    refuse_comparisons(parts, max, at)?;
    items(rewriter, parts, at)
}

fn refuse_comparisons(
    parts: &Parts<'_>,
    max: Option<u64>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let map = parts.map;
    if map.get("uniqueItems").is_some_and(|unique| *unique != Value::Bool(false))
        && max.is_none_or(|max| max > 1)
    {
        let reason = "an automaton doesn't remember earlier items";
        return Err(GrammarError::unsupported("uniqueItems", at.pointer, reason));
    }
    let optional = map.get("minContains") == Some(&json!(0)) && !map.contains_key("maxContains");
    if map.contains_key("contains") && !optional {
        let reason = "an automaton doesn't look for an item among others";
        return Err(GrammarError::unsupported("contains", at.pointer, reason));
    }
    Ok(())
}

// Items by position, then all others.
fn items(
    rewriter: &mut Rewriter<'_>,
    parts: &mut Parts<'_>,
    at: Place<'_>,
) -> Result<(), GrammarError> {
    let map = parts.map;
    let tuples_are_items = rewriter.document.tuples_are_items;
    let (first, rest) = match map.get("items") {
        Some(Value::Array(first)) => (Some(("items", first)), "additionalItems"),
        _ => match map.get("prefixItems").filter(|_| !tuples_are_items) {
            Some(Value::Array(first)) => (Some(("prefixItems", first)), "items"),
            None => (None, "items"),
            Some(_) => {
                return Err(GrammarError::malformed(at.pointer, "`prefixItems` is not a list"));
            }
        },
    };
    if let Some((keyword, first)) = first {
        let rewrite = |(index, item): (usize, &Value)| {
            rewriter.child(item, at, &[keyword, &index.to_string()])
        };
        let first: Vec<_> = first.iter().enumerate().map(rewrite).collect::<Result<_, _>>()?;
        parts.body.insert("prefixItems".to_owned(), Value::Array(first));
    }
    let unevaluated = map.get("unevaluatedItems").filter(|schema| !says_nothing(schema));
    let rest = match (map.get_key_value(rest), unevaluated) {
        (Some((keyword, schema)), _) => Some((keyword.as_str(), schema)),
        (None, Some(schema)) => {
            if constraints(map).any(|(keyword, _)| EVALUATE_ELSEWHERE.contains(&keyword)) {
                let reason = "it depends on what other keywords of the schema looked at";
                return Err(GrammarError::unsupported("unevaluatedItems", at.pointer, reason));
            }
            Some(("unevaluatedItems", schema))
        }
        (None, None) => None,
    };
    if let Some((keyword, schema)) = rest {
        let rest = rewriter.child(schema, at, &[keyword])?;
        parts.body.insert("items".to_owned(), rest);
    }
    Ok(())
}

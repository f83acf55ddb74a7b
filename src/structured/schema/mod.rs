//! JSON Schema, made ready for the automata: everything in it is enforced, or it is refused.
//!
//! [`prepare`] rewrites a schema of any draft from 4 on into the part of JSON Schema that
//! llguidance enforces (`rewrite`), and estimates what merging its parts will cost (`cost`), since
//! nothing stops that once it runs. Knows no vocabulary.

mod arrays;
mod cost;
mod disjoint;
mod document;
mod formats;
mod limits;
mod negate;
mod objects;
mod pattern;
mod rewrite;
mod scalars;
mod types;

use serde_json::{Value, json};

use super::error::GrammarError;
use document::Document;
use limits::MAX_DEPTH;
use rewrite::{Rewriter, Rule};

/// JSON values in a schema, annotations included.
const MAX_VALUES: usize = 500_000;
/// White space between two tokens of JSON: one space, or a line end and an indentation. There is no
/// more than one such run in a place, so a model that likes white space can't write it for ever.
const WHITE_SPACE: &str = r"\x20|\n(?:\x20{0,40}|\t{1,10})";
/// Escapes in strings. Without `\u`: a name written with it would pass for another name.
const ESCAPES: &str = "nrbtf\\\"";

/// What schemas say of values, type by type.
const RULES: &[Rule] = &[scalars::rewrite, arrays::rewrite, objects::rewrite];

/// `schema` in the form that llguidance enforces in full.
pub(super) fn prepare(schema: &Value) -> Result<Value, GrammarError> {
    measure(schema, 0, &mut 0)?;
    let document = Document::new(schema);
    let prepared = Rewriter::new(&document, RULES).document()?;
    cost::check(&prepared)?;
    let mut prepared = match prepared {
        Value::Bool(true) => json!({}),
        Value::Bool(false) => {
            return Err(GrammarError::Unsatisfiable("the schema is false".to_owned()));
        }
        prepared => prepared,
    };
    prepared["x-guidance"] = json!({
        "whitespace_flexible": true,
        "whitespace_pattern": WHITE_SPACE,
        "json_allowed_escapes": ESCAPES,
    });
    Ok(prepared)
}

// Values in schemas nest beside the schemas, so this bound is the looser one.
fn measure(value: &Value, depth: usize, count: &mut usize) -> Result<(), GrammarError> {
    *count += 1;
    if *count > MAX_VALUES {
        let (actual, limit) = (*count, MAX_VALUES);
        return Err(GrammarError::TooLarge { what: "values in the schema", actual, limit });
    }
    if depth > 2 * MAX_DEPTH {
        let (actual, limit) = (depth, 2 * MAX_DEPTH);
        return Err(GrammarError::TooLarge { what: "nesting of the schema", actual, limit });
    }
    match value {
        Value::Object(map) => map.values().try_for_each(|v| measure(v, depth + 1, count)),
        Value::Array(items) => items.iter().try_for_each(|v| measure(v, depth + 1, count)),
        _ => Ok(()),
    }
}

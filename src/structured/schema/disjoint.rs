//! Proofs that no value satisfies two schemas at once.
//!
//! `oneOf` over schemas that exclude each other is `anyOf`, which an automaton can follow. A proof
//! looks at types, constants, ranges and the properties that tell the branches apart; where it
//! finds nothing the schemas may still be disjoint.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::document::Document;
use super::formats::{self, Format};
use super::pattern::{self, Texts};
use super::types::Types;

const MAX_DEPTH: usize = 6;
/// Pairs of schemas that one proof may look at.
const FUEL: usize = 20_000;

/// Whether `a` and `b` are proven to exclude each other among the values of type `within`.
pub(super) fn are_disjoint(document: &Document<'_>, a: &Value, b: &Value, within: Types) -> bool {
    let proof = Proof { document, fuel: Cell::new(FUEL) };
    proof.disjoint(a, b, within, 0)
}

struct Proof<'a> {
    document: &'a Document<'a>,
    fuel: Cell<usize>,
}

impl<'a> Proof<'a> {
    fn disjoint(&self, a: &'a Value, b: &'a Value, within: Types, depth: usize) -> bool {
        if depth > MAX_DEPTH || self.fuel.get() == 0 {
            return false;
        }
        self.fuel.set(self.fuel.get() - 1);
        let (a, b) = (self.document.follow(a), self.document.follow(b));
        let (Value::Object(a_map), Value::Object(b_map)) = (a, b) else {
            return *a == Value::Bool(false) || *b == Value::Bool(false);
        };
        let within = within.intersection(self.types(a, depth)).intersection(self.types(b, depth));
        within.is_empty()
            || self.parts_exclude(a_map, b, within, depth)
            || self.parts_exclude(b_map, a, within, depth)
            || constants_differ(a_map, b_map)
            || within == Types::STRING && texts_differ(a_map, b_map)
            || is_number(within) && ranges_differ(a_map, b_map)
            || within == Types::OBJECT && self.properties_differ(a_map, b_map, depth)
    }

    // Whether what `whole` is composed of excludes `other`: one member of allOf, or every member
    // of anyOf.
    fn parts_exclude(
        &self,
        whole: &'a Map<String, Value>,
        other: &'a Value,
        within: Types,
        depth: usize,
    ) -> bool {
        let members = |keyword| whole.get(keyword).and_then(Value::as_array);
        let excludes = |part: &'a Value| self.disjoint(part, other, within, depth + 1);
        let all_of = members("allOf").is_some_and(|parts| parts.iter().any(excludes));
        all_of
            || ["anyOf", "oneOf"]
                .iter()
                .any(|keyword| members(keyword).is_some_and(|parts| parts.iter().all(excludes)))
    }

    fn types(&self, schema: &'a Value, depth: usize) -> Types {
        let Value::Object(map) = self.document.follow(schema) else {
            return if *schema == Value::Bool(false) { Types::NONE } else { Types::ALL };
        };
        let mut types = Types::of(map);
        if let Some(values) = constants(map) {
            let named = values.iter().map(|value| Types::of_value(value));
            types = types.intersection(named.fold(Types::NONE, Types::union));
        }
        if depth > MAX_DEPTH {
            return types;
        }
        let members = |keyword| map.get(keyword).and_then(Value::as_array).into_iter();
        for part in members("allOf").flatten() {
            types = types.intersection(self.types(part, depth + 1));
        }
        for parts in members("anyOf").chain(members("oneOf")) {
            let any = parts.iter().map(|part| self.types(part, depth + 1));
            types = types.intersection(any.fold(Types::NONE, Types::union));
        }
        types
    }

    // Two objects exclude each other when a property that one of them requires has excluding
    // schemas.
    fn properties_differ(
        &self,
        a: &'a Map<String, Value>,
        b: &'a Map<String, Value>,
        depth: usize,
    ) -> bool {
        let names = |map: &'a Map<String, Value>| {
            map.get("required").and_then(Value::as_array).into_iter().flatten()
        };
        let mut required = names(a).chain(names(b)).filter_map(Value::as_str);
        required
            .any(|name| self.disjoint(property(a, name), property(b, name), Types::ALL, depth + 1))
    }
}

fn property<'a>(object: &'a Map<String, Value>, name: &str) -> &'a Value {
    const ANY: &Value = &Value::Bool(true);
    let named = object.get("properties").and_then(|properties| properties.get(name));
    named.unwrap_or_else(|| match object.get("additionalProperties") {
        Some(schema) if !object.contains_key("patternProperties") => schema,
        _ => ANY,
    })
}

fn constants(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    if let Some(value) = schema.get("const") {
        return Some(vec![value]);
    }
    Some(schema.get("enum")?.as_array()?.iter().collect())
}

fn constants_differ(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let (Some(a), Some(b)) = (constants(a), constants(b)) else { return false };
    // 1 and 1.0 are one value: numbers are compared as such.
    let equal = |x: &Value, y: &Value| x == y || (x.is_number() && x.as_f64() == y.as_f64());
    a.iter().all(|x| x.is_string() || x.is_number() || x.is_boolean() || x.is_null())
        && !a.iter().any(|x| b.iter().any(|y| equal(x, y)))
}

fn texts_differ(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let (Some(a), Some(b)) = (texts(a), texts(b)) else { return false };
    pattern::are_disjoint(&a, &b)
}

// What constants, or else a pattern or a format, say of a string.
fn texts(schema: &Map<String, Value>) -> Option<Texts<'_>> {
    if let Some(values) = constants(schema) {
        return Some(Texts::Listed(values.into_iter().filter_map(Value::as_str).collect()));
    }
    let text = |keyword| schema.get(keyword).and_then(Value::as_str);
    let pattern = text("pattern").or_else(|| match formats::lookup(text("format")?)? {
        Format::Pattern(pattern) => Some(pattern),
        Format::Annotation => None,
    })?;
    pattern::translate(pattern).ok().map(Texts::Matching)
}

fn ranges_differ(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let bound = |map: &Map<String, Value>, keyword| map.get(keyword).and_then(Value::as_f64);
    let ends_before = |x: &Map<String, Value>, y: &Map<String, Value>| {
        let (max, min) = (bound(x, "maximum"), bound(y, "minimum"));
        let (below, above) = (bound(x, "exclusiveMaximum"), bound(y, "exclusiveMinimum"));
        matches!((max, min), (Some(max), Some(min)) if max < min)
            || matches!((below, min), (Some(below), Some(min)) if below <= min)
            || matches!((max, above), (Some(max), Some(above)) if max <= above)
    };
    ends_before(a, b) || ends_before(b, a)
}

fn is_number(types: Types) -> bool {
    types.intersection(Types::NUMBER) == types
}

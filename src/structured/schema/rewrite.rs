//! One schema, rewritten so that the automata enforce all of it.
//!
//! What comes out uses only keywords that llguidance enforces, no draft's peculiarities, no
//! identifiers, and references of the one form `#/$defs/<n>`. Keywords that have no automaton are
//! refused where they constrain anything; everything that constrains nothing is dropped. What a
//! keyword says of other types than those that the schema allows constrains nothing.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::error::GrammarError;
use super::disjoint::are_disjoint;
use super::document::{Document, constraints, escape_token};
use super::limits::{MAX_DEPTH, MAX_EXACT, MAX_NODES, MIN_EXACT};
use super::negate::{negate, negate_beside};
use super::types::Types;

/// Applied in the order in which they stand; all else describes the value itself.
const APPLICATORS: [&str; 5] = ["const", "enum", "$ref", "allOf", "anyOf"];

/// Keywords that may speak of members of which `properties` and `items` speak too.
const SPEAK_OF_MEMBERS: [&str; 14] = [
    "$ref",
    "const",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
];

/// Rewrites the schemas of one document.
pub(super) struct Rewriter<'a> {
    pub document: &'a Document<'a>,
    // Names of the definitions.
    names: HashMap<Target, String>,
    pending: Vec<Target>,
    num_nodes: usize,
    rules: &'a [Rule],
    /// Every `multipleOf` of the document, as decimal digits and their scale.
    pub multiples: Vec<(u32, u32)>,
}

/// A schema that is referred to: its JSON pointer in the document, and [`Place::alone`]. One that
/// is alone in one place and beside others in another becomes two definitions.
type Target = (String, bool);

/// Adds what the keywords of one type of values say.
pub(super) type Rule = fn(&mut Rewriter<'_>, &mut Parts<'_>, Place<'_>) -> Result<(), GrammarError>;

/// Where the rewriter stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    /// JSON pointer in the document.
    pub pointer: &'p str,
    pub depth: usize,
    /// Whether no other schema speaks of the members of the same value.
    pub alone: bool,
}

/// One schema object on its way out.
pub(super) struct Parts<'m> {
    pub map: &'m Map<String, Value>,
    /// The types that the schema allows.
    pub types: Types,
    /// Keywords that describe the value itself. They stay together: `additionalProperties` means
    /// nothing without its `properties`.
    pub body: Map<String, Value>,
    /// Rewritten schemas that must hold as well.
    pub also: Vec<Value>,
}

impl Parts<'_> {
    /// `schema` must hold as well. Saying the type again keeps the merge small: a schema without
    /// one is six, of a type each.
    pub(super) fn also_of_same_type(&mut self, mut schema: Value) {
        if let Some(types) = self.map.get("type") {
            schema["type"] = types.clone();
        }
        self.also.push(schema);
    }
}

impl<'a> Rewriter<'a> {
    /// Every schema object is rewritten by all `rules`, in their order.
    pub(super) fn new(document: &'a Document<'a>, rules: &'a [Rule]) -> Self {
        let (names, pending, multiples) = (HashMap::new(), Vec::new(), Vec::new());
        Self { document, names, pending, num_nodes: 0, rules, multiples }
    }

    /// Rewrites the whole document.
    pub(super) fn document(&mut self) -> Result<Value, GrammarError> {
        let root = self.schema(self.document.root, Place { pointer: "", depth: 0, alone: true })?;
        let mut definitions = Map::new();
        while let Some(target) = self.pending.pop() {
            let (pointer, alone) = &target;
            let schema = self.document.root.pointer(pointer);
            let schema = schema.expect("pending definitions were found when they were named");
            let definition = self.schema(schema, Place { pointer, depth: 0, alone: *alone })?;
            definitions.insert(self.names[&target].clone(), definition);
        }
        let Value::Object(mut root) = root else { return Ok(root) };
        if !definitions.is_empty() {
            root.insert("$defs".to_owned(), Value::Object(definitions));
        }
        Ok(Value::Object(root))
    }

    /// Rewrites one schema.
    pub(super) fn schema(&mut self, schema: &Value, at: Place<'_>) -> Result<Value, GrammarError> {
        self.num_nodes += 1;
        if self.num_nodes > MAX_NODES {
            let (actual, limit) = (self.num_nodes, MAX_NODES);
            return Err(GrammarError::TooLarge { what: "subschemas", actual, limit });
        }
        if at.depth > MAX_DEPTH {
            let (actual, limit) = (at.depth, MAX_DEPTH);
            return Err(GrammarError::TooLarge { what: "nesting of schemas", actual, limit });
        }
        match schema {
            Value::Bool(_) => Ok(schema.clone()),
            Value::Object(map) => self.object(map, at),
            _ => Err(GrammarError::malformed(at.pointer, "a schema is an object or a boolean")),
        }
    }

    /// Rewrites a subschema of the schema at `at`.
    pub(super) fn child(
        &mut self,
        schema: &Value,
        at: Place<'_>,
        path: &[&str],
    ) -> Result<Value, GrammarError> {
        let tokens = path.iter().map(|token| escape_token(token));
        let pointer = tokens.fold(at.pointer.to_owned(), |p, token| p + "/" + &token);
        self.schema(schema, Place { pointer: &pointer, depth: at.depth + 1, ..at })
    }

    fn object(&mut self, map: &Map<String, Value>, at: Place<'_>) -> Result<Value, GrammarError> {
        let at = Place { alone: at.alone && leaves_alone(map), ..at };
        if self.document.ref_hides_siblings && map.contains_key("$ref") {
            let mut out = Map::new();
            out.insert("$ref".to_owned(), Value::from(self.reference(&map["$ref"], at)?));
            return Ok(Value::Object(out));
        }
        refuse_unenforceable(map, at)?;
        let types = match map.get("type") {
            None => Types::ALL,
            Some(named) => Types::parse(named).ok_or_else(|| {
                GrammarError::malformed(at.pointer, format!("{named} is no value of `type`"))
            })?,
        };
        let mut parts = Parts { map, types, body: Map::new(), also: Vec::new() };
        for rule in self.rules {
            rule(self, &mut parts, at)?;
        }
        self.one_of(&mut parts, at)?;
        self.conditions(&mut parts, at)?;
        self.assemble(parts, at)
    }

    // The body stands where its first keyword stood, for it is there that properties have their
    // place in the order of all properties.
    fn assemble(&mut self, parts: Parts<'_>, at: Place<'_>) -> Result<Value, GrammarError> {
        let Parts { map, mut body, mut also, .. } = parts;
        if let Some(types) = map.get("type") {
            body.insert("type".to_owned(), types.clone());
        }
        let mut out = Map::new();
        let only_type = body.keys().all(|keyword| keyword == "type");
        for (keyword, value) in map {
            if APPLICATORS.contains(&keyword.as_str()) {
                out.insert(keyword.clone(), self.applicator(keyword, value, at)?);
            } else if body.contains_key(keyword) && (only_type || keyword != "type") {
                out.append(&mut body);
            }
        }
        out.append(&mut body);
        if !also.is_empty() {
            match out.entry("allOf").or_insert_with(|| json!([])) {
                Value::Array(all) => all.append(&mut also),
                _ => unreachable!("allOf was rewritten to an array"),
            }
        }
        Ok(Value::Object(out))
    }

    fn applicator(
        &mut self,
        keyword: &str,
        value: &Value,
        at: Place<'_>,
    ) -> Result<Value, GrammarError> {
        match keyword {
            "const" => {
                check_constant(value, keyword, at)?;
                Ok(value.clone())
            }
            "enum" => {
                let values = value.as_array().filter(|values| !values.is_empty());
                let values = values.ok_or_else(|| list_expected(keyword, at))?;
                values.iter().try_for_each(|value| check_constant(value, keyword, at))?;
                Ok(value.clone())
            }
            "$ref" => Ok(Value::from(self.reference(value, at)?)),
            _ => Ok(Value::Array(self.branches(keyword, value, at)?)),
        }
    }

    fn branches(
        &mut self,
        keyword: &str,
        value: &Value,
        at: Place<'_>,
    ) -> Result<Vec<Value>, GrammarError> {
        let branches = value.as_array().filter(|branches| !branches.is_empty());
        let branches = branches.ok_or_else(|| list_expected(keyword, at))?;
        let rewrite = |(index, branch): (usize, &Value)| {
            self.child(branch, at, &[keyword, &index.to_string()])
        };
        branches.iter().enumerate().map(rewrite).collect()
    }

    // Exactly one of the branches: each without what the branches that it may meet allow. Where
    // the complement of a branch is not known, without one of the properties that it requires:
    // fewer values than could be, and none that are wrong.
    fn one_of(&mut self, parts: &mut Parts<'_>, at: Place<'_>) -> Result<(), GrammarError> {
        let Some(value) = parts.map.get("oneOf") else { return Ok(()) };
        let branches = value.as_array().map_or(&[][..], Vec::as_slice);
        let may_meet = |index: usize, other: usize| {
            let (one, other_one) = (&branches[index], &branches[other]);
            other != index && !are_disjoint(self.document, one, other_one, parts.types)
        };
        let others = |index| (0..branches.len()).filter(|o| may_meet(index, *o)).collect();
        let others: Vec<Vec<usize>> = (0..branches.len()).map(others).collect();
        let at = Place { alone: at.alone && others.iter().all(Vec::is_empty), ..at };
        let mut rewritten = self.branches("oneOf", value, at)?;
        for (index, out) in rewritten.iter_mut().enumerate() {
            let mut all = Vec::new();
            for &other in &others[index] {
                let branch = &branches[other];
                let outside = negate(self.document, branch)
                    .or_else(|| negate_beside(self.document, branch, &branches[index]));
                let outside = outside.ok_or_else(|| {
                    let (first, second) = (index.min(other), index.max(other));
                    let reason = format!(
                        "branches {first} and {second} may both hold, and exactly one can't be \
                         enforced; write anyOf, or tell them apart by type or by a required \
                         property with a constant"
                    );
                    GrammarError::unsupported("oneOf", at.pointer, reason)
                })?;
                all.push(self.child(&outside, at, &["oneOf"])?);
            }
            if !all.is_empty() {
                all.insert(0, out.take());
                *out = json!({"allOf": all});
            }
        }
        parts.also.push(json!({"anyOf": rewritten}));
        Ok(())
    }

    // `not` and `if`, where the complement is known.
    fn conditions(&mut self, parts: &mut Parts<'_>, at: Place<'_>) -> Result<(), GrammarError> {
        let complement = |document, schema, keyword| {
            negate(document, schema).ok_or_else(|| {
                let reason = "only types, constants and required properties have a complement";
                GrammarError::unsupported(keyword, at.pointer, reason)
            })
        };
        if let Some(schema) = parts.map.get("not") {
            let outside = complement(self.document, schema, "not")?;
            let outside = self.child(&outside, at, &["not"])?;
            parts.also.push(outside);
        }
        let (then, otherwise) = (parts.map.get("then"), parts.map.get("else"));
        let Some(condition) = parts.map.get("if").filter(|_| then.or(otherwise).is_some()) else {
            return Ok(());
        };
        let outside = complement(self.document, condition, "if")?;
        let mut holds = vec![self.child(condition, at, &["if"])?];
        let mut fails = vec![self.child(&outside, at, &["if"])?];
        if let Some(then) = then {
            holds.push(self.child(then, at, &["then"])?);
        }
        if let Some(otherwise) = otherwise {
            fails.push(self.child(otherwise, at, &["else"])?);
        }
        parts.also.push(json!({"anyOf": [{"allOf": holds}, {"allOf": fails}]}));
        Ok(())
    }

    fn reference(&mut self, value: &Value, at: Place<'_>) -> Result<String, GrammarError> {
        let reference = value
            .as_str()
            .ok_or_else(|| GrammarError::malformed(at.pointer, "`$ref` is not a string"))?;
        let (pointer, _) = self.document.resolve(reference, at.pointer)?;
        let next = self.names.len();
        let name = self.names.entry((pointer, at.alone)).or_insert_with_key(|target| {
            self.pending.push(target.clone());
            format!("d{next}")
        });
        Ok(format!("#/$defs/{name}"))
    }
}

/// Whether the schemas in `map` are alone if it is: nothing else in it speaks of the members of what
/// they describe. One that only hands on to others leaves those alone.
fn leaves_alone(map: &Map<String, Value>) -> bool {
    let said = || constraints(map).map(|(keyword, _)| keyword).filter(|k| *k != "type");
    let beside = |keyword| SPEAK_OF_MEMBERS.contains(&keyword);
    let hands_on = |keyword| match keyword {
        "$ref" | "anyOf" | "oneOf" => true,
        "allOf" => map[keyword].as_array().is_some_and(|all| all.len() == 1),
        _ => false,
    };
    !said().any(beside) || (said().count() == 1 && said().all(hands_on))
}

fn list_expected(keyword: &str, at: Place<'_>) -> GrammarError {
    GrammarError::malformed(at.pointer, format!("`{keyword}` is not a list with members"))
}

fn refuse_unenforceable(map: &Map<String, Value>, at: Place<'_>) -> Result<(), GrammarError> {
    for (keyword, reason) in [
        ("$dynamicRef", "write a plain `$ref`"),
        ("$recursiveRef", "write a plain `$ref`"),
        ("extends", "it is of draft 3; write allOf"),
        ("disallow", "it is of draft 3; write not"),
        ("divisibleBy", "it is of draft 3; write multipleOf"),
    ] {
        if map.contains_key(keyword) {
            return Err(GrammarError::unsupported(keyword, at.pointer, reason));
        }
    }
    // Up to draft 7 a schema with an identifier starts a document of its own, whose references
    // count from there.
    let starts_document =
        |keyword| map.get(keyword).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
    if !at.pointer.is_empty() && starts_document("$id") && has_reference(map) {
        let reason = "references inside an embedded document are not resolved";
        return Err(GrammarError::unsupported("$id", at.pointer, reason));
    }
    Ok(())
}

fn has_reference(map: &Map<String, Value>) -> bool {
    fn anywhere(value: &Value) -> bool {
        match value {
            Value::Object(map) => has_reference(map),
            Value::Array(items) => items.iter().any(anywhere),
            _ => false,
        }
    }
    map.get("$ref").is_some_and(Value::is_string) || map.values().any(anywhere)
}

/// Numbers are compared as doubles and strings are written without `\u` escapes.
fn check_constant(value: &Value, keyword: &str, at: Place<'_>) -> Result<(), GrammarError> {
    let refuse = |reason: String| Err(GrammarError::unsupported(keyword, at.pointer, reason));
    match value {
        Value::Number(number) => {
            let size = number.as_f64().map_or(f64::INFINITY, f64::abs);
            let is_inexact = number.as_i64().is_some_and(|n| n.unsigned_abs() > 1 << 53);
            if size > MAX_EXACT || is_inexact {
                return refuse(format!("{number} is above 2^53 in size"));
            }
            if size != 0.0 && size < MIN_EXACT {
                return refuse(format!("{number} is below 1e-9 in size"));
            }
            Ok(())
        }
        Value::String(text) => {
            let writable =
                |c: char| !c.is_control() || "\u{8}\u{c}\n\r\t".contains(c) || c > '\u{7f}';
            match text.chars().find(|c| !writable(*c)) {
                Some(c) => refuse(format!("the control character {c:?} can't be written")),
                None => Ok(()),
            }
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_constant(item, keyword, at)),
        Value::Object(map) => map.values().try_for_each(|item| check_constant(item, keyword, at)),
        Value::Null | Value::Bool(_) => Ok(()),
    }
}

/// Whether every value satisfies `schema`, seen from its keywords alone.
pub(super) fn says_nothing(schema: &Value) -> bool {
    match schema {
        Value::Bool(all) => *all,
        Value::Object(map) => constraints(map).next().is_none(),
        _ => false,
    }
}

//! What merging the parts of a schema will cost, before it is paid.
//!
//! llguidance merges `allOf` and its like into one schema by multiplying out their alternatives,
//! copying as it goes. It counts the merges, not the copies, so a small document can ask for any
//! amount of memory. This module does the same merges on shared nodes that only know their size:
//! time and memory here stay in proportion to the number of merges.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::super::error::GrammarError;
use super::types::Types;

/// Merges; llguidance allows 50,000.
const MAX_MERGES: usize = 100_000;
/// Nodes in one merged schema: some tens of megabytes.
const MAX_SIZE: u64 = 200_000;
/// Nodes copied on the way: about a second.
const MAX_COPIED: u64 = 5_000_000;
/// Schemas that merge inside each other; llguidance allows 128.
const MAX_DEPTH: usize = 130;

type Node = Rc<Merged>;

#[derive(Debug)]
struct Merged {
    shape: Shape,
    /// Nodes, counting each as often as it is met.
    size: u64,
}

#[derive(Debug)]
enum Shape {
    Any,
    Never,
    /// A type without parts.
    Scalar(&'static str),
    Array {
        first: Vec<Node>,
        rest: Option<Node>,
    },
    Object {
        properties: BTreeMap<String, Node>,
        rest: Option<Node>,
    },
    Choice(Vec<Node>),
    Reference(String),
}

/// Refuses a prepared schema whose merged form is too large.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    let mut costs = Costs {
        definitions: schema.get("$defs").and_then(Value::as_object),
        merged: HashMap::new(),
        total: 0,
        merges: 0,
        copied: 0,
    };
    let root = costs.schema(schema, 0)?;
    costs.keep(&root)
}

struct Costs<'a> {
    definitions: Option<&'a Map<String, Value>>,
    // `None` while a definition is being merged.
    merged: HashMap<String, Option<Node>>,
    total: u64,
    merges: usize,
    copied: u64,
}

impl Costs<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Node, GrammarError> {
        let map = match schema {
            Value::Bool(true) => return Ok(node(Shape::Any)),
            Value::Object(map) => map,
            _ => return Ok(node(Shape::Never)),
        };
        let mut whole = node(Shape::Any);
        let described = self.body(map, depth)?;
        whole = self.merge(&whole, &described, depth)?;
        for (keyword, value) in map {
            let parts = value.as_array().map(Vec::as_slice).unwrap_or_default();
            match keyword.as_str() {
                "const" => whole = self.merge(&whole, &constant(value), depth)?,
                "enum" => {
                    let values = choice(parts.iter().map(constant).collect());
                    whole = self.merge(&whole, &values, depth)?;
                }
                "allOf" => {
                    for part in parts {
                        let part = self.schema(part, depth + 1)?;
                        whole = self.merge(&whole, &part, depth)?;
                    }
                }
                "anyOf" => {
                    let parts = parts.iter().map(|part| self.schema(part, depth + 1));
                    let parts = choice(parts.collect::<Result<_, _>>()?);
                    whole = self.merge(&whole, &parts, depth)?;
                }
                "$ref" => {
                    let name = value.as_str().unwrap_or_default();
                    self.define(name, depth)?;
                    whole = self.merge(&whole, &node(Shape::Reference(name.to_owned())), depth)?;
                }
                _ => {}
            }
        }
        Ok(whole)
    }

    // What the schema says of the value itself.
    fn body(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Node, GrammarError> {
        const APPLICATORS: [&str; 7] =
            ["const", "enum", "allOf", "anyOf", "$ref", "$defs", "x-guidance"];
        if map.keys().all(|keyword| APPLICATORS.contains(&keyword.as_str())) {
            return Ok(node(Shape::Any));
        }
        let types = Types::of(map);
        let mut shapes = Vec::new();
        for (name, scalar) in [
            ("null", Types::NULL),
            ("boolean", Types::BOOLEAN),
            ("number", Types::NUMBER),
            ("string", Types::STRING),
        ] {
            if types.intersects(scalar) {
                shapes.push(node(Shape::Scalar(name)));
            }
        }
        if types.intersects(Types::ARRAY) {
            let items = map.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
            let first = items.map(|item| self.schema(item, depth + 1)).collect::<Result<_, _>>()?;
            let rest = map.get("items").map(|item| self.schema(item, depth + 1)).transpose()?;
            shapes.push(node(Shape::Array { first, rest }));
        }
        if types.intersects(Types::OBJECT) {
            let mut properties = BTreeMap::new();
            for keyword in ["properties", "patternProperties"] {
                let named = map.get(keyword).and_then(Value::as_object).into_iter().flatten();
                for (name, schema) in named {
                    let schema = self.schema(schema, depth + 1)?;
                    properties.insert(format!("{keyword} {name}"), schema);
                }
            }
            let rest = map.get("additionalProperties");
            let rest = rest.map(|schema| self.schema(schema, depth + 1)).transpose()?;
            shapes.push(node(Shape::Object { properties, rest }));
        }
        Ok(choice(shapes))
    }

    fn define(&mut self, name: &str, depth: usize) -> Result<Option<Node>, GrammarError> {
        if let Some(known) = self.merged.get(name) {
            return Ok(known.clone());
        }
        self.merged.insert(name.to_owned(), None);
        let definition = name.strip_prefix("#/$defs/").and_then(|n| self.definitions?.get(n));
        let merged = match definition {
            Some(schema) => self.schema(schema, depth + 1)?,
            None => node(Shape::Any),
        };
        self.keep(&merged)?;
        self.merged.insert(name.to_owned(), Some(merged.clone()));
        Ok(Some(merged))
    }

    fn merge(&mut self, a: &Node, b: &Node, depth: usize) -> Result<Node, GrammarError> {
        self.merges += 1;
        if self.merges > MAX_MERGES {
            return Err(too_large("merges of subschemas", self.merges as u64, MAX_MERGES as u64));
        }
        if depth > MAX_DEPTH {
            return Err(too_large("nesting of merges", depth as u64, MAX_DEPTH as u64));
        }
        let merged = match (&a.shape, &b.shape) {
            (Shape::Any, _) => b.clone(),
            (_, Shape::Any) => a.clone(),
            (Shape::Never, _) | (_, Shape::Never) => node(Shape::Never),
            (Shape::Reference(name), _) => match self.define(name, depth)? {
                Some(target) => self.merge_copy(&target, b, depth)?,
                None => b.clone(),
            },
            (_, Shape::Reference(name)) => match self.define(name, depth)? {
                Some(target) => self.merge_copy(a, &target, depth)?,
                None => a.clone(),
            },
            (Shape::Choice(options), _) => {
                let merged = options.iter().map(|option| self.merge_copy(option, b, depth));
                choice(merged.collect::<Result<_, _>>()?)
            }
            (_, Shape::Choice(options)) => {
                let merged = options.iter().map(|option| self.merge_copy(a, option, depth));
                choice(merged.collect::<Result<_, _>>()?)
            }
            (Shape::Scalar(x), Shape::Scalar(y)) if x == y => a.clone(),
            (Shape::Array { first: x, rest: x_rest }, Shape::Array { first: y, rest: y_rest }) => {
                let first = (0..x.len().max(y.len())).map(|index| {
                    let x = x.get(index).or(x_rest.as_ref());
                    self.merge_parts(x, y.get(index).or(y_rest.as_ref()), depth)
                });
                let first = first.collect::<Result<_, _>>()?;
                let rest = self.merge_rest(x_rest.as_ref(), y_rest.as_ref(), depth)?;
                node(Shape::Array { first, rest })
            }
            (
                Shape::Object { properties: x, rest: x_rest },
                Shape::Object { properties: y, rest: y_rest },
            ) => {
                let names = x.keys().chain(y.keys().filter(|name| !x.contains_key(*name)));
                let properties = names.map(|name| {
                    let x = x.get(name).or(x_rest.as_ref());
                    let merged = self.merge_parts(x, y.get(name).or(y_rest.as_ref()), depth)?;
                    Ok((name.clone(), merged))
                });
                let properties = properties.collect::<Result<_, GrammarError>>()?;
                let rest = self.merge_rest(x_rest.as_ref(), y_rest.as_ref(), depth)?;
                node(Shape::Object { properties, rest })
            }
            _ => node(Shape::Never),
        };
        self.check_size(&merged)?;
        Ok(merged)
    }

    fn merge_copy(&mut self, a: &Node, b: &Node, depth: usize) -> Result<Node, GrammarError> {
        self.copied += a.size + b.size;
        if self.copied > MAX_COPIED {
            return Err(too_large("copies of subschemas", self.copied, MAX_COPIED));
        }
        self.merge(a, b, depth + 1)
    }

    fn merge_parts(
        &mut self,
        a: Option<&Node>,
        b: Option<&Node>,
        depth: usize,
    ) -> Result<Node, GrammarError> {
        let any = node(Shape::Any);
        self.merge(a.unwrap_or(&any), b.unwrap_or(&any), depth + 1)
    }

    fn merge_rest(
        &mut self,
        a: Option<&Node>,
        b: Option<&Node>,
        depth: usize,
    ) -> Result<Option<Node>, GrammarError> {
        match (a, b) {
            (None, None) => Ok(None),
            _ => self.merge_parts(a, b, depth).map(Some),
        }
    }

    fn keep(&mut self, merged: &Node) -> Result<(), GrammarError> {
        self.check_size(merged)?;
        self.total += merged.size;
        if self.total > 2 * MAX_SIZE {
            return Err(too_large("parts of the merged schema", self.total, 2 * MAX_SIZE));
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "reads like its neighbours")]
    fn check_size(&self, merged: &Node) -> Result<(), GrammarError> {
        if merged.size > MAX_SIZE {
            return Err(too_large("parts of a merged schema", merged.size, MAX_SIZE));
        }
        Ok(())
    }
}

fn node(shape: Shape) -> Node {
    let sum = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(|node| node.size).sum::<u64>();
    let parts = match &shape {
        Shape::Array { first, rest } => sum(&mut first.iter().chain(rest)),
        Shape::Object { properties, rest } => sum(&mut properties.values().chain(rest)),
        Shape::Choice(options) => sum(&mut options.iter()),
        _ => 0,
    };
    Rc::new(Merged { shape, size: 1 + parts })
}

fn choice(options: Vec<Node>) -> Node {
    let mut flat = Vec::new();
    for option in options {
        match &option.shape {
            Shape::Any => return option,
            Shape::Never => {}
            Shape::Choice(nested) => flat.extend(nested.iter().cloned()),
            _ => flat.push(option),
        }
    }
    match flat.len() {
        0 => node(Shape::Never),
        1 => flat.swap_remove(0),
        _ => node(Shape::Choice(flat)),
    }
}

fn constant(value: &Value) -> Node {
    match value {
        Value::Null => node(Shape::Scalar("null")),
        Value::Bool(_) => node(Shape::Scalar("boolean")),
        Value::Number(_) => node(Shape::Scalar("number")),
        Value::String(_) => node(Shape::Scalar("string")),
        Value::Array(items) => {
            let first = items.iter().map(constant).collect();
            node(Shape::Array { first, rest: Some(node(Shape::Never)) })
        }
        Value::Object(map) => {
            let named = map.iter().map(|(name, v)| (format!("properties {name}"), constant(v)));
            let rest = Some(node(Shape::Never));
            node(Shape::Object { properties: named.collect(), rest })
        }
    }
}

fn too_large(what: &'static str, actual: u64, limit: u64) -> GrammarError {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    GrammarError::TooLarge { what, actual: count(actual), limit: count(limit) }
}

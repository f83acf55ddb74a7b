//! Reads a call whose arguments are tags named by the parameters, nested for lists and objects, every
//! tag behind a mark; and writes the grammar of them.
//!
//! A parameter that is a text is handed out while it is written; others when they are complete, since
//! only the whole tells what they are.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::event::Functions;
use super::lark::{Lark, string};
use super::markup::{Calls, Progress, Reader};
use super::named_json::is_name;
use super::parameter_types::{Part, Types, part, to_json};
use super::tagged::escaped;
use super::tagged_grammar::is_required;

/// What stands before every tag.
pub(super) const MARK: &str = "]<]minimax[>[";
/// What opens a call.
pub(super) const INVOKE: &str = "]<]minimax[>[<invoke name=\"";

/// The tag of a list's item.
const ITEM: &str = "item";
/// Longer names and keys are text.
const MAX_WORD: usize = 400;
/// Deepest nesting of a value.
const MAX_DEPTH: usize = 64;

/// Reads the call behind one opening text.
#[derive(Debug)]
pub(super) struct NestedTags {
    functions: Functions,
    name: String,
    phase: Phase,
    /// Open tags, each with what stands in it.
    open: Vec<(String, Node)>,
    /// Parameters of the call so far.
    count: usize,
    /// Whether the parameter that is being read is handed out as it is written.
    streams: bool,
    begun: bool,
}

#[derive(Debug)]
enum Phase {
    /// Before the lead, or within it.
    Lead(String),
    Name(String),
    /// Text or the mark of the next tag, with what is not handed out.
    Text(String),
    /// Within a tag, behind its mark.
    Tag(String),
}

/// What stands in a tag.
#[derive(Debug)]
enum Node {
    Text(String),
    Members(Vec<(String, Node)>),
}

impl NestedTags {
    /// Reads a call from the lead on, or where `led` from behind it.
    pub(super) fn new(functions: &Functions, led: bool) -> Self {
        let phase = if led { Phase::Name(String::new()) } else { Phase::Lead(String::new()) };
        let (functions, name) = (functions.clone(), String::new());
        Self { functions, name, phase, open: Vec::new(), count: 0, streams: false, begun: false }
    }

    fn name(&mut self, c: char) -> Progress {
        let Phase::Name(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        match seen.strip_suffix("\">") {
            None if seen.len() > MAX_WORD => Progress::Broken,
            None => Progress::Inside,
            Some(name) if is_name(name) => {
                name.clone_into(&mut self.name);
                self.phase = Phase::Text(String::new());
                Progress::Inside
            }
            Some(_) => Progress::Broken,
        }
    }

    fn text(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Text(held) = &mut self.phase else { return Progress::Broken };
        held.push(c);
        let mut starts = held.char_indices().map(|(at, _)| at);
        let kept = starts.find(|at| MARK.starts_with(&held[*at..])).unwrap_or(held.len());
        let is_mark = held[kept..] == *MARK;
        let rest = held.split_off(kept);
        let text = std::mem::replace(held, rest);
        if is_mark {
            self.phase = Phase::Tag(String::new());
        }
        self.keep(&text, calls)
    }

    /// Text that is no tag: a part of the innermost value.
    fn keep(&mut self, text: &str, calls: &mut Calls) -> Progress {
        let is_blank = text.trim().is_empty();
        match self.open.last_mut() {
            _ if text.is_empty() => {}
            Some((_, Node::Text(_))) if self.streams => calls.arguments(&escaped(text)),
            Some((_, Node::Text(whole))) => whole.push_str(text),
            _ if is_blank => {}
            _ => return Progress::Broken,
        }
        Progress::Inside
    }

    fn tag(&mut self, c: char, calls: &mut Calls) -> Progress {
        let Phase::Tag(seen) = &mut self.phase else { return Progress::Broken };
        seen.push(c);
        if c != '>' {
            let fits = seen.starts_with('<') && seen.len() <= MAX_WORD;
            return if fits { Progress::Inside } else { Progress::Broken };
        }
        let tag = seen.strip_prefix('<').and_then(|tag| tag.strip_suffix('>'));
        let Some(tag) = tag.map(str::to_owned) else { return Progress::Broken };
        self.phase = Phase::Text(String::new());
        match tag.strip_prefix('/') {
            Some("invoke") if self.open.is_empty() => {
                self.begin(calls);
                calls.arguments("}");
                Progress::Done
            }
            Some(key) => self.close(key, calls),
            None => self.enter(&tag, calls),
        }
    }

    fn begin(&mut self, calls: &mut Calls) {
        if !std::mem::replace(&mut self.begun, true) {
            calls.begin(&self.name);
            calls.arguments("{");
        }
    }

    fn enter(&mut self, key: &str, calls: &mut Calls) -> Progress {
        if key.is_empty() || self.open.len() >= MAX_DEPTH || self.streams {
            return Progress::Broken;
        }
        match self.open.last_mut() {
            Some((_, node @ Node::Text(_))) => {
                let Node::Text(text) = node else { return Progress::Broken };
                if !text.trim().is_empty() {
                    return Progress::Broken;
                }
                *node = Node::Members(Vec::new());
            }
            Some(_) => {}
            None => {
                self.begin(calls);
                let comma = if self.count == 0 { "" } else { ", " };
                self.streams = Types::of(self.functions.parameters(&self.name), key).is_text();
                let quote = if self.streams { "\"" } else { "" };
                calls.arguments(&format!("{comma}{}: {quote}", Value::from(key)));
                self.count += 1;
            }
        }
        self.open.push((key.to_owned(), Node::Text(String::new())));
        Progress::Inside
    }

    fn close(&mut self, key: &str, calls: &mut Calls) -> Progress {
        let Some((_, node)) = self.open.pop_if(|(open, _)| open == key) else {
            return Progress::Broken;
        };
        match self.open.last_mut() {
            Some((_, Node::Members(members))) => members.push((key.to_owned(), node)),
            Some(_) => return Progress::Broken,
            None if std::mem::take(&mut self.streams) => calls.arguments("\""),
            None => {
                let root = self.functions.parameters(&self.name).unwrap_or(&Value::Null);
                calls.arguments(&node.to_json(part(root, root, Part::Member(key)), root));
            }
        }
        Progress::Inside
    }
}

impl Reader for NestedTags {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        match &mut self.phase {
            Phase::Lead(seen) if seen.is_empty() && c.is_whitespace() => Progress::Inside,
            Phase::Lead(seen) => {
                seen.push(c);
                if seen == INVOKE {
                    self.phase = Phase::Name(String::new());
                } else if !INVOKE.starts_with(seen.as_str()) {
                    return Progress::Broken;
                }
                Progress::Inside
            }
            Phase::Name(_) => self.name(c),
            Phase::Text(_) => self.text(c, calls),
            Phase::Tag(_) => self.tag(c, calls),
        }
    }

    fn in_markup(&self) -> bool {
        self.begun
    }
}

impl Node {
    /// The JSON document by a schema that is a part of `root`.
    fn to_json(&self, schema: Option<&Value>, root: &Value) -> String {
        let types = Types::of_part(schema, root);
        let (list, object) = types.containers();
        let members = match self {
            // Lists and objects without members look like a text without characters.
            Self::Text(text) if text.trim().is_empty() && !types.may_be_text() && list => {
                return "[]".to_owned();
            }
            Self::Text(text) if text.trim().is_empty() && !types.may_be_text() && object => {
                return "{}".to_owned();
            }
            Self::Text(text) => return to_json(text, types),
            Self::Members(members) => members,
        };
        let asked = |asked| schema.and_then(|schema| part(schema, root, asked));
        let mut json = String::new();
        if members.iter().all(|(key, _)| key == ITEM) && (list || !object) {
            for (at, (_, node)) in members.iter().enumerate() {
                let comma = if at == 0 { "" } else { "," };
                json.push_str(comma);
                json.push_str(&node.to_json(asked(Part::Item(at)), root));
            }
            return format!("[{json}]");
        }
        for (at, (key, node)) in members.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let value = node.to_json(asked(Part::Member(key)), root);
            let written = write!(json, "{comma}{}:{value}", Value::from(key.as_str()));
            written.expect("writing to a string does not fail");
        }
        format!("{{{json}}}")
    }
}

/// Where in a schema, and in the tags, a value stands.
#[derive(Clone, Copy)]
struct Place<'s> {
    root: &'s Value,
    /// What ends the value.
    end: &'s str,
    depth: usize,
}

/// Rules nest this deep; what is deeper may be any text.
const MAX_RULES: usize = 12;

/// The grammar of a call's arguments.
pub(super) fn arguments(lark: &mut Lark, schema: &Value) -> String {
    members(lark, schema, Place { root: schema, end: "", depth: 0 }).unwrap_or_default()
}

/// Members by a schema's properties, if it has any.
fn members(lark: &mut Lark, schema: &Value, place: Place) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    let member = |(key, property): (&String, &Value)| {
        let member = tag(lark, key, property, place);
        let member = lark.rule(&member);
        if is_required(schema, key) { member } else { format!("{member}?") }
    };
    Some(properties.iter().map(member).collect::<Vec<_>>().join(" "))
}

/// A value in its tags.
fn tag(lark: &mut Lark, key: &str, schema: &Value, place: Place) -> String {
    let open = lark.literal(&format!("{MARK}<{key}>"));
    let end = format!("{MARK}</{key}>");
    let place = Place { end: &end, depth: place.depth + 1, root: place.root };
    format!("{open} {}", value(lark, schema, place))
}

/// A value by a schema, and what ends it.
fn value(lark: &mut Lark, schema: &Value, place: Place) -> String {
    let deeper = Place { depth: place.depth + 1, ..place };
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    let target = target.and_then(|pointer| place.root.pointer(pointer));
    if let Some(target) = target.filter(|_| place.depth < MAX_RULES) {
        return value(lark, target, deeper);
    }
    let one = schema.get("const").map(std::slice::from_ref);
    if let Some(values) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one) {
        let plain = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let values: Vec<String> = values.iter().map(|value| string(&plain(value))).collect();
        return format!("({}) {}", values.join(" | "), lark.literal(place.end));
    }
    let variants = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    let variants: Vec<String> = if let Some(variants) = variants.filter(|_| place.depth < MAX_RULES)
    {
        variants.iter().map(|variant| value(lark, variant, deeper)).collect()
    } else {
        let types = match schema.get("type") {
            Some(Value::String(name)) => vec![name.as_str()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => vec!["any"],
        };
        types.into_iter().map(|name| typed(lark, schema, name, place)).collect()
    };
    format!("({})", variants.join(" | "))
}

fn typed(lark: &mut Lark, schema: &Value, name: &str, place: Place) -> String {
    let close = lark.literal(place.end);
    match name {
        "integer" | "number" | "boolean" | "null" => {
            let mut scalar = schema.as_object().cloned().unwrap_or_default();
            scalar.insert("type".to_owned(), json!(name));
            format!("{} {close}", Lark::json(&Value::Object(scalar)))
        }
        "array" if place.depth < MAX_RULES => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let item = tag(lark, ITEM, items, place);
            let item = lark.rule(&item);
            format!("{item}* {close}")
        }
        "object" if place.depth < MAX_RULES => match members(lark, schema, place) {
            Some(members) => format!("{members} {close}"),
            None => lark.text_until(place.end),
        },
        _ => lark.text_until(place.end),
    }
}

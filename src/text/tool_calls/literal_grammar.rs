//! The grammar of arguments that are literals of a language: the parameters that a schema names, with
//! values by their schemas. A family's [`Literals`] say how the language writes them.
//!
//! Types, choices, items and members are enforced; limits on numbers, texts and counts are not.

use serde_json::{Map, Value};

use super::lark::{Lark, string};
use super::rules::TextArgument;
use super::tagged_grammar::is_required;

/// How a language writes values.
#[derive(Debug)]
pub(super) struct Literals {
    /// Words for true, false and nothing, the usual ones first.
    pub(super) words: [&'static [&'static str]; 3],
    pub(super) comma: &'static str,
    /// What stands behind the name of an argument, and behind the key of an object's member.
    pub(super) argument: &'static str,
    pub(super) member: &'static str,
    /// What stands around texts, which end there; empty where they are JSON's.
    pub(super) quote: &'static str,
    /// Whether keys of objects stand in quotes.
    pub(super) quotes_keys: bool,
    /// Whether members stand in the order of their keys, not of the schema.
    pub(super) sorted: bool,
}

/// Python's keyword arguments.
pub(super) const PYTHON: Literals = Literals {
    words: [&["True", "true"], &["False", "false"], &["None", "null"]],
    comma: ", ",
    argument: "=",
    member: ": ",
    quote: "",
    quotes_keys: true,
    sorted: false,
};

const TEXT: &str = concat!(
    r##"/"([^"\\\x00-\x1f\x7f]|\\["\\nrtbf]|\\u00[0-9a-f]{2})*""##,
    r#"|'([^'\\\x00-\x1f\x7f]|\\['\\nrtbf]|\\u00[0-9a-f]{2})*'/"#
);
const INTEGER: &str = "/-?(0|[1-9][0-9]{0,17})/";
const NUMBER: &str = "/-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/";
/// Schemas nest this deep; what is deeper may be anything.
const MAX_DEPTH: usize = 12;

/// The arguments of a call, between its brackets.
pub(super) fn arguments(lark: &mut Lark, literals: &'static Literals, schema: &Value) -> String {
    let writer = &mut Writer { lark, literals, root: schema, any: None, text: None };
    members(writer, schema, 0).unwrap_or_default()
}

/// The one argument of a grammar.
pub(super) fn text(literals: &Literals, text: &TextArgument) -> String {
    let (quote, inside) = match literals.quote {
        "" => ("\"", &text.quoted),
        quote => (quote, &text.plain),
    };
    let open = string(&format!("{}{}{quote}", text.name, literals.argument));
    format!("{open} {inside} {}", string(quote))
}

struct Writer<'l, 'a, 's> {
    lark: &'l mut Lark<'a>,
    literals: &'static Literals,
    root: &'s Value,
    /// The rule for any literal, once there is one.
    any: Option<String>,
    /// The rule for any text, once there is one.
    text: Option<String>,
}

impl Writer<'_, '_, '_> {
    /// Any text, in its quotes.
    fn text(&mut self) -> String {
        if self.literals.quote.is_empty() {
            return TEXT.to_owned();
        }
        if self.text.is_none() {
            let (open, rest) =
                (self.lark.literal(self.literals.quote), self.lark.text_until(self.literals.quote));
            self.text = Some(self.lark.rule(&format!("{open} {rest}")));
        }
        self.text.clone().unwrap_or_default()
    }

    /// What stands between two values; a space in it may be missing.
    fn comma(&self) -> String {
        let space = if self.literals.comma.ends_with(' ') { " \" \"?" } else { "" };
        format!("\",\"{space}")
    }

    /// The name of an argument, or within one the key of a member, and what stands behind it.
    fn key(&self, key: &str, depth: usize) -> String {
        let Literals { argument, member, quotes_keys, .. } = self.literals;
        if depth == 0 {
            string(&format!("{key}{argument}"))
        } else if *quotes_keys {
            format!("({}) {}", self.choice(&Value::from(key)), string(member))
        } else {
            string(&format!("{key}{member}"))
        }
    }

    /// One of the words for one of true, false and nothing, in this order.
    fn word(&self, at: usize) -> String {
        let words: Vec<String> = self.literals.words[at].iter().map(|word| string(word)).collect();
        words.join(" | ")
    }

    /// A value that a schema names, in every way in which it may be written.
    fn choice(&self, value: &Value) -> String {
        let usual = self.lark.literal(&self.literal(value));
        match value {
            Value::String(text) if self.literals.quote.is_empty() => {
                let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
                format!("{usual} | {}", string(&format!("'{}'", escaped.replace('\n', "\\n"))))
            }
            _ => usual,
        }
    }

    /// A value as a literal.
    fn literal(&self, value: &Value) -> String {
        let Literals { words: [truth, lie, nothing], comma, quote, .. } = self.literals;
        let usual = |words: &[&str]| words.first().copied().unwrap_or_default().to_owned();
        match value {
            Value::Null => usual(nothing),
            Value::Bool(true) => usual(truth),
            Value::Bool(false) => usual(lie),
            Value::String(text) if !quote.is_empty() => format!("{quote}{text}{quote}"),
            Value::Number(_) | Value::String(_) => value.to_string(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.literal(item)).collect();
                format!("[{}]", items.join(comma))
            }
            Value::Object(members) => {
                let members = self.in_order(members).into_iter().map(|(key, value)| {
                    let quoted = self.literals.quotes_keys.then(|| self.literal(&Value::from(key)));
                    let key = quoted.unwrap_or_else(|| key.to_owned());
                    format!("{key}{}{}", self.literals.member, self.literal(value))
                });
                format!("{{{}}}", members.collect::<Vec<_>>().join(comma))
            }
        }
    }

    /// Members in the order in which they are written.
    fn in_order<'m>(&self, members: &'m Map<String, Value>) -> Vec<(&'m str, &'m Value)> {
        let mut members: Vec<_> =
            members.iter().map(|(key, value)| (key.as_str(), value)).collect();
        if self.literals.sorted {
            members.sort_by_key(|(key, _)| key.to_lowercase());
        }
        members
    }
}

/// Members by a schema's properties with commas between them, if it has any.
fn members(writer: &mut Writer, schema: &Value, depth: usize) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    let comma = writer.comma();
    // From the last to the first: what may follow where nothing stands before it, and else.
    let (mut first, mut later) = (String::new(), String::new());
    for (key, property) in writer.in_order(properties).into_iter().rev() {
        let member = format!("{} {}", writer.key(key, depth), value(writer, property, depth + 1));
        let member = writer.lark.rule(&member);
        let required = is_required(schema, key);
        let rule = |begin: &str, other: &str| {
            let this = format!("{begin} {member} {later}");
            if required { this } else { format!("({this} | {})", non_empty(other)) }
        };
        let (at_first, at_later) = (rule("", &first), rule(&comma, &later));
        first = writer.lark.rule(&at_first);
        later = writer.lark.rule(&at_later);
    }
    Some(first)
}

fn non_empty(rule: &str) -> &str {
    if rule.is_empty() { "\"\"" } else { rule }
}

/// A literal by a schema.
fn value(writer: &mut Writer, schema: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return any(writer);
    }
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    if let Some(target) = target.and_then(|pointer| writer.root.pointer(pointer)) {
        return value(writer, target, depth + 1);
    }
    let one = schema.get("const").map(std::slice::from_ref);
    if let Some(values) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(one) {
        let literals: Vec<String> = values.iter().map(|value| writer.choice(value)).collect();
        return format!("({})", literals.join(" | "));
    }
    let variants = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    if let Some(variants) = variants {
        let variants: Vec<String> =
            variants.iter().map(|variant| value(writer, variant, depth + 1)).collect();
        return format!("({})", variants.join(" | "));
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return any(writer),
    };
    let types: Vec<String> = types.iter().map(|name| typed(writer, schema, name, depth)).collect();
    format!("({})", types.join(" | "))
}

fn typed(writer: &mut Writer, schema: &Value, name: &str, depth: usize) -> String {
    match name {
        "string" => writer.text(),
        "integer" => INTEGER.to_owned(),
        "number" => NUMBER.to_owned(),
        "boolean" => format!("({} | {})", writer.word(0), writer.word(1)),
        "null" => format!("({})", writer.word(2)),
        "array" => {
            let item = match schema.get("items") {
                Some(items) => value(writer, items, depth + 1),
                None => any(writer),
            };
            let comma = writer.comma();
            format!("\"[\" ({item} ({comma} {item})*)? \"]\"")
        }
        "object" => {
            let members = members(writer, schema, depth).unwrap_or_else(|| {
                let any = any(writer);
                any_members(writer, &any)
            });
            format!("\"{{\" {members} \"}}\"")
        }
        _ => any(writer),
    }
}

/// Members of any keys whose values are of the rule `any`.
fn any_members(writer: &mut Writer, any: &str) -> String {
    let key = if writer.literals.quotes_keys {
        writer.text()
    } else {
        "/[^\\s<>\"'`:,{}\\[\\]]+/".to_owned()
    };
    let (comma, colon) = (writer.comma(), string(writer.literals.member));
    let member = format!("{key} {colon} {any}");
    format!("({member} ({comma} {member})*)?")
}

/// The rule of any literal.
fn any(writer: &mut Writer) -> String {
    if let Some(any) = &writer.any {
        return any.clone();
    }
    let words = [0, 1, 2].map(|at| writer.word(at)).join(" | ");
    let scalar = format!("{} | {NUMBER} | {words}", writer.text());
    let comma = writer.comma();
    let name = writer.lark.next_rule();
    let members = any_members(writer, &name);
    let list = format!("\"[\" ({name} ({comma} {name})*)? \"]\"");
    writer.lark.define(&name, &format!("{scalar} | {list} | \"{{\" {members} \"}}\""));
    writer.any.insert(name).clone()
}

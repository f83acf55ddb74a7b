//! What a request asks for: the grammar before it meets a vocabulary.
//!
//! Plain data. Knows neither the wire that it came over nor whether it can be enforced.

use serde_json::Value;

/// The texts that are wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSpec {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under the schema.
    JsonSchema(Value),
    /// The whole text matches, in the syntax of the `regex` crate without look-around.
    Regex(String),
    /// One of these texts, exactly.
    Choice(Vec<String>),
    /// llguidance's dialect of Lark; the rule `start` is the whole text.
    Lark(String),
    /// llama.cpp's GBNF; the rule `root` is the whole text.
    Gbnf(String),
    /// Free text with tagged parts.
    StructuralTag(StructuralTag),
}

/// Free text in which a trigger opens one of the tags.
#[derive(Clone, Debug, PartialEq)]
pub struct StructuralTag {
    /// The tags. Each begins with one of the triggers.
    pub tags: Vec<Tag>,
    /// What ends the free text: after one of these, a tag that begins so must follow.
    pub triggers: Vec<String>,
    /// The text has at least one tag.
    pub at_least_one: bool,
    /// The text ends with its first tag.
    pub stop_after_first: bool,
}

/// One constrained part of a free text.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// The text that opens the tag.
    pub begin: String,
    /// What stands inside of the tag.
    pub content: Box<GrammarSpec>,
    /// The text that closes the tag.
    pub end: String,
}

impl GrammarSpec {
    /// A grammar whose notation is not said: GBNF defines rules with `::=`, Lark never does.
    pub fn from_grammar_text(text: &str) -> Self {
        let defines = text.lines().any(|line| {
            let name = line.trim_start().split("::=").next().unwrap_or_default();
            let is_name = name.trim_end().chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
            line.contains("::=") && is_name && !name.trim().is_empty()
        });
        if defines { Self::Gbnf(text.to_owned()) } else { Self::Lark(text.to_owned()) }
    }

    /// Names the specification: equal keys, equal grammars. The order of properties counts, since
    /// it is the order in which they are written.
    pub fn cache_key(&self) -> String {
        match self {
            Self::JsonObject => "object".to_owned(),
            Self::JsonSchema(schema) => format!("schema {schema}"),
            Self::Regex(regex) => format!("regex {regex}"),
            Self::Choice(choices) => format!("choice {choices:?}"),
            Self::Lark(text) => format!("lark {text}"),
            Self::Gbnf(text) => format!("gbnf {text}"),
            Self::StructuralTag(structure) => structure.cache_key(),
        }
    }
}

impl StructuralTag {
    fn cache_key(&self) -> String {
        let tags = self.tags.iter();
        let tags: Vec<_> =
            tags.map(|tag| (&tag.begin, tag.content.cache_key(), &tag.end)).collect();
        let Self { triggers, at_least_one, stop_after_first, .. } = self;
        format!("tags {tags:?} {triggers:?} {at_least_one} {stop_after_first}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tells_gbnf_from_lark() {
        let gbnf = |text| matches!(GrammarSpec::from_grammar_text(text), GrammarSpec::Gbnf(_));
        assert!(gbnf("# comment\nroot ::= \"a\""));
        assert!(gbnf("  my-rule   ::= root"));
        assert!(gbnf("root\n::= \"a\"\nx ::= \"b\""));
        assert!(!gbnf("start: \"a ::= b\""));
        assert!(!gbnf("start: /::=/ \"x\""));
    }

    #[test]
    fn keys_tell_specifications_apart() {
        let key = |schema| GrammarSpec::JsonSchema(schema).cache_key();
        assert_eq!(key(json!({"type": "string"})), key(json!({"type": "string"})));
        assert_ne!(
            key(json!({"properties": {"a": true, "b": true}})),
            key(json!({"properties": {"b": true, "a": true}})),
        );
        assert_ne!(
            GrammarSpec::Lark("x".into()).cache_key(),
            GrammarSpec::Gbnf("x".into()).cache_key(),
        );
    }
}

//! llama.cpp's grammar notation (GBNF), as Lark.
//!
//! GBNF describes texts character by character; the automata read lexemes, the longest first. A
//! grammar without recursion is one lexeme. In a recursive one a part becomes a lexeme where
//! reading the longest makes no difference (a string up to its closing quote, say), and is read
//! character by character elsewhere, which is slower. Either way the texts are GBNF's.

mod lexemes;
mod parser;

use std::collections::HashMap;
use std::fmt::Write as _;

use super::error::GrammarError;
use super::lark::quote;
use super::vocabulary::Vocabulary;
use lexemes::Lexemes;
use parser::{Grammar, Node};

/// Elements of a sequence that are tried as one lexeme.
const LONGEST_RUN: usize = 8;

/// The Lark grammar of a GBNF one.
pub(super) fn to_lark(text: &str, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
    let grammar = parser::parse(text, vocabulary)?;
    let traits = Traits::of(&grammar);
    let mut lexemes = Lexemes::new(&grammar);
    loop {
        let mut writer = Writer::new(&grammar, &traits, &mut lexemes);
        let lark = writer.grammar();
        let parts = writer.parts;
        // Each round breaks a lexeme, and there are only so many.
        if traits.is_lexeme[grammar.root] || !lexemes.break_conflicts(&parts) {
            return Ok(lark);
        }
    }
}

/// What the rules of a grammar are.
struct Traits {
    /// Describes characters without recursion.
    is_lexeme: Vec<bool>,
    /// Has the empty text among its texts.
    is_nullable: Vec<bool>,
}

impl Traits {
    fn of(grammar: &Grammar) -> Self {
        let count = grammar.rules.len();
        let mut traits = Self { is_lexeme: vec![false; count], is_nullable: vec![false; count] };
        // A rule is a lexeme when all that it refers to are; a rule on a cycle never becomes one.
        // Both properties only spread, so each round that changes nothing is the last.
        loop {
            let mut changed = false;
            for (index, rule) in grammar.rules.iter().enumerate() {
                let lexeme = traits.is_lexeme[index] || traits.lexeme(&rule.body);
                let nullable = traits.is_nullable[index] || traits.nullable(&rule.body);
                changed |=
                    lexeme != traits.is_lexeme[index] || nullable != traits.is_nullable[index];
                (traits.is_lexeme[index], traits.is_nullable[index]) = (lexeme, nullable);
            }
            if !changed {
                return traits;
            }
        }
    }

    fn lexeme(&self, node: &Node) -> bool {
        match node {
            Node::Literal(_) | Node::Class(_) => true,
            Node::Token(_) => false,
            Node::Rule(index) => self.is_lexeme[*index],
            Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().all(|n| self.lexeme(n)),
            Node::Repeat(node, _, _) => self.lexeme(node),
        }
    }

    fn nullable(&self, node: &Node) -> bool {
        match node {
            Node::Literal(text) => text.is_empty(),
            Node::Class(_) | Node::Token(_) => false,
            Node::Rule(index) => self.is_nullable[*index],
            Node::Sequence(nodes) => nodes.iter().all(|node| self.nullable(node)),
            Node::Choice(nodes) => nodes.iter().any(|node| self.nullable(node)),
            Node::Repeat(node, min, _) => *min == 0 || self.nullable(node),
        }
    }
}

struct Writer<'w, 'g> {
    grammar: &'g Grammar,
    traits: &'w Traits,
    lexemes: &'w mut Lexemes<'g>,
    terminals: String,
    /// The lexemes of the sequence so far.
    parts: Vec<Node>,
    names: HashMap<String, String>,
}

impl<'w, 'g> Writer<'w, 'g> {
    fn new(grammar: &'g Grammar, traits: &'w Traits, lexemes: &'w mut Lexemes<'g>) -> Self {
        let (terminals, parts, names) = (String::new(), Vec::new(), HashMap::new());
        Self { grammar, traits, lexemes, terminals, parts, names }
    }

    fn grammar(&mut self) -> String {
        let root = Node::Rule(self.grammar.root);
        let mut rules = String::new();
        let is_lexeme = self.traits.is_lexeme[self.grammar.root];
        let start = if is_lexeme { self.part(&root) } else { self.in_rule(&root) };
        let _ = writeln!(rules, "start: {start}");
        for (index, rule) in self.grammar.rules.iter().enumerate() {
            if self.traits.is_lexeme[index] {
                let body = in_lexeme(&rule.body);
                let _ = writeln!(self.terminals, "T{index}: {body}");
            }
            if !is_lexeme {
                let body = self.in_rule(&rule.body);
                let _ = writeln!(rules, "r{index}: {body}");
            }
        }
        rules + &self.terminals
    }

    // As a part of a rule: lexemes as long as may be, rules between them.
    fn in_rule(&mut self, node: &Node) -> String {
        if self.is_whole(node) {
            return self.part(node);
        }
        match node {
            Node::Token(spelled) => spelled.clone(),
            Node::Rule(index) => format!("r{index}"),
            Node::Repeat(node, min, max) => {
                format!("({}){}", self.in_rule(node), repetition(*min, *max))
            }
            Node::Choice(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(|node| self.in_rule(node)).collect();
                format!("({})", nodes.join(" | "))
            }
            Node::Sequence(nodes) => self.sequence(nodes),
            Node::Literal(text) => {
                let chars: Vec<String> =
                    text.chars().map(|c| self.part(&Node::Literal(c.to_string()))).collect();
                if chars.is_empty() { "\"\"".to_owned() } else { chars.join(" ") }
            }
            Node::Class(_) => unreachable!("a character is whole"),
        }
    }

    // The longest runs that are lexemes.
    fn sequence(&mut self, mut nodes: &[Node]) -> String {
        let mut parts = Vec::new();
        while !nodes.is_empty() {
            let runs = (2..=nodes.len().min(LONGEST_RUN)).rev();
            let run = runs.map(|len| Node::Sequence(nodes[..len].to_vec()));
            let run = run.into_iter().find(|run| self.is_whole(run));
            if let Some(Node::Sequence(run)) = run {
                nodes = &nodes[run.len()..];
                parts.push(self.part(&Node::Sequence(run)));
            } else {
                parts.push(self.in_rule(&nodes[0]));
                nodes = &nodes[1..];
            }
        }
        if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
    }

    fn is_whole(&mut self, node: &Node) -> bool {
        self.traits.lexeme(node) && self.lexemes.is_whole(node)
    }

    // A lexeme of its own. A lexeme is never empty: the rule says that it may be absent.
    fn part(&mut self, node: &Node) -> String {
        let body = in_lexeme(node);
        if body == "\"\"" {
            return body;
        }
        if let Some(known) = self.names.get(&body) {
            return known.clone();
        }
        let mut name = format!("P{}", self.parts.len());
        self.parts.push(node.clone());
        if self.traits.nullable(node) {
            let _ = writeln!(self.terminals, "{name}: ({body}) & /(?s:.+)/");
            name.push('?');
        } else {
            let _ = writeln!(self.terminals, "{name}: {body}");
        }
        self.names.insert(body, name.clone());
        name
    }
}

fn in_lexeme(node: &Node) -> String {
    let each = |nodes: &[Node], between: &str| {
        let nodes: Vec<String> = nodes.iter().map(in_lexeme).collect();
        nodes.join(between)
    };
    match node {
        Node::Literal(text) => quote(text),
        Node::Class(class) => format!("/{class}/"),
        Node::Rule(index) => format!("T{index}"),
        Node::Sequence(nodes) if nodes.is_empty() => "\"\"".to_owned(),
        Node::Sequence(nodes) if nodes.len() == 1 => in_lexeme(&nodes[0]),
        Node::Sequence(nodes) => format!("({})", each(nodes, " ")),
        Node::Choice(nodes) => format!("({})", each(nodes, " | ")),
        Node::Repeat(node, min, max) => {
            format!("({}){}", in_lexeme(node), repetition(*min, *max))
        }
        Node::Token(_) => unreachable!("tokens are no characters"),
    }
}

fn repetition(min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let tokens = (0..=255_u8).map(|byte| vec![byte]).chain([vec![]]).collect();
        Vocabulary::new(tokens, [(256, "<think>".to_owned())], vec![], Box::new(|_| vec![]))
    }

    fn convert(text: &str) -> Result<String, GrammarError> {
        to_lark(text, &vocabulary())
    }

    #[test]
    fn rules_without_recursion_are_one_lexeme() {
        let lark = convert("root ::= a \"x\"\na ::= [a-c]{2,3}").unwrap();
        assert!(lark.starts_with("start: P0\n"), "{lark}");
        assert!(lark.contains("T1: (/[a-c]/){2,3}"), "{lark}");
    }

    #[test]
    fn recursive_grammars_have_lexemes_where_the_longest_is_the_only_one() {
        let json = "root ::= \"[\" (root | string) \"]\" ws\n\
                    string ::= \"\\\"\" [^\"]* \"\\\"\" ws\nws ::= [ ]*";
        let lark = convert(json).unwrap();
        assert!(lark.contains(r#"("\"" (/[^\u{22}]/)* "\"")"#), "{lark}");
        // `a` ends where `ab` goes on.
        let lark = convert("root ::= \"a\" root \"b\" | \"ab\" root | \"c\"").unwrap();
        assert!(!lark.contains("\"ab\""), "{lark}");
    }

    #[test]
    fn reads_every_notation() {
        let text = "# a comment\nroot ::= (\n  \"a\\\"\\x41\\u00e9\\n\" | # inner\n  [^\\]\\-a-z] \n) . rest? <think> !<[256]>\nrest ::=\n  \"b\"+ |\n  \"c\"{2}{0,3} \"\"";
        let grammar = parser::parse(text, &vocabulary()).unwrap();
        assert_eq!((grammar.rules.len(), grammar.root), (2, 0));
        let lark = convert(text).unwrap();
        assert!(lark.contains("<[256]>") && lark.contains("<[^256]>"), "{lark}");
        assert!(lark.contains("aé") || lark.contains("\\\"Aé\\n"), "{lark}");
    }

    #[test]
    fn errors_name_the_line_and_the_cause() {
        for (text, part) in [
            ("root ::= a", "line 1: rule `a` is not defined"),
            ("a ::= \"x\"", "rule `root` is not defined"),
            ("root ::= \"a", "line 1: a literal is not closed"),
            ("root ::= \"a\"\n\nroot ::= \"b\"", "line 3: rule `root` is defined twice"),
            ("root ::= (\"a\"", "is not closed"),
            ("root ::= [a", "class is not closed"),
            ("root ::= [z-a]", "line 1"),
            ("root ::= *", "nothing to repeat"),
            ("root ::= \"a\"{3,2}", "{3,2}"),
            ("root ::= \"a\"\nb = \"c\"", "line 2: `::=` expected"),
            ("root ::= \"\\q\"", "escape"),
            ("root ::= <nothing>", "special token"),
        ] {
            let message = convert(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }
}

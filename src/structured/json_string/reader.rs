//! Lark as definitions of names by parts, as far as it describes texts.

use super::escape::error;
use crate::error::GrammarError;
use crate::lark::{literal_len, regex_quote};

/// The name of what `%ignore` names.
pub(super) const IGNORED: &str = "%IGNORE";

/// The terminals of Lark's own library, as it defines them.
const COMMON: &[(&str, &str)] = &[
    ("DIGIT", "[0-9]"),
    ("HEXDIGIT", "[a-fA-F0-9]"),
    ("INT", "[0-9]+"),
    ("SIGNED_INT", "[+-]?[0-9]+"),
    ("DECIMAL", r"[0-9]+\.[0-9]*|\.[0-9]+"),
    ("FLOAT", r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"),
    (
        "SIGNED_FLOAT",
        r"[+-]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)",
    ),
    ("NUMBER", r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("SIGNED_NUMBER", r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ("ESCAPED_STRING", r#""(?:[^"\\]|\\.)*""#),
    ("LCASE_LETTER", "[a-z]"),
    ("UCASE_LETTER", "[A-Z]"),
    ("LETTER", "[A-Za-z]"),
    ("WORD", "[A-Za-z]+"),
    ("CNAME", "[_A-Za-z][_A-Za-z0-9]*"),
    ("WS_INLINE", r"[ \t]+"),
    ("WS", r"[ \t\f\r\n]+"),
    ("CR", r"\r"),
    ("LF", r"\n"),
    ("NEWLINE", r"(?:\r?\n)+"),
    ("SH_COMMENT", r"#[^\n]*"),
    ("CPP_COMMENT", r"//[^\n]*"),
    ("C_COMMENT", r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/"),
    ("SQL_COMMENT", r"--[^\n]*"),
];

/// A rule or a terminal.
#[derive(Debug)]
pub(super) struct Definition<'g> {
    pub(super) name: &'g str,
    pub(super) parts: Vec<Part<'g>>,
}

/// A part of a definition.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'g> {
    Name(&'g str),
    Text(String),
    /// From one character to another one.
    Range(String, String),
    /// A regular expression and its flags.
    Pattern(String, &'g str),
    /// A parenthesis, `|`, `&`, `~`, or what repeats the part before: `*`, `{1,2}`, `~2..3`.
    Sign(&'g str),
}

/// Terminals are in upper case.
pub(super) fn is_terminal(name: &str) -> bool {
    !name.contains(|c: char| c.is_lowercase())
}

/// The definitions of a grammar.
pub(super) fn read(grammar: &str) -> Result<Vec<Definition<'_>>, GrammarError> {
    let mut reader = Reader { rest: grammar, definitions: Vec::new(), open: 0 };
    while let Some(c) = reader.rest.chars().next() {
        reader.step(c)?;
    }
    if reader.open > 0 {
        return Err(error("a group is not closed"));
    }
    Ok(reader.definitions)
}

struct Reader<'g> {
    rest: &'g str,
    definitions: Vec<Definition<'g>>,
    /// Groups that are open.
    open: usize,
}

impl<'g> Reader<'g> {
    fn step(&mut self, c: char) -> Result<(), GrammarError> {
        match c {
            '#' => self.skip_line(),
            '/' if self.rest.starts_with("//") => self.skip_line(),
            '"' => return self.string(),
            '/' => return self.pattern(),
            '%' => return self.directive(),
            '~' | '{' => return self.tilde_or_braces(c),
            '-' if self.rest.starts_with("->") => {
                self.skip(2);
                self.rest = self.rest.trim_start();
                self.name();
            }
            '[' => {
                // An optional group of Lark; llguidance has attributes there.
                return Err(error("[...] is not supported; (...)? is"));
            }
            '(' | ')' | '|' | '&' | '*' | '+' | '?' => return self.sign(c),
            _ if c.is_whitespace() => {
                self.skip(c.len_utf8());
            }
            _ if c == '_' || c.is_alphanumeric() => return self.name_or_definition(),
            '!' => {
                self.skip(1);
            }
            _ => return Err(error(&format!("{c} is no part of a text"))),
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) -> &'g str {
        let (skipped, rest) = self.rest.split_at(len);
        self.rest = rest;
        skipped
    }

    fn skip_line(&mut self) {
        self.line();
    }

    fn line(&mut self) -> &'g str {
        self.skip(self.rest.find('\n').unwrap_or(self.rest.len()))
    }

    fn name(&mut self) -> &'g str {
        let is_name = |c: char| c == '_' || c.is_alphanumeric();
        self.skip(self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len()))
    }

    fn push(&mut self, part: Part<'g>) -> Result<(), GrammarError> {
        let last = self.definitions.last_mut();
        last.ok_or_else(|| error("it doesn't begin with a rule"))?.parts.push(part);
        Ok(())
    }

    fn sign(&mut self, c: char) -> Result<(), GrammarError> {
        let sign = self.skip(1);
        // `?rule: ...` is inlined in a tree; there is none.
        let before_rule = c == '?' && {
            let name = self.rest.trim_start_matches(|c: char| c == '_' || c.is_alphanumeric());
            name.len() < self.rest.len() && name.trim_start().starts_with(':')
        };
        match c {
            '(' => self.open += 1,
            ')' if self.open == 0 => return Err(error("a group is closed that is not open")),
            ')' => self.open -= 1,
            _ => {}
        }
        if before_rule { Ok(()) } else { self.push(Part::Sign(sign)) }
    }

    fn name_or_definition(&mut self) -> Result<(), GrammarError> {
        let name = self.name();
        let mut after = self.rest.trim_start_matches([' ', '\t']);
        if let Some(priority) = after.strip_prefix('.')
            && priority.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        {
            after = priority.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
            after = after.trim_start_matches([' ', '\t']);
        }
        if after.starts_with(['[', '{']) && self.open == 0 && after.contains(':') {
            let line = after.lines().next().unwrap_or_default();
            if line.contains("]:") || line.contains("] :") || line.contains("}:") {
                return Err(error(&format!("{name} has attributes or parameters")));
            }
        }
        let Some(body) = after.strip_prefix(':').filter(|_| self.open == 0) else {
            return self.push(Part::Name(name));
        };
        self.rest = body;
        if self.definitions.iter().any(|definition| definition.name == name) {
            return Err(error(&format!("{name} is defined twice")));
        }
        self.definitions.push(Definition { name, parts: Vec::new() });
        Ok(())
    }

    /// The letters behind a literal.
    fn flags(&mut self) -> &'g str {
        let len = self.rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(self.rest.len());
        self.skip(len)
    }

    fn string(&mut self) -> Result<(), GrammarError> {
        let text = self.string_value()?;
        let flags = self.flags();
        if self.rest.starts_with("..\"") {
            self.skip(2);
            let last = self.string_value()?;
            return self.push(Part::Range(text, last));
        }
        self.push(match flags {
            "" => Part::Text(text),
            _ => Part::Pattern(regex_quote(&text), flags),
        })
    }

    fn string_value(&mut self) -> Result<String, GrammarError> {
        let written = self.skip(literal_len(self.rest, '"'));
        serde_json::from_str(written).map_err(|_| error(&format!("{written} is no string")))
    }

    fn pattern(&mut self) -> Result<(), GrammarError> {
        let written = self.skip(literal_len(self.rest, '/'));
        let inside = written.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let inside = inside.filter(|inside| !inside.is_empty());
        let inside = inside.ok_or_else(|| error(&format!("{written} has no end")))?;
        let flags = self.flags();
        self.push(Part::Pattern(inside.replace("\\/", "/"), flags))
    }

    /// A repetition (`~2..3`, `{2,3}`), or what excludes the next part.
    fn tilde_or_braces(&mut self, c: char) -> Result<(), GrammarError> {
        let rest = self.rest;
        let len = if c == '{' {
            rest.find('}').map(|at| at + 1).ok_or_else(|| error("{ is not closed"))?
        } else {
            let is_count = |c: char| c.is_ascii_digit() || c == '.' || c == ' ';
            1 + rest[1..].find(|c| !is_count(c)).unwrap_or(rest.len() - 1)
        };
        let sign = rest[..len].trim_end();
        let len = if sign.len() == 1 { 1 } else { len };
        self.skip(len);
        self.push(Part::Sign(sign))
    }

    fn directive(&mut self) -> Result<(), GrammarError> {
        let line = self.rest.lines().next().unwrap_or_default();
        match line.split([' ', '\t', '(', '{']).next() {
            Some("%import") => {
                let line = self.line();
                self.import(line)
            }
            Some("%ignore") => {
                self.skip("%ignore".len());
                let ignored = self.definitions.iter().position(|found| found.name == IGNORED);
                match ignored {
                    // Parts are added to the last one.
                    Some(at) => {
                        let mut ignored = self.definitions.remove(at);
                        ignored.parts.push(Part::Sign("|"));
                        self.definitions.push(ignored);
                    }
                    None => self.definitions.push(Definition { name: IGNORED, parts: Vec::new() }),
                }
                Ok(())
            }
            name => Err(error(&format!("{} is no part of a text", name.unwrap_or_default()))),
        }
    }

    /// Terminals of Lark's library: `%import common.A`, `common.A -> B`, `common (A, B)`.
    fn import(&mut self, line: &'g str) -> Result<(), GrammarError> {
        let unknown = || error(&format!("{line:?}: only common's terminals can be imported"));
        let path = line["%import".len()..].trim().strip_prefix("common").ok_or_else(unknown)?;
        let path = path.trim_start();
        let mut names: Vec<(&str, &str)> = Vec::new();
        if let Some(list) = path.strip_prefix('(') {
            let list = list.trim_end().strip_suffix(')').ok_or_else(unknown)?;
            names.extend(list.split(',').map(str::trim).map(|name| (name, name)));
        } else {
            let name = path.strip_prefix('.').ok_or_else(unknown)?;
            let (name, alias) = name.split_once("->").unwrap_or((name, name));
            names.push((name.trim(), alias.trim()));
        }
        for (name, alias) in names {
            let found = COMMON.iter().find(|(known, _)| *known == name);
            let (_, pattern) = found.ok_or_else(unknown)?;
            let parts = vec![Part::Pattern((*pattern).to_owned(), "")];
            self.definitions.push(Definition { name: alias, parts });
        }
        Ok(())
    }
}

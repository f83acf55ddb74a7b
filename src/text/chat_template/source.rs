//! Template source as the engine wants it: what Jinja2 accepts and minijinja reads differently is
//! respelled before parsing, token by token and without moving a line.
//!
//! - Line endings become `\n`, as Jinja2's lexer does it.
//! - `{% generation %}` (transformers marks the assistant's part with it) becomes `{% with %}`, the
//!   tag with the same scope and the same whitespace rules.
//! - String literals with escapes are read as Python reads them.
//! - `"..." % value` becomes a filter, a unary plus disappears.
//! - The left operand of `+`, `~` and `*` passes through the filter [`BOUNDED`], which ends a
//!   template that grows a value without bound.

use std::borrow::Cow;

/// Name of the identity filter that refuses oversized values.
pub(super) const BOUNDED: &str = "_sconce_bounded";
/// Name of the filter behind `"..." % value`.
pub(super) const PERCENT: &str = "_sconce_percent";

/// Respells `source`. Malformed input is passed on as it stands: the parser reports it.
pub(super) fn respell(source: &str) -> String {
    let source = unify_newlines(source);
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut rest: &str = &source;
    while let Some(at) = find_tag(rest) {
        let (data, tag) = rest.split_at(at);
        out.push_str(data);
        let length = match &tag[..2] {
            "{#" => tag.find("#}").map_or(tag.len(), |end| end + 2),
            "{%" => raw_block(tag).unwrap_or_else(|| 0),
            _ => 0,
        };
        if length > 0 {
            out.push_str(&tag[..length]);
            rest = &tag[length..];
        } else {
            rest = respell_tag(tag, &mut out);
        }
    }
    out.push_str(rest);
    out
}

fn unify_newlines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        Cow::Owned(source.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(source)
    }
}

fn find_tag(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len())
        .find(|&at| bytes[at - 1] == b'{' && matches!(bytes[at], b'{' | b'%' | b'#'))
        .map(|at| at - 1)
}

/// The length of a whole `{% raw %} ... {% endraw %}` at the start of `tag`.
fn raw_block(tag: &str) -> Option<usize> {
    let (_, mut at) = bare_tag(tag, "raw")?;
    while let Some(next) = tag[at..].find("{%") {
        at += next;
        if let Some((_, length)) = bare_tag(&tag[at..], "endraw") {
            return Some(at + length);
        }
        at += 2;
    }
    None
}

/// Whether `tag` begins with `{% name %}` in any spelling of whitespace control; gives where the
/// name begins and where the tag ends.
fn bare_tag(tag: &str, name: &str) -> Option<(usize, usize)> {
    let inner = tag.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let start = tag.len() - inner.len();
    let after = inner.strip_prefix(name)?.trim_start();
    let after = after.strip_prefix(['-', '+']).unwrap_or(after).strip_prefix("%}")?;
    Some((start, tag.len() - after.len()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Space,
    Name,
    Number,
    Text,
    Open,
    Close,
    Operator,
}

struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
}

/// Respells one `{{ }}` or `{% %}` into `out` and gives what follows it.
fn respell_tag<'a>(tag: &'a str, out: &mut String) -> &'a str {
    for (name, replacement) in [("generation", "with"), ("endgeneration", "endwith")] {
        if let Some((start, end)) = bare_tag(tag, name) {
            out.push_str(&tag[..start]);
            out.push_str(replacement);
            out.push_str(&tag[start + name.len()..end]);
            return &tag[end..];
        }
    }
    let close = if tag.starts_with("{{") { "}}" } else { "%}" };
    let sign = usize::from(tag[2..].starts_with(['-', '+']));
    let (tokens, rest) = tokenize(&tag[2 + sign..], close);
    out.push_str(&tag[..2 + sign]);
    write_tokens(&tokens, out);
    rest
}

/// The tokens up to the closing delimiter, and the text from it on.
fn tokenize<'a>(mut rest: &'a str, close: &str) -> (Vec<Token<'a>>, &'a str) {
    let mut tokens = Vec::new();
    let mut depth = 0usize;
    while let Some(first) = rest.chars().next() {
        if depth == 0 && closes(rest, close) {
            break;
        }
        let (kind, length) = next_token(rest, first);
        match kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push(Token { kind, text: &rest[..length] });
        rest = &rest[length..];
    }
    (tokens, rest)
}

fn closes(rest: &str, close: &str) -> bool {
    rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with(close) || rest.starts_with(close)
}

fn next_token(rest: &str, first: char) -> (TokenKind, usize) {
    let span = |accept: fn(char) -> bool| rest.find(|c| !accept(c)).unwrap_or(rest.len());
    match first {
        '\'' | '"' => (TokenKind::Text, string_length(rest, first)),
        '(' | '[' | '{' => (TokenKind::Open, 1),
        ')' | ']' | '}' => (TokenKind::Close, 1),
        _ if first.is_whitespace() => (TokenKind::Space, span(char::is_whitespace)),
        _ if first.is_ascii_digit() => (TokenKind::Number, number_length(rest)),
        _ if first.is_alphanumeric() || first == '_' => {
            (TokenKind::Name, span(|c| c.is_alphanumeric() || c == '_'))
        }
        _ if ["**", "//", "==", "!=", ">=", "<="].iter().any(|op| rest.starts_with(op)) => {
            (TokenKind::Operator, 2)
        }
        _ => (TokenKind::Operator, first.len_utf8()),
    }
}

/// A number with its fraction and exponent, so that the sign in `1e+5` is no operator.
fn number_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let digits = |from: usize| {
        let run = bytes[from..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_');
        from + run.count()
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    let exponent = matches!(bytes[end - 1], b'e' | b'E') && !rest.starts_with("0x");
    if exponent && matches!(bytes.get(end), Some(b'+' | b'-')) {
        end = digits(end + 1);
    }
    end
}

fn string_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

fn write_tokens(tokens: &[Token<'_>], out: &mut String) {
    let mut operand = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match (token.kind, token.text) {
            (TokenKind::Space, _) => {
                out.push_str(token.text);
                continue;
            }
            (TokenKind::Text, literal) => write_string(literal, out),
            (TokenKind::Operator, "+") if operand.is_none() => continue,
            (TokenKind::Operator, "+" | "~" | "*") if operand.is_some() => {
                out.push('|');
                out.push_str(BOUNDED);
                out.push(' ');
                out.push_str(token.text);
            }
            (TokenKind::Operator, "%") if operand == Some(TokenKind::Text) => {
                let end = operand_end(tokens, at);
                out.push('|');
                out.push_str(PERCENT);
                out.push('(');
                write_tokens(&tokens[at..end], out);
                out.push(')');
                at = end;
                operand = Some(TokenKind::Close);
                continue;
            }
            _ => out.push_str(token.text),
        }
        operand = ends_operand(token).then_some(token.kind);
    }
}

/// Where the primary expression that starts at `at`, with its attributes and calls, ends.
fn operand_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    let skip_space = |mut at: usize| {
        while tokens.get(at).is_some_and(|token| token.kind == TokenKind::Space) {
            at += 1;
        }
        at
    };
    at = skip_space(at);
    let mut end = primary_end(tokens, at);
    loop {
        let next = skip_space(end);
        match tokens.get(next).map(|token| (token.kind, token.text)) {
            Some((TokenKind::Open, "(" | "[")) => end = primary_end(tokens, next),
            Some((TokenKind::Operator, "." | "|")) => end = (next + 2).min(tokens.len()),
            _ => return end,
        }
    }
}

fn primary_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

fn ends_operand(token: &Token<'_>) -> bool {
    const KEYWORDS: [&str; 8] = ["and", "or", "not", "in", "is", "if", "else", "elif"];
    match token.kind {
        TokenKind::Name => !KEYWORDS.contains(&token.text),
        TokenKind::Number | TokenKind::Text | TokenKind::Close => true,
        TokenKind::Space | TokenKind::Open | TokenKind::Operator => false,
    }
}

/// Writes a literal so that minijinja reads from it what Python would.
fn write_string(literal: &str, out: &mut String) {
    let inner = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    let Some(value) = inner.contains('\\').then(|| unescape(inner)).flatten() else {
        out.push_str(literal);
        return;
    };
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Python's `unicode_escape`; `None` where Python refuses the literal (the parser then does too).
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escape = chars.next()?;
        match escape {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(escape),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\x0b'),
            'x' => out.push(hex_character(&mut chars, 2)?),
            'u' => out.push(hex_character(&mut chars, 4)?),
            'U' => out.push(hex_character(&mut chars, 8)?),
            '0'..='7' => {
                let mut code = escape.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    chars.next();
                }
                out.push(char::from_u32(code)?);
            }
            _ => out.extend(['\\', escape]),
        }
    }
    Some(out)
}

fn hex_character(chars: &mut impl Iterator<Item = char>, digits: usize) -> Option<char> {
    let text: String = chars.take(digits).collect();
    if text.chars().count() != digits {
        return None;
    }
    char::from_u32(u32::from_str_radix(&text, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(respell(source).replace(&format!("|{BOUNDED} "), "!"), expected);
    }

    #[test]
    fn leaves_data_comments_and_raw_blocks_alone() {
        for source in [
            "a + b { { %",
            "{# a + '\\d' #}",
            "{% raw %}{{ a + b }}{% endraw %}",
            "{{ unclosed",
            "{",
        ] {
            check(source, source);
        }
        check("a\r\nb\rc", "a\nb\nc");
    }

    #[test]
    fn generation_becomes_a_scope_with_the_same_whitespace_control() {
        check("{%- generation %}x{% endgeneration -%}", "{%- with %}x{% endwith -%}");
        check("{% set generation = 1 %}", "{% set generation = 1 %}");
    }

    #[test]
    fn left_operands_are_bounded() {
        check("{{ a + b['c'] ~ f(*x, **y) }}", "{{ a !+ b['c'] !~ f(*x, **y) }}");
        check("{{ x[-1] * 2 if not +1 }}", "{{ x[-1] !* 2 if not 1 }}");
        check("{{ 1e+5 }}", "{{ 1e+5 }}");
        check("{% for a in '+%}' %}", "{% for a in '+%}' %}");
    }

    #[test]
    fn strings_read_as_python_reads_them() {
        check(r"{{ '\d\x41\u00e9\n\/' }}", r#"{{ "\\dAé\n\\/" }}"#);
        check(r#"{{ "it\'s" }}"#, r#"{{ "it's" }}"#);
    }

    #[test]
    fn percent_formatting_takes_one_operand() {
        let expected = format!("{{{{ '%s-%s'|{PERCENT}( (a, b)) == x.y % 2 }}}}");
        assert_eq!(respell("{{ '%s-%s' % (a, b) == x.y % 2 }}"), expected);
    }
}

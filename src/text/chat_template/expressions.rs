//! The expressions of a template, respelled so that operators mean what they mean in Python.
//!
//! minijinja's own `+`, `~`, `*` and `%` can be neither replaced nor bounded, so they become calls
//! of the functions in [`operators`](super::operators); the sequence of a `for` passes through one
//! too. Only the precedence of these operators is known here: everything between them is copied,
//! and mistakes are left to the parser.

use super::literals;
use super::operators::{ADD, CONCAT, ITERATE, MODULO, MULTIPLY, SLICE};
use super::tokens::{Token, TokenKind};

/// Respells the inside of `{{ }}` (`statement` false) or `{% %}`.
pub(super) fn respell(tokens: &[Token<'_>], statement: bool, out: &mut String) {
    let first = tokens.iter().position(|token| token.kind != TokenKind::Space);
    match first {
        Some(first) if statement => {
            copy(&tokens[..=first], out);
            let rest = &tokens[first + 1..];
            match tokens[first].text {
                "for" => for_loop(rest, out),
                _ => list(rest, out),
            }
        }
        _ => list(tokens, out),
    }
}

fn copy(tokens: &[Token<'_>], out: &mut String) {
    for token in tokens {
        match token.kind {
            TokenKind::Text => literals::write(token.text, out),
            _ => out.push_str(token.text),
        }
    }
}

/// `TARGET in SEQUENCE [if CONDITION] [recursive]`.
fn for_loop(tokens: &[Token<'_>], out: &mut String) {
    let names =
        |wanted: &'static str| top_level(tokens).filter(move |&at| is_keyword(tokens, at, wanted));
    let Some(start) = names("in").next() else { return list(tokens, out) };
    let ends = names("if").chain(names("recursive")).filter(|&at| at > start).min();
    let end = ends.unwrap_or(tokens.len());
    let sequence = &tokens[start + 1..end];
    let is_tuple = top_level(sequence).any(|at| sequence[at].text == ",");
    copy(&tokens[..=start], out);
    out.push(' ');
    out.push_str(ITERATE);
    out.push_str(if is_tuple { "((" } else { "(" });
    list(sequence, out);
    out.push_str(if is_tuple { ")) " } else { ") " });
    match tokens[end..].split_first() {
        Some((keyword, rest)) if keyword.text == "if" => {
            out.push_str("if");
            list(rest, out);
        }
        _ => copy(&tokens[end..], out),
    }
}

/// Expressions with separators of lower precedence than the arithmetic ones between them.
fn list(tokens: &[Token<'_>], out: &mut String) {
    let mut start = 0;
    for at in top_level(tokens) {
        if is_separator(tokens, at) {
            additive(&tokens[start..at], out);
            out.push_str(tokens[at].text);
            start = at + 1;
        }
    }
    additive(&tokens[start..], out);
}

fn is_separator(tokens: &[Token<'_>], at: usize) -> bool {
    match tokens[at].kind {
        TokenKind::Operator => {
            matches!(tokens[at].text, "," | ":" | "=" | "==" | "!=" | ">" | "<" | ">=" | "<=")
        }
        TokenKind::Name => ["and", "or", "not", "in", "if", "else", "recursive"]
            .iter()
            .any(|word| is_keyword(tokens, at, word)),
        _ => false,
    }
}

/// Whether the token is `word` as a keyword: no attribute, no name of a test or filter.
fn is_keyword(tokens: &[Token<'_>], at: usize, word: &str) -> bool {
    let before = tokens[..at].iter().rfind(|token| token.kind != TokenKind::Space);
    let named = match before.map(|token| token.text) {
        Some("." | "|" | "is") => true,
        Some("not") if word == "in" => {
            let earlier = tokens[..at].iter().rev().filter(|token| token.kind != TokenKind::Space);
            earlier.clone().nth(1).is_some_and(|token| token.text == "is")
        }
        _ => false,
    };
    tokens[at].kind == TokenKind::Name && tokens[at].text == word && !named
}

/// Indices of the tokens that are in no bracket; opening brackets count, what they hold does not.
fn top_level<'a>(tokens: &'a [Token<'_>]) -> impl Iterator<Item = usize> + Clone + 'a {
    let mut depth = 0usize;
    let indices = tokens.iter().enumerate().map(move |(at, token)| {
        let outside = depth == 0;
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        (at, outside)
    });
    indices.filter(|(_, outside)| *outside).map(|(at, _)| at)
}

/// Operands with the binary operators before them, split at those that `accept` names.
fn split<'a, 'b>(
    tokens: &'b [Token<'a>],
    accept: fn(&str) -> bool,
) -> Vec<(&'a str, &'b [Token<'a>])> {
    let mut parts = Vec::new();
    let (mut start, mut operator, mut has_operand) = (0, "", false);
    for at in top_level(tokens) {
        let token = &tokens[at];
        match token.kind {
            TokenKind::Operator if has_operand && accept(token.text) => {
                parts.push((operator, &tokens[start..at]));
                (start, operator, has_operand) = (at + 1, token.text, false);
            }
            TokenKind::Space => {}
            TokenKind::Operator => has_operand = false,
            _ => has_operand = true,
        }
    }
    parts.push((operator, &tokens[start..]));
    parts
}

fn additive(tokens: &[Token<'_>], out: &mut String) {
    let parts = split(tokens, |operator| matches!(operator, "+" | "-"));
    fold(&parts, concat, |operator| (operator == "+").then_some(ADD), out);
}

fn concat(tokens: &[Token<'_>], out: &mut String) {
    let parts = split(tokens, |operator| operator == "~");
    if parts.len() == 1 {
        return multiplicative(tokens, out);
    }
    // A call must not grow into the keyword before it.
    out.push(' ');
    out.push_str(CONCAT);
    out.push('(');
    for (index, (_, operand)) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        multiplicative(operand, out);
    }
    out.push(')');
}

fn multiplicative(tokens: &[Token<'_>], out: &mut String) {
    let parts = split(tokens, |operator| matches!(operator, "*" | "/" | "//" | "%"));
    let function = |operator: &str| match operator {
        "*" => Some(MULTIPLY),
        "%" => Some(MODULO),
        _ => None,
    };
    fold(&parts, operand, function, out);
}

/// Left to right: an operator with a function becomes its call on all that came before.
fn fold(
    parts: &[(&str, &[Token<'_>])],
    inner: fn(&[Token<'_>], &mut String),
    function: impl Fn(&str) -> Option<&'static str>,
    out: &mut String,
) {
    let mut text = String::new();
    for (index, (operator, operand)) in parts.iter().enumerate() {
        match function(operator) {
            Some(name) if index > 0 => {
                text = format!(" {name}({text},");
                inner(operand, &mut text);
                text.push(')');
            }
            _ => {
                text.push_str(operator);
                inner(operand, &mut text);
            }
        }
    }
    out.push_str(&text);
}

/// An operand: copied, but for what is in brackets, and slices, which become calls. A leading plus
/// says nothing and is left out.
fn operand(tokens: &[Token<'_>], out: &mut String) {
    let mut at = 0;
    // The token before, and where the value that a subscript applies to starts.
    let mut before: Option<usize> = None;
    let mut value = out.len();
    while let Some(token) = tokens.get(at) {
        if token.kind != TokenKind::Space && starts_value(tokens, before) {
            value = out.len();
        }
        match token.kind {
            TokenKind::Open => {
                let close = closing(tokens, at);
                let inner = &tokens[at + 1..close];
                let subscript = token.text == "[" && !starts_value(tokens, before);
                if subscript && top_level(inner).any(|at| inner[at].text == ":") {
                    slice(inner, value, out);
                    at = close;
                } else {
                    out.push_str(token.text);
                    list(inner, out);
                    at = close.saturating_sub(1);
                }
            }
            TokenKind::Operator if before.is_none() && token.text == "+" => {}
            TokenKind::Space => out.push_str(token.text),
            _ => copy(std::slice::from_ref(token), out),
        }
        if token.kind != TokenKind::Space {
            before = Some(at);
        }
        at += 1;
    }
}

/// Whether a value starts behind the token at `before`: at the beginning, behind an operator that
/// is no dot, and behind the name of a test, whose argument may stand bare.
fn starts_value(tokens: &[Token<'_>], before: Option<usize>) -> bool {
    let Some(before) = before.and_then(|at| Some((at, tokens.get(at)?))) else { return true };
    match before {
        (_, token) if token.kind == TokenKind::Operator => token.text != ".",
        (at, token) if token.kind == TokenKind::Name => {
            let mut earlier =
                tokens[..at].iter().rev().filter(|token| token.kind != TokenKind::Space);
            let named = match earlier.next().map(|token| token.text) {
                Some("not") => earlier.next().is_some_and(|token| token.text == "is"),
                word => word == Some("is"),
            };
            named || token.text == "is" || token.text == "not"
        }
        _ => false,
    }
}

/// `VALUE[start:stop:step]`, where the value is what `out` holds from `value` on.
fn slice(inner: &[Token<'_>], value: usize, out: &mut String) {
    let sliced = out.split_off(value);
    out.extend([" ", SLICE, "(", &sliced]);
    let mut start = 0;
    let colons = top_level(inner).filter(|&at| inner[at].text == ":");
    for end in colons.chain([inner.len()]) {
        let part = &inner[start..end];
        let empty = part.iter().all(|token| token.kind == TokenKind::Space);
        out.push(',');
        if empty {
            copy(part, out);
            out.push_str("none");
        } else {
            list(part, out);
        }
        start = end + 1;
    }
    out.push(')');
}

/// The index of the bracket that closes the one at `open`, or the end.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

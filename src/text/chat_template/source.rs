//! Template source as the engine wants it: what Jinja2 accepts and minijinja reads differently is
//! respelled before parsing, tag by tag and without moving a line.
//!
//! - Line endings become `\n`, as Jinja2's lexer does it.
//! - `{% generation %}` (transformers marks the assistant's part with it) becomes `{% with %}`, the
//!   tag with the same scope and the same whitespace rules.
//! - Operators and string literals get Python's meaning, see [`expressions`] and
//!   [`literals`](super::literals).

use std::borrow::Cow;

use super::expressions;
use super::literals;
use super::tokens::{TokenKind, tokenize};

/// Respells `source`. Malformed input is passed on as it stands: the parser reports it.
pub(super) fn respell(source: &str) -> String {
    let source = unify_newlines(source);
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut rest: &str = &source;
    while let Some(at) = find_tag(rest) {
        let (data, tag) = rest.split_at(at);
        out.push_str(data);
        rest = match &tag[..2] {
            "{#" => {
                let (comment, after) =
                    tag.split_at(tag.find("#}").map_or(tag.len(), |end| end + 2));
                out.push_str(comment);
                after
            }
            _ => match raw_block(tag, &mut out) {
                Some(after) => after,
                None => respell_tag(tag, &mut out),
            },
        };
    }
    out.push_str(rest);
    out
}

/// Tokens in one tag, white space aside; real templates have some dozens.
const MAX_TAG_TOKENS: usize = 1000;
/// Alternatives in all conditions of a template.
const MAX_ELIFS: usize = 500;

/// What in `source` nests deeper than the parser's stack may be trusted to hold, with its line:
/// within one tag every token may open another level, and so does every `elif`.
pub(super) fn check_nesting(source: &str) -> Result<(), (usize, String)> {
    let (mut rest, mut elifs) = (source, 0);
    while let Some(at) = find_tag(rest) {
        let tag = &rest[at..];
        let refuse =
            |message| Err((1 + source[..source.len() - tag.len()].matches('\n').count(), message));
        if tag.starts_with("{#") {
            rest = tag.find("#}").map_or("", |end| &tag[end + 2..]);
            continue;
        }
        let close = if tag.starts_with("{%") { "%}" } else { "}}" };
        let (tokens, after) = tokenize(&tag[2..], close);
        let mut solid = tokens.iter().filter(|token| token.kind != TokenKind::Space);
        let names = solid.clone().find(|token| token.kind == TokenKind::Name);
        elifs += usize::from(names.is_some_and(|name| name.text == "elif"));
        if elifs > MAX_ELIFS {
            return refuse(format!("there are more than {MAX_ELIFS} elif"));
        }
        if solid.nth(MAX_TAG_TOKENS).is_some() {
            return refuse(format!("a tag has more than {MAX_TAG_TOKENS} tokens"));
        }
        rest = after;
    }
    Ok(())
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

/// Respells `{% raw %} ... {% endraw %}` at the start of `tag`, if it is there, as a printed string
/// and gives what follows it. Jinja2 trims around raw blocks in ways of its own: the line end behind
/// the opening tag stays.
fn raw_block<'a>(tag: &'a str, out: &mut String) -> Option<&'a str> {
    let (_, opened) = bare_tag(tag, "raw")?;
    let mut at = opened;
    let (text, close) = loop {
        at += tag[at..].find("{%")?;
        match bare_tag(&tag[at..], "endraw") {
            Some((_, length)) => break (&tag[opened..at], &tag[at..at + length]),
            None => at += 2,
        }
    };
    let rest = &tag[at + close.len()..];
    let strips_start = tag[..opened].ends_with("-%}");
    let kept = if strips_start { text.trim_start() } else { text };
    let skipped = &text[..text.len() - kept.len()];
    let kept = match close.as_bytes()[2] {
        b'-' => kept.trim_end(),
        b'+' => kept,
        _ => without_indent(kept, skipped.ends_with('\n')),
    };
    let sign = |text: &'a str| if text.starts_with(['-', '+']) { &text[..1] } else { "" };
    let end_sign = &close[close.len() - 3..close.len() - 2];
    let end_sign = if matches!(end_sign, "-" | "+") { end_sign } else { "" };
    out.extend(["{%", sign(&tag[2..]), " if true +%}{{ "]);
    literals::write_text(kept, out);
    // The literal is on one line; what follows keeps its line number.
    let lines = "\n".repeat(text.matches('\n').count());
    out.extend([lines.as_str(), " }}{%+ endif ", end_sign, "%}"]);
    Some(rest)
}

/// Cuts whitespace at the end that is alone on its line.
fn without_indent(text: &str, at_line_start: bool) -> &str {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let blank = text[line..].chars().all(char::is_whitespace);
    if blank && (line > 0 || at_line_start) { &text[..line] } else { text }
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
    let statement = tag.starts_with("{%");
    let sign = usize::from(tag[2..].starts_with(['-', '+']));
    let (tokens, rest) = tokenize(&tag[2 + sign..], if statement { "%}" } else { "}}" });
    out.push_str(&tag[..2 + sign]);
    expressions::respell(&tokens, statement, out);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(respell(source).replace("_sconce_", "_"), expected);
    }

    #[test]
    fn leaves_data_and_comments_alone() {
        for source in ["a + b { { %", "{# a + '\\d' #}", "{{ unclosed", "{", "é{"] {
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
    fn raw_blocks_become_strings() {
        let expected = "a {%- if true +%}{{ \"{{ a + b }}\\n\"\n }}{%+ endif -%} b";
        check("a {%- raw %}{{ a + b }}\n{% endraw -%} b", expected);
        check("{% raw %}x", "{% raw %}x");
    }

    #[test]
    fn operators_become_calls_by_precedence() {
        check("{{ a + b['c'] ~ d }}", "{{ _add( a , _concat( b['c'] , d ))}}");
        check("{{ a - b + c*2 }}", "{{ _add( a - b , _multiply( c,2 ))}}");
        check("{{ a == b % 2 or not x + 1 }}", "{{ a == _modulo( b , 2 )or not _add( x , 1 )}}");
        check("{{ a or b ~ c and d }}", "{{ a or _concat( b , c )and d }}");
        check("{{ f(*x, **y) }}", "{{ f(*x, **y) }}");
        check("{{ x[-1] if +1 }}", "{{ x[-1] if 1 }}");
        check("{{ x is not in y + z }}", "{{ _add( x is not in y , z )}}");
        check("{{ 1e+5 }}", "{{ 1e+5 }}");
    }

    #[test]
    fn slices_become_calls() {
        check("{{ a.b[1:] + c }}", "{{ _add(  _slice(a.b,1,none) , c )}}");
        check("{{ -a[::-1][0] }}", "{{ - _slice(a,none,none,-1)[0] }}");
        check("{{ x is in y[:2] }}", "{{ x is in  _slice(y,none,2) }}");
        check("{{ {'a': [1:2]} }}", "{{ {'a': [1:2]} }}");
        check("{{ f(a[b + 1:])['c'] }}", "{{ f( _slice(a, _add(b , 1),none))['c'] }}");
    }

    #[test]
    fn loops_iterate_through_our_function() {
        check("{% for a, b in c + d if e %}", "{% for a, b in _iterate( _add( c , d )) if e %}");
        check("{% for a in b recursive %}", "{% for a in _iterate( b ) recursive %}");
        check("{% for a in 1, 2 %}", "{% for a in _iterate(( 1, 2 )) %}");
        check("{% for a in '+%}' %}", "{% for a in _iterate( '+%}' ) %}");
    }
}

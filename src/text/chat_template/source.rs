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
use super::tokens::tokenize;

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
            "{%" => raw_block(tag).unwrap_or(0),
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
    fn leaves_data_comments_and_raw_blocks_alone() {
        let raw = "{% raw %}{{ a + b }}{% endraw %}";
        for source in ["a + b { { %", "{# a + '\\d' #}", raw, "{{ unclosed", "{", "é{"] {
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
    fn operators_become_calls_by_precedence() {
        check("{{ a + b['c'] ~ d }}", "{{_add( a ,_concat( b['c'] , d ))}}");
        check("{{ a - b + c*2 }}", "{{_add( a - b ,_multiply( c,2 ))}}");
        check("{{ a == b % 2 or not x + 1 }}", "{{ a ==_modulo( b , 2 )or not _add( x , 1 )}}");
        check("{{ f(*x, **y) }}", "{{ f(*x, **y) }}");
        check("{{ x[-1] if +1 }}", "{{ x[-1] if 1 }}");
        check("{{ x is not in y + z }}", "{{_add( x is not in y , z )}}");
        check("{{ 1e+5 }}", "{{ 1e+5 }}");
    }

    #[test]
    fn loops_iterate_through_our_function() {
        check("{% for a, b in c + d if e %}", "{% for a, b in _iterate(_add( c , d )) if e %}");
        check("{% for a in b recursive %}", "{% for a in _iterate( b ) recursive %}");
        check("{% for a in 1, 2 %}", "{% for a in _iterate(( 1, 2 )) %}");
        check("{% for a in '+%}' %}", "{% for a in _iterate( '+%}' ) %}");
    }
}

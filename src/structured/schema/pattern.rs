//! Regular expressions as JSON Schema means them (ECMA-262), in the syntax that the automata read.
//!
//! The two dialects agree on most spellings and differ silently on some: `.` and `\s` name other
//! sets, `[[a]` is a set of two characters there and an error here. A pattern that is no regular
//! language (look-around, back-references, word boundaries) is refused.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::CharIndices;

use llguidance::derivre::{RegexAst, RegexBuilder};

/// White space and line ends of ECMA-262, as the inside of a character class.
const SPACE: &str =
    r"\t-\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
/// States that matching one name against one pattern may take.
const MATCH_FUEL: u64 = 10_000;

/// The pattern in the syntax of the `regex` crate, or why there is none.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => escape(&mut chars, &mut out, false)?,
            '.' => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            '[' => class(&mut chars, &mut out)?,
            '(' => group(&pattern[at..], &mut chars, &mut out)?,
            '{' => repetition(&pattern[at..], &mut out),
            ']' | '}' if !closes(pattern, at, c) => {
                let _ = write!(out, "\\{c}");
            }
            // Meant literally there, comments and flags of other syntaxes here.
            '#' | '&' | '~' | '-' | '/' => {
                let _ = write!(out, "\\u{{{:X}}}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// The patterns that all must match where `pattern` does: what it looks ahead for at its start,
/// and the rest of it.
pub(super) fn split_look_ahead(pattern: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = pattern.strip_prefix('^').unwrap_or(pattern);
    while pattern.starts_with("^(?=")
        && let Some(inner) = rest.strip_prefix("(?=")
        && let Some(len) = group_len(inner)
    {
        parts.push(format!("^(?:{})", &inner[..len]));
        rest = &inner[len + 1..];
    }
    // An alternative outside the groups would be anchored by what was taken away.
    let whole = parts.is_empty() || !rest.contains('|');
    if !whole {
        return vec![pattern.to_owned()];
    }
    let anchor = if pattern.starts_with('^') { "^" } else { "" };
    parts.push(format!("{anchor}{rest}"));
    parts
}

// The length of a group's inside, up to its closing parenthesis.
fn group_len(inner: &str) -> Option<usize> {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class && depth == 0 => return Some(at),
            ')' if !in_class => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether the translated pattern is found in `text`; an error where that takes too many states.
pub(super) fn is_match(translated: &str, text: &str) -> Result<bool, String> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk_regex_for_serach(translated).map_err(|e| e.to_string())?;
    let regex = builder.to_regex_limited(expression, MATCH_FUEL);
    Ok(regex.map_err(|e| e.to_string())?.is_match(text))
}

/// Texts, as far as one schema describes them.
pub(super) enum Texts<'t> {
    /// The texts of a list.
    Listed(Vec<&'t str>),
    /// The texts in which a translated pattern is found.
    Matching(String),
}

/// Whether no text is in both sets; not said where that takes too many states.
pub(super) fn are_disjoint(a: &Texts<'_>, b: &Texts<'_>) -> bool {
    let mut builder = RegexBuilder::new();
    let asts = [a, b].map(|texts| match texts {
        Texts::Listed(texts) => {
            RegexAst::Or(texts.iter().map(|text| RegexAst::Literal((*text).to_owned())).collect())
        }
        Texts::Matching(pattern) => RegexAst::SearchRegex(pattern.clone()),
    });
    let both = builder.mk(&RegexAst::And(asts.to_vec()));
    let regex = both.and_then(|both| builder.to_regex_limited(both, MATCH_FUEL));
    regex.is_ok_and(|mut regex| regex.always_empty())
}

/// A pattern that exactly the strings outside `literals` match.
pub(super) fn complement(literals: &[&str]) -> String {
    let mut sorted: Vec<Vec<char>> = literals.iter().map(|text| text.chars().collect()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut out = String::from("^");
    complement_node(&sorted, 0, &mut out);
    out.push('$');
    out
}

// All texts that don't continue like one of `words` from character `depth` on: the words are
// sorted and share their first `depth` characters.
fn complement_node(words: &[Vec<char>], depth: usize, out: &mut String) {
    let ends_here = words.first().is_some_and(|word| word.len() == depth);
    let longer = &words[usize::from(ends_here)..];
    out.push_str("(?:");
    if longer.is_empty() {
        out.push_str(if ends_here { "[^]+" } else { "[^]*" });
    } else {
        out.push_str("[^");
        let groups: Vec<&[Vec<char>]> = longer.chunk_by(|a, b| a[depth] == b[depth]).collect();
        for group in &groups {
            push_char(group[0][depth], out);
        }
        out.push_str("][^]*");
        for group in groups {
            out.push('|');
            push_char(group[0][depth], out);
            complement_node(group, depth + 1, out);
        }
        if !ends_here {
            out.push('|');
        }
    }
    out.push(')');
}

fn push_char(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii() {
        out.push(c);
    } else {
        let _ = write!(out, "\\u{{{:X}}}", u32::from(c));
    }
}

type Chars<'a> = Peekable<CharIndices<'a>>;

fn group(rest: &str, chars: &mut Chars<'_>, out: &mut String) -> Result<(), String> {
    for (opening, name) in [
        ("(?=", "look-ahead"),
        ("(?!", "look-ahead"),
        ("(?<=", "look-behind"),
        ("(?<!", "look-behind"),
    ] {
        if rest.starts_with(opening) {
            return Err(format!("{name} `{opening}` has no automaton here"));
        }
    }
    if rest.starts_with("(?:") {
        chars.nth(1);
        out.push_str("(?:");
    } else if rest.starts_with("(?<") {
        chars.find(|(_, c)| *c == '>').ok_or("a group name is not closed by `>`")?;
        out.push_str("(?:");
    } else if rest.starts_with("(?") {
        return Err("a group with flags is no ECMA-262 pattern".to_owned());
    } else {
        out.push_str("(?:");
    }
    Ok(())
}

// A brace that doesn't open a repetition stands for itself.
fn repetition(rest: &str, out: &mut String) {
    if repetition_len(rest).is_some() { out.push('{') } else { out.push_str("\\{") }
}

fn repetition_len(rest: &str) -> Option<usize> {
    let end = rest.find('}')?;
    let (min, max) = rest[1..end].split_once(',').unwrap_or((&rest[1..end], "0"));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (number(min) && (max.is_empty() || number(max))).then_some(end)
}

fn closes(pattern: &str, at: usize, c: char) -> bool {
    c == '}'
        && pattern[..at]
            .rfind('{')
            .is_some_and(|open| repetition_len(&pattern[open..]) == Some(at - open))
}

// After a backslash.
fn escape(chars: &mut Chars<'_>, out: &mut String, in_class: bool) -> Result<(), String> {
    let (_, c) = chars.next().ok_or("it ends with a backslash")?;
    let open = if in_class { "" } else { "[" };
    let close = if in_class { "" } else { "]" };
    let _ = match c {
        'd' => write!(out, "{open}0-9{close}"),
        'w' => write!(out, "{open}0-9A-Za-z_{close}"),
        's' => write!(out, "{open}{SPACE}{close}"),
        'D' => write!(out, "[^0-9]"),
        'W' => write!(out, "[^0-9A-Za-z_]"),
        'S' => write!(out, "[^{SPACE}]"),
        't' | 'n' | 'r' | 'f' | 'v' => write!(out, "\\{c}"),
        'b' if in_class => write!(out, "\\u{{8}}"),
        'b' | 'B' => return Err(format!("word boundary `\\{c}` has no automaton here")),
        'k' | '1'..='9' => return Err(format!("back-reference `\\{c}` is no regular language")),
        '0' => write!(out, "\\u{{0}}"),
        'x' => write!(out, "\\u{{{:X}}}", hex(chars, 2)?),
        'u' => write!(out, "\\u{{{:X}}}", code_point(chars)?),
        'c' => {
            let (_, letter) = chars.next().ok_or("`\\c` is not followed by a letter")?;
            write!(out, "\\u{{{:X}}}", u32::from(letter) % 32)
        }
        'p' | 'P' => property(c, chars, out)?,
        _ if c.is_ascii_alphabetic() => write!(out, "{c}"),
        _ => {
            push_char(c, out);
            Ok(())
        }
    };
    Ok(())
}

fn property(c: char, chars: &mut Chars<'_>, out: &mut String) -> Result<std::fmt::Result, String> {
    if chars.next_if(|(_, c)| *c == '{').is_none() {
        return Err(format!("`\\{c}` is not followed by a name in braces"));
    }
    let name: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
    Ok(write!(out, "\\{c}{{{name}}}"))
}

fn hex(chars: &mut Chars<'_>, digits: usize) -> Result<u32, String> {
    let text: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
    if text.len() != digits {
        return Err(format!("{digits} hexadecimal digits expected, got {text:?}"));
    }
    u32::from_str_radix(&text, 16).map_err(|_| format!("{text:?} is not hexadecimal"))
}

// After `\u`: four digits, a surrogate pair of them, or any number in braces.
fn code_point(chars: &mut Chars<'_>) -> Result<u32, String> {
    let code = if chars.next_if(|(_, c)| *c == '{').is_some() {
        let text: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
        u32::from_str_radix(&text, 16).map_err(|_| format!("{text:?} is not hexadecimal"))?
    } else {
        hex(chars, 4)?
    };
    if !(0xD800..0xDC00).contains(&code) {
        return char::from_u32(code).map(u32::from).ok_or(format!("{code:#x} is no character"));
    }
    let is_pair =
        chars.next().is_some_and(|(_, c)| c == '\\') && chars.next().is_some_and(|(_, c)| c == 'u');
    let low = if is_pair { hex(chars, 4)? } else { 0 };
    if !(0xDC00..0xE000).contains(&low) {
        return Err(format!("{code:#x} is half a character"));
    }
    Ok(0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00))
}

// After `[`.
fn class(chars: &mut Chars<'_>, out: &mut String) -> Result<(), String> {
    let negated = chars.next_if(|(_, c)| *c == '^').is_some();
    if chars.next_if(|(_, c)| *c == ']').is_some() {
        // `[^]` is any character and `[]` none.
        out.push_str(if negated { r"[\u{0}-\u{10FFFF}]" } else { r"[^\u{0}-\u{10FFFF}]" });
        return Ok(());
    }
    out.push_str(if negated { "[^" } else { "[" });
    while let Some((_, c)) = chars.next() {
        match c {
            ']' => {
                out.push(']');
                return Ok(());
            }
            '\\' => escape(chars, out, true)?,
            // A range, unless it is the first or the last, or stands beside a set.
            '-' => {
                let last = chars.peek().is_none_or(|(_, next)| *next == ']');
                let beside_set = starts_set(chars) || ends_with_set(out);
                let first = out.ends_with('[') || out.ends_with("[^");
                out.push_str(if last || first || beside_set { "\\-" } else { "-" });
            }
            _ => push_char(c, out),
        }
    }
    Err("a character class is not closed".to_owned())
}

fn starts_set(chars: &Chars<'_>) -> bool {
    let mut ahead = chars.clone();
    ahead.next().is_some_and(|(_, c)| c == '\\')
        && ahead.next().is_some_and(|(_, c)| "dDwWsSpP".contains(c))
}

fn ends_with_set(out: &str) -> bool {
    out.ends_with(']') || out.ends_with("0-9") || out.ends_with("A-Za-z_") || out.ends_with(SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        is_match(&translate(pattern).unwrap(), text).unwrap()
    }

    #[test]
    fn means_what_ecma_means() {
        assert!(matches("^.$", "a") && !matches("^.$", "\r") && !matches("^.$", "\u{2028}"));
        assert!(matches(r"^\s$", "\u{FEFF}") && !matches(r"^\s$", "\u{85}"));
        assert!(matches(r"^\d$", "5") && !matches(r"^\d$", "\u{0665}"));
        assert!(matches(r"^[[a]$", "[") && matches(r"^[a&&b]$", "&"));
        assert!(matches(r"^[\w.-]+$", "a.b-c_9") && !matches(r"^[\w.-]+$", "a b"));
        assert!(matches(r"^[\w-.]+$", "a-.") && matches(r"^[+--]$", ","));
        assert!(matches(r"^[^]$", "\n") && !matches("[]", "a"));
        assert!(matches(r"^\/a\-b\_$", "/a-b_") && matches(r"^{a}$", "{a}"));
        assert!(matches(r"^a{2,3}$", "aaa") && !matches(r"^a{2,3}$", "a"));
        assert!(matches(r"^\u{1F600}$", "😀") && matches(r"^\uD83D\uDE00$", "😀"));
        assert!(matches(r"^[\x41-\x43]\cJ$", "B\n") && matches("a|b", "xbx"));
        assert!(matches("^(?<year>[0-9]+)(?:x)$", "12x") && matches("^#&~$", "#&~"));
    }

    #[test]
    fn leading_look_ahead_is_another_pattern() {
        let parts = split_look_ahead(r"^(?=.*[A-Z)])(?=.*\d).{8,}$");
        assert_eq!(parts, [r"^(?:.*[A-Z)])", r"^(?:.*\d)", "^.{8,}$"]);
        assert_eq!(split_look_ahead("^a|b$"), ["^a|b$"]);
        assert_eq!(split_look_ahead("^(?=a)b|c$"), ["^(?=a)b|c$"]);
        assert_eq!(split_look_ahead("a(?=b)"), ["a(?=b)"]);
    }

    #[test]
    fn refuses_what_is_not_regular() {
        for pattern in
            [r"(?=a)b", r"a(?!b)", r"(?<=a)b", r"(a)\1", r"\bword\b", "(?i)a", "[a", "a\\"]
        {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn complements_finite_sets() {
        let words = ["", "ab", "abc", "b", "é", "a\"\n"];
        let pattern = complement(&words);
        for text in ["a", "abcd", "ba", "c", "éa", "a\"", "ac", "\n", "x", "a\"\nb"] {
            assert!(matches(&pattern, text), "{text:?} in {pattern}");
        }
        for text in words {
            assert!(!matches(&pattern, text), "{text:?} in {pattern}");
        }
        assert!(matches(&complement(&[]), "") && matches(&complement(&["a"]), ""));
    }
}

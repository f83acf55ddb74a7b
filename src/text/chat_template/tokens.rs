//! The tokens within a tag of a template, as far as respelling needs them.

/// The kind of a token in a template's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Whitespace.
    Space,
    /// An identifier or keyword.
    Name,
    /// A number.
    Number,
    /// A string literal with its quotes.
    Text,
    /// An opening bracket.
    Open,
    /// A closing bracket.
    Close,
    /// An operator, or anything else.
    Operator,
}

/// A token and how it is spelled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

/// The tokens up to the closing delimiter of the tag, and the text from it on.
pub(super) fn tokenize<'a>(mut rest: &'a str, close: &str) -> (Vec<Token<'a>>, &'a str) {
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
    rest.starts_with(close)
        || rest.strip_prefix(['-', '+']).is_some_and(|rest| rest.starts_with(close))
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

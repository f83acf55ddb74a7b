//! The values of `format`, as patterns.
//!
//! A pattern may be narrower than the format (a model that follows it writes valid values), never
//! wider.

/// What a value of `format` asks of a string.
pub(super) enum Format {
    /// The string matches this pattern, in the syntax of JSON Schema.
    Pattern(&'static str),
    /// Says how the value is meant, not how it is spelled.
    Annotation,
}

const DATE: &str = concat!(
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    // 29 February: years that 4 divides but not 100, and those that 400 divides.
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)",
);
// No leap seconds: whether one is valid depends on the date and the zone.
const TIME: &str = concat!(
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?",
    "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
);
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const LABEL: &str = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const ATOM: &str = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]";
const PATH_CHAR: &str = "(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})";

/// Looks `name` up; `None` for a format that isn't known or is no regular language.
pub(super) fn lookup(name: &str) -> Option<Format> {
    use std::sync::LazyLock;
    static TABLE: LazyLock<Vec<(&str, String)>> = LazyLock::new(table);
    // Widths of numbers that are written as strings, and hints for an editor or a form.
    const ANNOTATIONS: [&str; 19] = [
        "password",
        "binary",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float",
        "double",
        "path",
        "file-path",
        "directory-path",
        "color",
        "textarea",
        "html",
        "markdown",
    ];
    if ANNOTATIONS.contains(&name) {
        return Some(Format::Annotation);
    }
    let found = TABLE.iter().find(|(known, _)| *known == name);
    found.map(|(_, pattern)| Format::Pattern(pattern.as_str()))
}

/// The range of the integer format `name`, where both ends are exact in a double.
pub(super) fn integer_range(name: &str) -> Option<(i64, i64)> {
    Some(match name {
        "int8" => (i64::from(i8::MIN), i64::from(i8::MAX)),
        "int16" => (i64::from(i16::MIN), i64::from(i16::MAX)),
        "int32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        "uint8" => (0, i64::from(u8::MAX)),
        "uint16" => (0, i64::from(u16::MAX)),
        "uint32" => (0, i64::from(u32::MAX)),
        _ => return None,
    })
}

fn table() -> Vec<(&'static str, String)> {
    let hostname = format!("{LABEL}(?:\\.{LABEL}){{0,2}}");
    let ipv4 = format!("{OCTET}(?:\\.{OCTET}){{3}}");
    let ipv6 = ipv6();
    let path = format!("(?:/{PATH_CHAR}*)*");
    let authority = format!(
        "(?:(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:]|%[0-9a-fA-F]{{2}})*@)?\
         (?:\\[{ipv6}\\]|(?:[a-zA-Z0-9\\-._~!$&'()*+,;=]|%[0-9a-fA-F]{{2}})*)(?::[0-9]{{1,5}})?"
    );
    let query = format!("(?:\\?(?:{PATH_CHAR}|[/?])*)?");
    let fragment = format!("(?:#(?:{PATH_CHAR}|[/?])*)?");
    let hier_part = format!("(?://{authority}{path}|/(?:{PATH_CHAR}+{path})?|{PATH_CHAR}+{path})");
    let uri = format!("[a-zA-Z][a-zA-Z0-9+\\-.]*:{hier_part}{query}{fragment}");
    // Without a scheme the first segment has no colon.
    let no_colon = "(?:[a-zA-Z0-9\\-._~!$&'()*+,;=@]|%[0-9a-fA-F]{2})";
    let relative = format!("(?://{authority}{path}|/(?:{PATH_CHAR}+{path})?|{no_colon}+{path}|)");
    let reference = format!("(?:{uri}|{relative}{query}{fragment})");
    let duration_time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
    let duration_date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
    let pointer = "(?:/(?:[^/~]|~[01])*)*";
    let whole = |pattern: &str| format!("^(?:{pattern})$");
    vec![
        ("date", whole(DATE)),
        ("time", whole(TIME)),
        ("date-time", whole(&format!("{DATE}[tT]{TIME}"))),
        (
            "duration",
            whole(&format!("P(?:{duration_date}(?:{duration_time})?|{duration_time}|[0-9]+W)")),
        ),
        ("email", whole(&format!("{ATOM}{{1,20}}(?:\\.{ATOM}{{1,20}}){{0,2}}@{hostname}"))),
        ("hostname", whole(&hostname)),
        ("ipv4", whole(&ipv4)),
        ("ipv6", whole(&ipv6)),
        ("uuid", whole("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")),
        ("uri", whole(&uri)),
        ("uri-reference", whole(&reference)),
        // ASCII ones are among them.
        ("iri", whole(&uri)),
        ("iri-reference", whole(&reference)),
        ("url", whole(&uri)),
        ("json-pointer", whole(pointer)),
        ("relative-json-pointer", whole(&format!("(?:0|[1-9][0-9]*)(?:#|{pointer})"))),
        ("byte", whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")),
    ]
}

// Eight groups, or fewer with one `::` in their midst.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let mut forms = vec![format!("(?:{group}:){{7}}{group}")];
    for before in 0..=7_usize {
        let after = 7 - before;
        let head = if before == 0 { ":".to_owned() } else { format!("(?:{group}:){{{before}}}") };
        let tail = match after {
            0 => String::new(),
            // At least one group is left out.
            _ => format!("(?:{group}(?::{group}){{0,{}}})?", after - 1),
        };
        forms.push(format!("{head}:{tail}"));
    }
    format!("(?:{})", forms.join("|"))
}

#[cfg(test)]
mod tests {
    use super::super::pattern;
    use super::*;

    fn is_valid(format: &str, text: &str) -> bool {
        let Some(Format::Pattern(found)) = lookup(format) else { panic!("{format}") };
        pattern::is_match(&pattern::translate(found).unwrap(), text).unwrap()
    }

    #[test]
    fn february_has_29_days_in_leap_years_only() {
        for date in ["2024-02-29", "2000-02-29", "1996-02-29", "0400-02-29", "2023-02-28"] {
            assert!(is_valid("date", date), "{date}");
        }
        for date in ["2023-02-29", "1900-02-29", "2100-02-29", "2024-02-30", "2024-04-31", "24-1-1"]
        {
            assert!(!is_valid("date", date), "{date}");
        }
    }

    #[test]
    fn knows_addresses() {
        for text in [
            "::",
            "::1",
            "1::",
            "fe80::1:2",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
        ] {
            assert!(is_valid("ipv6", text), "{text}");
            assert!(text.parse::<std::net::Ipv6Addr>().is_ok(), "{text}");
        }
        for text in [":", ":::", "1:2:3:4:5:6:7:8::", "12345::", "1:2", "::1::"] {
            assert!(!is_valid("ipv6", text), "{text}");
        }
        assert!(is_valid("email", "a.b+c@example.org") && !is_valid("email", "a@b@c"));
        assert!(is_valid("uri", "https://example.org/a?b#c") && !is_valid("uri", "a b"));
        assert!(is_valid("uri-reference", "../a") && is_valid("uri-reference", ""));
        assert!(is_valid("duration", "P1Y2M3DT4H5M6S") && !is_valid("duration", "P"));
    }
}

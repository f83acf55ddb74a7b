//! `strftime_now`: the time of the render in the format of C's `strftime`.

use std::fmt::Write as _;

use chrono::NaiveDateTime;

/// Formats `now`. What the format language does not know is printed as it stands.
pub(super) fn strftime(now: NaiveDateTime, format: &str) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let directive = &rest[at..at + directive_length(&rest[at..])];
        let before = out.len();
        if write!(out, "{}", now.format(directive)).is_err() {
            out.truncate(before);
            out.push_str(directive);
        }
        rest = &rest[at + directive.len()..];
    }
    out.push_str(rest);
    out
}

/// The length of `%`, its flags, and the letter.
fn directive_length(text: &str) -> usize {
    let flags = text[1..].chars().take_while(|c| matches!(c, '-' | '_' | '0')).count();
    let letter = text[1 + flags..].chars().next().map_or(0, char::len_utf8);
    1 + flags + letter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates_and_keeps_what_it_does_not_know() {
        let now =
            chrono::NaiveDate::from_ymd_opt(2026, 1, 5).unwrap().and_hms_opt(2, 3, 4).unwrap();
        assert_eq!(strftime(now, "%d %b %Y, %-d %B %A %j"), "05 Jan 2026, 5 January Monday 005");
        assert_eq!(strftime(now, "%H:%M:%S %I%p %y"), "02:03:04 02AM 26");
        assert_eq!(strftime(now, "100%"), "100%");
        assert_eq!(strftime(now, "%Q %é %%"), "%Q %é %");
    }
}

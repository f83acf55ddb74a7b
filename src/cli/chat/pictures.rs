//! Pictures that a message names by their paths, as people drop them on a terminal.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Endings of pictures' names, and their media types.
const KINDS: [(&str, &str); 5] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("webp", "image/webp"),
    ("gif", "image/gif"),
];

/// A picture for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// Where it was.
    pub(super) path: PathBuf,
    /// A data URL.
    pub(super) url: String,
}

/// The message without the paths of pictures that there are, and these pictures. A path begins with `/`, `./`,
/// `../` or `~/`, and may stand in quotes or have `\` before its spaces.
///
/// # Errors
/// A picture can't be read.
pub(super) fn taken_out(message: &str) -> anyhow::Result<(String, Vec<Picture>)> {
    let (mut text, mut pictures) = (String::new(), Vec::new());
    let mut rest = message;
    while !rest.is_empty() {
        let (word, length) = word(rest);
        match word.as_deref().and_then(picture_path) {
            Some((path, kind)) => {
                let bytes = std::fs::read(&path);
                let bytes = bytes.with_context(|| format!("can't read {}", path.display()))?;
                let url = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
                pictures.push(Picture { path, url });
            }
            None => text.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    let text = if pictures.is_empty() { text } else { text.trim().to_owned() };
    Ok((text, pictures))
}

/// What stands at the beginning of a text: a word as a shell would read it, or white space; and its length.
fn word(text: &str) -> (Option<String>, usize) {
    let spaces = text.len() - text.trim_start().len();
    if spaces > 0 {
        return (None, spaces);
    }
    for quote in ['"', '\''] {
        let inside = text.strip_prefix(quote).and_then(|text| text.split_once(quote));
        if let Some((inside, _)) = inside {
            return (Some(inside.to_owned()), inside.len() + 2);
        }
    }
    let (mut word, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        if escaped || !(c.is_whitespace() || c == '\\') {
            word.push(c);
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else {
            return (Some(word), at);
        }
    }
    (Some(word), text.len())
}

/// The file that a word names, if it is a picture that is there.
fn picture_path(word: &str) -> Option<(PathBuf, &'static str)> {
    let begins = ["/", "./", "../", "~/"].iter().any(|start| word.starts_with(start));
    let ending = Path::new(word).extension()?.to_str()?.to_ascii_lowercase();
    let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == ending)?;
    let path = match word.strip_prefix("~/") {
        Some(below) => PathBuf::from(std::env::var_os("HOME")?).join(below),
        None => PathBuf::from(word),
    };
    (begins && path.is_file()).then_some((path, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_pictures_are_taken_out_however_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.display().to_string()
        };
        let (plain, spaced) = (path("a.png"), path("two words.JPG"));
        let escaped = spaced.replace(' ', "\\ ");
        for (message, text, found) in [
            (format!("what is {plain} ?"), "what is  ?", 1),
            (format!("{escaped} and '{spaced}' and \"{plain}\""), "and  and", 3),
            (plain.clone(), "", 1),
        ] {
            let (rest, pictures) = taken_out(&message).unwrap();
            assert_eq!((rest.as_str(), pictures.len()), (text, found), "{message}");
        }
        let (_, pictures) = taken_out(&plain).unwrap();
        assert_eq!(pictures[0].url, format!("data:image/png;base64,{}", STANDARD.encode("a.png")));
    }

    #[test]
    fn other_words_stay_as_they_are() {
        for message in [
            "no picture",
            "a.png without a folder",
            "/nowhere/a.png",
            "it's \"quoted\"\n and \\ more ",
            "/tmp",
            "./a.txt",
            "don't",
            "",
        ] {
            assert_eq!(taken_out(message).unwrap(), (message.to_owned(), Vec::new()));
        }
    }
}

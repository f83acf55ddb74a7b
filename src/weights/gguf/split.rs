//! Models in several GGUF files: `name-00001-of-00003.gguf` and its likes.

/// Most files of a model, so that a name can't ask for more than a folder holds.
const MAX_PARTS: usize = 10_000;

/// The names of all files of the model that `file` is a part of, in order; `None` if its name is
/// not that of a part.
pub(crate) fn parts(file: &str) -> Option<Vec<String>> {
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(count) || !digits(number) {
        return None;
    }
    let (count, number): (usize, usize) = (count.parse().ok()?, number.parse().ok()?);
    let valid = (1..=count).contains(&number) && count <= MAX_PARTS;
    let name = |part: usize| format!("{prefix}-{part:05}-of-{count:05}.gguf");
    valid.then(|| (1..=count).map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_their_number_and_count() {
        let expected = ["a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf"];
        for part in expected {
            assert_eq!(parts(part).unwrap(), expected);
        }
        for other in [
            "m.gguf",
            "m-1-of-2.gguf",
            "m-00003-of-00002.gguf",
            "m-00000-of-00002.gguf",
            "m-00001-of-99999.gguf",
            "m-00001-of-00002.bin",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}

//! The file of a head that drafts beside the files of its model.

use crate::model_ref::has_gguf_ending;

/// What the names of such files begin with.
const BEGINNING: &str = "mtp-";

/// Whether a file has a head that drafts, by its name.
pub(crate) fn is_head(file: &str) -> bool {
    split(file).1.to_ascii_lowercase().starts_with(BEGINNING) && has_gguf_ending(file)
}

/// Of `files` the one that has the head of `model`: one in the same folder. Among several it is the one
/// whose name has most in common with the model's, and of those the first by name.
pub(crate) fn head_of<'a>(
    model: &str,
    files: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let (folder, model) = split(model);
    let beside = |file: &&str| is_head(file) && split(file).0 == folder;
    let common = |file: &str| {
        let name = split(file).1.bytes().skip(BEGINNING.len());
        name.zip(model.bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    };
    let mut heads: Vec<&str> = files.into_iter().filter(beside).collect();
    heads.sort_unstable_by(|a, b| common(b).cmp(&common(a)).then(a.cmp(b)));
    heads.first().copied()
}

/// The folder of a path with `/`, and the name in it.
fn split(file: &str) -> (&str, &str) {
    file.rsplit_once('/').unwrap_or(("", file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_with_the_nearest_name_is_taken() {
        let files = [
            "Q8_0/mtp-m-Q4_K_M.gguf",
            "mtp-m-Q8_0.gguf",
            "mtp-m-Q4_K_M.gguf",
            "mtp-m-Q4_K_M.txt",
            "m-Q4_K_M.gguf",
            "mtp-n.gguf",
        ];
        let of = |model| head_of(model, files);
        assert_eq!(of("m-Q4_K_M.gguf"), Some("mtp-m-Q4_K_M.gguf"));
        assert_eq!(of("M-q8_0-00001-of-00002.gguf"), Some("mtp-m-Q8_0.gguf"));
        assert_eq!(of("m-BF16.gguf"), Some("mtp-m-Q4_K_M.gguf"));
        assert_eq!(of("Q8_0/m.gguf"), Some("Q8_0/mtp-m-Q4_K_M.gguf"));
        assert_eq!(of("F16/m.gguf"), None);
    }
}

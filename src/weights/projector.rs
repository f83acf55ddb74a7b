//! Which file has the vision tower of a model in GGUF: `mmproj-*.gguf` beside the decoder's.

use std::path::{Path, PathBuf};

use super::model_ref::has_gguf_ending;

/// Where the vision tower of a model in GGUF is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProjectorChoice {
    /// Beside the decoder's file, if there is one that belongs to it.
    #[default]
    Beside,
    /// In this file.
    At(PathBuf),
    /// Nowhere: the model is to read texts alone.
    Absent,
}

/// Kinds of elements in a file's name, best first: what towers are published in.
const KINDS: [&str; 4] = ["f16", "bf16", "f32", "q8_0"];

/// Whether a file's name says that it is a projector.
pub(crate) fn is_projector(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    has_gguf_ending(&name) && name.contains("mmproj")
}

/// The projectors among `files` in the folder of `model`, by what their names have in common with its
/// own, and then by how exact their numbers are.
pub(crate) fn ranked<'a>(files: &'a [String], model: &str) -> Vec<&'a str> {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let beside = |path: &&String| is_projector(path) && folder(path) == folder(model);
    let mut found: Vec<&str> = files.iter().filter(beside).map(String::as_str).collect();
    let model = stem(model);
    found.sort_by_key(|path| {
        let stem = stem(path);
        let alike = stem.bytes().zip(model.bytes()).take_while(|(a, b)| a == b).count();
        let kind = KINDS.iter().position(|kind| ends_with_word(&stem, kind));
        (std::cmp::Reverse(alike), kind.unwrap_or(KINDS.len()), stem)
    });
    found
}

/// A file's name without what all projectors have, in small letters.
fn stem(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let name = name.strip_suffix(".gguf").unwrap_or(&name);
    name.replace("mmproj", "").trim_matches(['-', '_', '.']).to_owned()
}

fn ends_with_word(text: &str, word: &str) -> bool {
    let before = text.strip_suffix(word);
    before.is_some_and(|before| !before.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

/// The projectors beside a file, the best first.
pub(crate) fn beside(model: &Path) -> Vec<PathBuf> {
    let folder = model.parent().unwrap_or(Path::new(""));
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let own = model.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ranked(&names, own).into_iter().map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(files: &[&str], model: &str) -> Vec<String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        ranked(&files, model).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn the_nearest_name_comes_first_and_then_the_better_numbers() {
        let files = ["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "m-Q4_K_M.gguf"];
        let expected = ["mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf"];
        assert_eq!(order(&files, "m-Q4_K_M.gguf"), expected);
        let files = ["mmproj-gemma-3-4b-f16.gguf", "mmproj-qwen2-vl-f16.gguf", "sub/mmproj-q.gguf"];
        let expected = ["mmproj-qwen2-vl-f16.gguf", "mmproj-gemma-3-4b-f16.gguf"];
        assert_eq!(order(&files, "qwen2-vl-2b-q8_0.gguf"), expected);
        assert_eq!(order(&files, "sub/m.gguf"), ["sub/mmproj-q.gguf"]);
    }
}

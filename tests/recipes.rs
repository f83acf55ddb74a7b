//! The recipes in the documentation ("How to add ...") name files and items that exist, and names are
//! those of the glossary.

use std::fs;
use std::path::Path;

use regex::Regex;

use super::layering::{code, is_test, module_of, rust_files};

/// What there is a recipe for.
const TOPICS: [&str; 8] = [
    "an architecture",
    "a sampling parameter",
    "a request field",
    "a form of an operation",
    "a metric",
    "a flag of `sconce serve`",
    "a tool call format",
    "a reasoning format",
];

/// Every recipe: its topic, and its lines.
fn recipes() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    files.sort();
    let mut recipes = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines().take_while(|line| line.starts_with("//!"));
        while let Some(line) = lines.next() {
            let Some(topic) = line.strip_prefix("//! # How to add ") else { continue };
            let steps = lines.by_ref().take_while(|line| !line.starts_with("//! # "));
            let steps: Vec<&str> = steps.map(|line| line.trim_start_matches("//!")).collect();
            recipes.push((topic.to_owned(), steps.join("\n")));
        }
    }
    recipes
}

#[test]
fn every_topic_has_its_recipe() {
    let recipes = recipes();
    for topic in TOPICS {
        assert_eq!(recipes.iter().filter(|(known, _)| known == topic).count(), 1, "{topic}");
    }
}

#[test]
fn recipes_name_files_and_items_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let path = Regex::new(r"^(src|tests|benches)/[\w/.]+$|^README\.md$").unwrap();
    let item = Regex::new(r"^[A-Z]\w+$").unwrap();
    for (topic, steps) in recipes() {
        let words = || quoted.captures_iter(&steps).map(|found| found.get(1).unwrap().as_str());
        let mut texts = String::new();
        // A name in capitals stands for the file that is added.
        let named = words().filter(|word| path.is_match(word) && !word.contains("NAME"));
        for word in named {
            let file = root.join(word);
            assert!(file.exists(), "{topic}: there is no {word}");
            texts.push_str(&fs::read_to_string(file).unwrap_or_default());
        }
        for word in words().filter(|word| item.is_match(word)) {
            assert!(texts.contains(word), "{topic}: {word} is in none of the files it names");
        }
    }
}

/// The rows of the glossary: the word, and names that are not used for it.
fn glossary() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/glossary.rs");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let row = |line: &str| {
        let columns: Vec<&str> = line.trim_end_matches('|').split('|').map(str::trim).collect();
        let not = columns[2].split_whitespace().map(|name| name.trim_matches('`').to_owned());
        (columns[0].to_owned(), not.collect())
    };
    rows.map(row).collect()
}

#[test]
fn the_glossary_is_sorted_and_its_words_are_the_only_ones() {
    let glossary = glossary();
    let words: Vec<String> = glossary.iter().map(|(word, _)| word.to_lowercase()).collect();
    assert!(words.len() >= 40 && words.is_sorted(), "{words:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    for file in files.into_iter().filter(|file| !is_test(&module_of(file, &root))) {
        let text = code(&fs::read_to_string(&file).unwrap());
        let names = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let names: Vec<String> = names.map(str::to_lowercase).collect();
        for (word, not) in &glossary {
            let found = names.iter().find(|name| not.contains(name));
            assert!(found.is_none(), "{}: {found:?} for {word}", file.display());
        }
    }
}

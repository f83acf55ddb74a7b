//! The floors: reads every `use crate::` and `crate::` path of the library and fails on an edge
//! that is not in the table. A new edge is a change to this table, seen in review.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import; a path below a room stands for that part only.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("allocator", &[]),
    ("candle_threads", &[]),
    ("cli", &["*"]),
    // What a configuration means is what a GGUF file of it must say.
    ("app::convert", &["models", "layers", "text", "weights", "config"]),
    (
        "app",
        &[
            "http",
            "engine",
            "runner::ranks",
            "text",
            "weights",
            "pictures",
            "sounds",
            "metrics",
            "config",
            "demo",
            "speech",
            "store",
        ],
    ),
    // What answers is in other processes; here are their lives, and the way to them.
    ("fleet", &["http", "weights", "engine::memory", "config"]),
    (
        "http",
        &[
            "engine",
            "text",
            "sampling::params",
            "sampling::logprobs",
            "sampling::reasoning",
            "scheduler::stop",
            "structured",
            "pictures",
            "sounds",
            "speech",
            "metrics",
            "config",
            "store",
            "telemetry",
            // Served at /docs.
            "guide",
        ],
    ),
    ("engine::startup", &["models", "weights", "kernels", "layers::group", "blocks"]),
    // `pooling` is arithmetic on plain numbers, as `sampling` is on logits: the engine makes an
    // embedding of hidden states as it makes a token of logits.
    (
        "engine",
        &[
            "runner",
            "scheduler",
            "sampling",
            "speculation",
            "pooling",
            "pictures",
            "sounds",
            "kv_cache",
            "kv_disk",
            "kv_events",
            "config",
            "metrics",
        ],
    ),
    (
        "runner",
        &["models", "layers::forward", "layers::group", "scheduler::output", "pictures", "sounds"],
    ),
    ("scheduler", &["kv_cache"]),
    ("sampling", &["kernels", "structured"]),
    // A tower looks at the pixels of a picture, an encoder at the features of a sound.
    ("models", &["layers", "weights", "kernels", "pictures", "sounds"]),
    ("layers", &["weights", "kernels"]),
    ("weights", &[]),
    ("kernels", &[]),
    ("blocks", &[]),
    ("kv_cache", &[]),
    ("kv_disk", &["kv_cache", "metrics"]),
    ("kv_events", &["kv_cache", "config", "metrics"]),
    ("store", &[]),
    ("text", &[]),
    ("structured", &[]),
    ("pooling", &["config"]),
    ("speculation", &[]),
    // A model of its own beside the engine, which it doesn't know.
    ("speech", &["text", "weights", "config", "metrics"]),
    ("pictures", &[]),
    // Files are decoded and heard as those to transcribe are.
    ("sounds", &["speech::audio", "speech::features"]),
    ("config", &[]),
    ("metrics", &[]),
    ("telemetry", &[]),
    ("demo", &[]),
    // Words alone.
    ("glossary", &[]),
    ("guide", &[]),
];

/// The floors inside of rooms that have any: what each part may import of its own room. A part that
/// is not named here is on top of all others.
const INSIDE: &[(&str, &[&str])] = &[
    ("http::error", &[]),
    ("http::wire", &["error"]),
    ("http::state", &["wire", "error"]),
    ("http::request", &["state", "wire", "error"]),
    ("http::answer", &["request", "state", "wire", "error"]),
    ("http::generate", &["answer", "request", "state", "wire", "error"]),
    ("http::anthropic", &["generate", "answer", "request", "state", "wire", "error"]),
    ("http::openai", &["generate", "answer", "request", "state", "wire", "error"]),
    // Ollama's tools and logprobs are those of chat completions.
    ("http::ollama", &["openai", "generate", "answer", "request", "state", "wire", "error"]),
    // An input is what an embedding's is, and bodies of one path have two shapes.
    ("http::tei", &["openai", "generate", "answer", "request", "state", "wire", "error"]),
    ("http::cohere", &["openai", "generate", "answer", "request", "state", "wire", "error"]),
    (
        "http::ranking",
        &["tei", "openai", "generate", "answer", "request", "state", "wire", "error"],
    ),
    // A conversation to tokenize is one of a chat completion.
    ("http::page", &[]),
    ("http::ops", &["ranking", "openai", "page", "generate", "request", "state", "wire", "error"]),
    ("http::middleware", &["page", "request", "state", "error"]),
    ("http::worker", &["anthropic", "openai", "request", "state", "wire", "error"]),
    ("http::ledger", &["state"]),
    ("http::openapi", &["anthropic", "ollama", "tei", "state", "wire", "error"]),
    ("models::error", &[]),
    ("models::top", &[]),
    ("models::classifier", &["top"]),
    ("models::adapter", &[]),
    ("models::causal_lm", &["adapter"]),
    ("models::config", &["error"]),
    ("models::decoder", &["adapter", "causal_lm", "error"]),
    ("models::encoder", &["adapter", "classifier", "config", "error", "top"]),
    ("models::common", &["classifier", "config", "decoder", "error", "top"]),
    ("models::architectures", &["classifier", "common", "config", "decoder", "error", "top"]),
    ("models::vision", &["error"]),
    // What stands behind the layers is what stands behind those of a tower.
    ("models::audio", &["error", "vision"]),
    ("kernels::cpu", &[]),
    ("kernels::backend", &["cpu"]),
    ("kernels::cuda", &["backend"]),
    ("kernels::pool", &[]),
    ("kernels::packed", &["backend", "cpu", "cuda", "fresh", "huge_pages", "pool"]),
    ("kernels::cache", &["backend", "cpu", "huge_pages", "storage"]),
];

/// Rooms that are packages of their own: `crate` there is the room.
const PACKAGES: [&str; 5] = ["blocks", "kernels", "structured", "text", "weights"];

/// Crates that a room must never know.
const FOREIGN: &[(&str, &[&str])] = &[
    ("scheduler", &["candle_core", "tokio", "serde_json", "axum", "std::time"]),
    ("kv_cache", &["candle_core", "tokio", "serde_json", "axum", "std::time"]),
    ("kv_disk", &["candle_core", "tokio", "axum"]),
    ("kv_events", &["candle_core", "axum", "serde_json"]),
    ("speculation", &["candle_core", "tokio", "serde_json", "axum"]),
    ("engine", &["serde_json", "axum", "tokenizers"]),
    ("http", &["candle_core"]),
    ("pooling", &["candle_core", "tokio", "serde_json", "axum"]),
    ("store", &["candle_core", "axum", "serde_json"]),
    ("pictures", &["candle_core", "tokio", "axum"]),
    ("speech", &["axum"]),
    ("text", &["axum", "candle_core", "tokio"]),
    ("structured", &["axum", "candle_core", "tokio"]),
    ("models", &["tokio", "axum"]),
    ("layers", &["tokio", "axum", "serde_json"]),
    ("kernels", &["tokio", "axum", "serde_json"]),
];

/// Rooms that may contain `unsafe`.
const UNSAFE: &[&str] = &["allocator", "candle_threads", "kernels", "weights"];

/// Whether a module holds tests alone.
pub(crate) fn is_test(module: &str) -> bool {
    module.split("::").any(|part| part == "tests")
}

pub(crate) fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `src/kv_cache/mod.rs` -> `kv_cache`, `src/engine/core.rs` -> `engine::core`.
pub(crate) fn module_of(file: &Path, root: &Path) -> String {
    let parts: Vec<_> = file
        .strip_prefix(root)
        .unwrap()
        .with_extension("")
        .iter()
        .collect::<PathBuf>()
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    parts.into_iter().filter(|part| part != "mod").collect::<Vec<_>>().join("::")
}

/// All `crate::…` paths of a file, `{…}` groups expanded one level.
fn crate_paths(text: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        if rest[end..].starts_with('{') {
            let group = &rest[end + 1..rest.find('}').unwrap()];
            for item in group.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                let item = item.split([' ', '{']).next().unwrap();
                paths.insert(
                    [path, item]
                        .iter()
                        .filter(|p| !p.is_empty())
                        .copied()
                        .collect::<Vec<_>>()
                        .join("::"),
                );
            }
        } else {
            paths.insert(path.to_owned());
        }
    }
    paths
}

fn is_below(path: &str, room: &str) -> bool {
    path == room || path.strip_prefix(room).is_some_and(|rest| rest.starts_with("::"))
}

fn without_comments(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// A file's text without its comments and its unit tests, which may use what the file may not.
pub(crate) fn code(text: &str) -> String {
    let text = without_comments(text);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The text with the paths of a package as those of a room.
pub(crate) fn in_the_house(module: &str, text: String) -> String {
    match PACKAGES.iter().find(|room| is_below(module, room)) {
        Some(room) => text.replace("crate::", &format!("crate::{room}::")),
        None => text,
    }
}

/// Modules and their text, without tests, which may use what the code may not.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    files.sort();
    assert!(files.len() > 20, "the sources are where this test looks");
    files
        .into_iter()
        .map(|file| {
            let text = code(&fs::read_to_string(&file).unwrap());
            let module = module_of(&file, &root);
            (module.clone(), in_the_house(&module, text))
        })
        .filter(|(module, _)| !is_test(module))
        .collect()
}

#[test]
fn data_falls_downward() {
    let mut faults = Vec::new();
    for (module, text) in sources() {
        let room = module.split("::").next().unwrap();
        if ["lib", "main"].contains(&room) {
            continue;
        }
        let allowed: Vec<&str> = MAY_IMPORT
            .iter()
            .filter(|(who, _)| is_below(&module, who))
            .flat_map(|(_, may)| may.iter().copied())
            .collect();
        let known = MAY_IMPORT.iter().any(|(who, _)| *who == room);
        if !known {
            faults.push(format!("{module}: the room `{room}` is not in the table"));
        }
        for path in crate_paths(&text) {
            let own = is_below(&path, room);
            if !own && !allowed.iter().any(|may| *may == "*" || is_below(&path, may)) {
                faults.push(format!("{module} imports crate::{path}"));
            }
        }
    }
    assert!(faults.is_empty(), "edges that are not in the table:\n{}", faults.join("\n"));
}

#[test]
fn data_falls_downward_inside_of_rooms() {
    let mut faults = Vec::new();
    for (module, text) in sources() {
        let Some((part, may)) = INSIDE.iter().find(|(part, _)| is_below(&module, part)) else {
            continue;
        };
        let room = part.split("::").next().unwrap();
        for path in crate_paths(&text) {
            let Some(inner) = path.strip_prefix(room).and_then(|rest| rest.strip_prefix("::"))
            else {
                continue;
            };
            if !is_below(&path, part) && !may.iter().any(|allowed| is_below(inner, allowed)) {
                faults.push(format!("{module} imports crate::{path}"));
            }
        }
    }
    assert!(faults.is_empty(), "edges that are not in the table:\n{}", faults.join("\n"));
}

#[test]
fn rooms_do_not_know_foreign_floors() {
    let mut faults = Vec::new();
    for (module, text) in sources() {
        for (room, foreign) in FOREIGN.iter().filter(|(room, _)| is_below(&module, room)) {
            for name in foreign.iter().filter(|name| text.contains(&format!("{name}::"))) {
                faults.push(format!("{module} ({room}) uses {name}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn device_features_and_unsafe_stay_in_their_rooms() {
    let mut faults = Vec::new();
    for (module, text) in sources() {
        let room = module.split("::").next().unwrap();
        let words = |word: &str| {
            text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
        };
        if words("unsafe") && !UNSAFE.contains(&room) {
            faults.push(format!("{module} contains unsafe code"));
        }
        if words("target_arch") && room != "kernels" {
            faults.push(format!("{module} asks for the target architecture"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_and_their_heads_stay_readable() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let mut faults = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        if !text.starts_with("//!") {
            faults.push(format!("{name} does not say what it is for"));
        }
        if text.lines().count() > 600 {
            faults.push(format!("{name} has {} lines", text.lines().count()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

//! No circles: reads what every file of the library imports, follows re-exports to where a name is
//! made, and fails where files import each other, directly or around a corner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use regex::Regex;

use super::layering::{code, in_the_house, is_test, module_of, rust_files};

/// Module path to source.
type Files = BTreeMap<String, String>;
/// From a file to the files it imports, with the names.
type Edges = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// All files but tests and roots, without their comments and their unit tests.
fn sources() -> Files {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let read = |file: &std::path::PathBuf| {
        let text = code(&fs::read_to_string(file).unwrap());
        let module = module_of(file, &root);
        (module.clone(), in_the_house(&module, text))
    };
    let all = files.iter().map(read);
    all.filter(|(module, _)| !is_test(module) && !module.is_empty() && module != "main").collect()
}

/// `a::{b, c::{d, self}}` to `a::b`, `a::c::d`, `a::c::self`.
fn expand(tree: &str, prefix: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        if !path.is_empty() {
            paths.push(format!("{prefix}{path}"));
        }
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                expand(&rest[begin..at], &prefix, paths);
                return;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&rest[begin..at], &prefix, paths);
                begin = at + 1;
            }
            _ => {}
        }
    }
}

struct Reader {
    uses: Regex,
    exports: Regex,
    paths: Regex,
}

impl Reader {
    fn new() -> Self {
        Self {
            uses: Regex::new(r"\buse\s+([^;]+);").unwrap(),
            exports: Regex::new(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);").unwrap(),
            paths: Regex::new(r"\b[a-z_]\w*(?:::\w+)+").unwrap(),
        }
    }

    fn all(pattern: &Regex, text: &str) -> Vec<String> {
        let mut paths = Vec::new();
        for found in pattern.captures_iter(text) {
            expand(&found[1], "", &mut paths);
        }
        paths
    }

    /// Every path in a file, in `use` or in code.
    fn paths(&self, text: &str) -> Vec<String> {
        let mut paths = Self::all(&self.uses, text);
        let code = self.uses.replace_all(text, "");
        paths.extend(self.paths.find_iter(&code).map(|found| found.as_str().to_owned()));
        paths
    }
}

/// A path as `module` writes it: the file where it leads, and the name in there.
fn resolve(path: &str, module: &str, files: &Files) -> Option<(String, String)> {
    let own: Vec<&str> = module.split("::").collect();
    let parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let supers = parts.iter().take_while(|part| **part == "super").count();
    let full: Vec<&str> = match parts[0] {
        "crate" => parts[1..].to_vec(),
        "super" if supers <= own.len() => [&own[..own.len() - supers], &parts[supers..]].concat(),
        "self" => [&own[..], &parts[1..]].concat(),
        _ => [&own[..], &parts[..]].concat(),
    };
    let length =
        (1..=full.len()).rev().find(|length| files.contains_key(&full[..*length].join("::")))?;
    let target = full[..length].join("::");
    let relative = !["crate", "super", "self"].contains(&parts[0]);
    if relative && target == module {
        // A path of another crate, or of a type in the file.
        return None;
    }
    let name = full.get(length).copied().unwrap_or("self");
    Some((target, name.to_owned()))
}

fn edges(files: &Files) -> Edges {
    let reader = Reader::new();
    let mut exported: BTreeMap<(String, String), String> = BTreeMap::new();
    for (module, text) in files {
        for path in Reader::all(&reader.exports, text) {
            let name = path.rsplit("::").next().unwrap_or_default().to_owned();
            if let Some((target, _)) = resolve(&path, module, files) {
                exported.insert((module.clone(), name), target);
            }
        }
    }
    let mut edges = Edges::new();
    for (module, text) in files {
        let to = edges.entry(module.clone()).or_default();
        for path in reader.paths(text) {
            let Some((mut target, name)) = resolve(&path, module, files) else { continue };
            for _ in 0..4 {
                let Some(next) = exported.get(&(target.clone(), name.clone())) else { break };
                target.clone_from(next);
            }
            if target != *module {
                to.entry(target).or_default().insert(name);
            }
        }
    }
    edges
}

fn reachable<'a>(from: &'a str, edges: &'a Edges) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for next in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    seen
}

/// The circles among files, each as the lines that tell what ties it.
fn circles(edges: &Edges) -> Vec<String> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (module.as_str(), reachable(module, edges))).collect();
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (from, targets) in edges {
        for (to, names) in targets {
            let comes_back =
                reach.get(to.as_str()).is_some_and(|seen| seen.contains(from.as_str()));
            if comes_back {
                let members = reach[from.as_str()].iter();
                let mut members = members.filter(|one| reach[**one].contains(from.as_str()));
                let first = members.next().copied().unwrap_or(from);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let line = found.entry(first).or_default();
                writeln!(line, "  {from} -> {to}: {}", names.join(", ")).unwrap();
            }
        }
    }
    found.into_values().collect()
}

/// Circles that may stay, by a file in them, each with its reason.
const MAY_STAY: &[(&str, &str)] = &[];

#[test]
fn no_files_import_each_other() {
    let files = sources();
    assert!(files.len() > 300, "the sources are where this test looks");
    let circles = circles(&edges(&files));
    let may_stay = |circle: &String| MAY_STAY.iter().any(|(file, _)| circle.contains(file));
    let found: Vec<String> = circles.into_iter().filter(|circle| !may_stay(circle)).collect();
    assert!(found.is_empty(), "{} circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_circle_is_found_around_a_corner_and_through_a_re_export() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = Files::from([
        file("a", "pub use b::Name; mod b; mod c; mod d;"),
        file("a::b", "use super::c::{self, Other}; pub struct Name;"),
        file("a::c", "fn f() { super::d::g() }"),
        file("a::d", "use crate::a::Name;"),
        file("e", "use crate::a::Name;"),
    ]);
    let circles = circles(&edges(&files));
    assert_eq!(circles.len(), 1, "{circles:?}");
    assert_eq!(circles[0].lines().count(), 3, "{circles:?}");
}

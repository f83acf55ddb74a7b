//! The guide for who runs the server or calls it, in Markdown: a part of this documentation, and served at `/docs`.
//! Pages refer to each other by their files, as in `[Models][models.md]`; `links.txt` says what that is here.
//!
#![doc = include_str!("links.txt")]
#![doc = include_str!("index.md")]

/// The first page, which lists the others.
pub const INDEX: &str = include_str!("index.md");

/// Modules that have pages as their documentation, and [`PAGES`].
macro_rules! pages {
    ($($name:ident)*) => {
        $(
            #[doc = include_str!("links.txt")]
            #[doc = include_str!(concat!(stringify!($name), ".md"))]
            pub mod $name {}
        )*

        /// All other pages: their names and texts.
        pub const PAGES: &[(&str, &str)] =
            &[$((stringify!($name), include_str!(concat!(stringify!($name), ".md")))),*];
    };
}

pages! {
    adding_a_model api arm browser caches changes coding_agents commands development docker drafts
    embeddings flags gpus haproxy kubernetes langchain lora measuring metrics models open_webui
    operating pictures replicas security several_models speech store
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use regex::Regex;

    use super::*;

    /// Names of the files of the folder that end so.
    fn files(ending: &str) -> BTreeSet<String> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/guide");
        let names = std::fs::read_dir(folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).collect()
    }

    fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        std::iter::once(("index", INDEX)).chain(PAGES.iter().copied())
    }

    #[test]
    fn every_file_is_a_page_and_has_its_link() {
        let pages: BTreeSet<String> = all().map(|(name, _)| format!("{name}.md")).collect();
        assert_eq!(files(".md"), pages);
        let link = |(name, _): (&str, &str)| match name {
            "index" => "[index.md]: crate::guide".to_owned(),
            name => format!("[{name}.md]: crate::guide::{name}"),
        };
        let links: BTreeSet<String> = all().map(link).collect();
        let there = include_str!("links.txt").lines().filter(|line| !line.is_empty());
        assert_eq!(there.map(str::to_owned).collect::<BTreeSet<_>>(), links);
    }

    #[test]
    fn pages_refer_to_pages_and_define_what_they_refer_to() {
        let reference = Regex::new(r"\]\[([\w.]+)\]").unwrap();
        let definition = Regex::new(r"(?m)^\[([\w.]+)\]: ([\w.]+)$").unwrap();
        for (name, text) in all() {
            let found = reference.captures_iter(text);
            let referred: BTreeSet<&str> =
                found.map(|found| found.get(1).unwrap().as_str()).collect();
            let found = definition.captures_iter(text);
            let defined: BTreeSet<&str> = found
                .map(|found| {
                    let (name, file) =
                        (found.get(1).unwrap().as_str(), found.get(2).unwrap().as_str());
                    assert_eq!(name, file);
                    name
                })
                .collect();
            assert_eq!(referred, defined, "{name}.md");
            let known = |file: &&str| all().any(|(name, _)| **file == format!("{name}.md"));
            assert!(referred.iter().all(known), "{name}.md: {referred:?}");
            // What stands elsewhere is on another page, in the crate's documentation too.
            assert!(!text.contains("](#") && !text.contains(".md)"), "{name}.md");
        }
        let listed = |name: &str| INDEX.contains(&format!("][{name}.md]"));
        let missing: Vec<&str> =
            PAGES.iter().map(|(name, _)| *name).filter(|name| !listed(name)).collect();
        assert!(missing.is_empty(), "the index lists no {missing:?}");
    }

    #[test]
    fn pages_begin_with_a_title_and_say_what_their_code_is() {
        for (name, text) in all() {
            assert!(text.starts_with("# "), "{name}.md");
            let fences = text.lines().filter(|line| line.trim_start().starts_with("```"));
            for opening in fences.step_by(2) {
                // Without a language it would be an example in Rust, which is run.
                let language = opening.trim_start().trim_start_matches('`');
                let known = ["json", "python", "sh", "text", "toml", "yaml"];
                assert!(known.contains(&language), "{name}.md: {opening}");
            }
        }
    }
}

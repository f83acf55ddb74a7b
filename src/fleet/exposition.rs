//! One page of metrics of what several processes say, each with its model's name.

use std::collections::HashMap;
use std::fmt::Write;

/// The label that tells models apart.
const MODEL: &str = "model_name";

/// The metrics of some processes as one text: every name stands once, with the samples of all.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
}

#[derive(Debug, Default)]
struct Family {
    /// Its help and its type.
    head: Vec<String>,
    samples: Vec<String>,
}

impl Exposition {
    /// Adds what the process of `model` says.
    pub(super) fn add(&mut self, model: &str, text: &str) {
        let mut at = None;
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(name) = head(line) {
                let index = self.family(name);
                let head = &mut self.families[index].head;
                if !head.iter().any(|known| kind(known) == kind(line)) {
                    head.push(line.to_owned());
                }
                at = Some(index);
            } else if !line.starts_with('#') {
                let index = at.unwrap_or_else(|| self.family(name_of(line)));
                self.families[index].samples.push(labelled(line, model));
            }
        }
    }

    /// Adds one metric of this process itself, a sample for each label set.
    pub(super) fn add_own(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Option<String>, u64)>,
    ) {
        let index = self.family(name);
        let family = &mut self.families[index];
        family.head = vec![format!("# HELP {name} {help}"), format!("# TYPE {name} {kind}")];
        for (model, value) in samples {
            let labels =
                model.map_or(String::new(), |model| format!("{{{MODEL}=\"{}\"}}", escaped(&model)));
            family.samples.push(format!("{name}{labels} {value}"));
        }
    }

    /// The text.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            for line in family.head.iter().chain(&family.samples) {
                // Writing to a string can't fail.
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }

    fn family(&mut self, name: &str) -> usize {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        self.families.push(Family::default());
        self.by_name.insert(name.to_owned(), self.families.len() - 1);
        self.families.len() - 1
    }
}

/// The metric that a line of help or type is about.
fn head(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "))?;
    rest.split(' ').next()
}

fn kind(line: &str) -> Option<&str> {
    line.get(..6)
}

fn name_of(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// A sample with its model's name, if it has none.
fn labelled(line: &str, model: &str) -> String {
    let name = name_of(line);
    let rest = &line[name.len()..];
    let own = format!("{MODEL}=\"");
    if rest.starts_with(&format!("{{{own}")) || rest.contains(&format!(",{own}")) {
        return line.to_owned();
    }
    let label = format!("{own}{}\"", escaped(model));
    match rest.strip_prefix('{') {
        Some(rest) if rest.starts_with('}') => format!("{name}{{{label}{rest}"),
        Some(rest) => format!("{name}{{{label},{rest}"),
        None => format!("{name}{{{label}}}{rest}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_with_the_samples_of_all() {
        let mut all = Exposition::default();
        let text = |value: u32| {
            format!(
                "# HELP a What it is.\n# TYPE a counter\na {value}\n\n\
                 # TYPE b histogram\nb_bucket{{le=\"1\"}} {value}\nb_sum{{}} 1\n"
            )
        };
        all.add("m", &text(1));
        all.add("n\"o", &text(2));
        all.add_own("c", "gauge", "Own.", [(None, 3), (Some("m".to_owned()), 4)]);
        assert_eq!(
            all.render(),
            "# HELP a What it is.\n# TYPE a counter\na{model_name=\"m\"} 1\n\
             a{model_name=\"n\\\"o\"} 2\n# TYPE b histogram\n\
             b_bucket{model_name=\"m\",le=\"1\"} 1\nb_sum{model_name=\"m\"} 1\n\
             b_bucket{model_name=\"n\\\"o\",le=\"1\"} 2\nb_sum{model_name=\"n\\\"o\"} 1\n\
             # HELP c Own.\n# TYPE c gauge\nc 3\nc{model_name=\"m\"} 4\n"
        );
    }

    #[test]
    fn a_name_that_is_there_stays() {
        let line = "a{x=\"1\",model_name=\"own\"} 1";
        assert_eq!(labelled(line, "m"), line);
        assert_eq!(labelled("a{model_name=\"own\"} 1", "m"), "a{model_name=\"own\"} 1");
    }
}

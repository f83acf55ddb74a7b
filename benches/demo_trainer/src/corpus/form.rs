//! Sentence templates with slots, read in both directions: to write a text, and to tell whether a text
//! could have been written. Refuses to know which sentences there are.
//!
//! `{slot}` stands for the slot's value, `{an slot}` for the value behind its article. A slot keeps its
//! value throughout a text: that is what makes a story hang together, and what the reading checks.

use super::dice::Dice;
use super::lexicon;
use std::collections::BTreeMap;

/// The values of the slots.
pub(crate) type Bindings = BTreeMap<&'static str, String>;

/// What a slot may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Domain {
    /// Lower-case letters.
    Word,
    /// A capital and lower-case letters.
    Name,
    /// One of a list.
    OneOf(&'static [&'static str]),
}

/// A slot's name and what it may hold.
pub(crate) type Slot = (&'static str, Domain);

/// A text: one sentence after the other, each in one of several wordings.
pub(crate) struct Form {
    pub(crate) slots: &'static [Slot],
    pub(crate) sentences: Vec<Vec<String>>,
}

impl Form {
    /// Writes a text, choosing wordings and those slots of a list that have no value yet.
    pub(crate) fn write(&self, dice: &mut Dice, bindings: &mut Bindings) -> String {
        for (slot, domain) in self.slots {
            if let (Domain::OneOf(choices), false) = (domain, bindings.contains_key(slot)) {
                bindings.insert(slot, (*dice.pick(choices)).to_owned());
            }
        }
        let sentences: Vec<String> = self
            .sentences
            .iter()
            .map(|wordings| fill(dice.pick::<String>(wordings), bindings))
            .collect();
        sentences.join(" ")
    }

    /// The slots' values if `text` is one that `write` could give under `bindings`.
    pub(crate) fn read(&self, text: &str, bindings: &Bindings) -> Option<Bindings> {
        self.read_from(0, text, bindings)
    }

    /// Whether each sentence of `text` is one that `write` could give, whatever the others say.
    pub(crate) fn reads_by_sentence(&self, text: &str) -> bool {
        self.reads_sentences_from(0, text)
    }

    fn reads_sentences_from(&self, position: usize, text: &str) -> bool {
        let Some(wordings) = self.sentences.get(position) else {
            return text.is_empty();
        };
        let Some(text) = (if position == 0 { Some(text) } else { text.strip_prefix(' ') }) else {
            return false;
        };
        // A noun may stand without its adjective.
        let plain = |wording: &String| {
            wording.replace("{an adj} {x}", "{an x}").replace("{adj} {x}", "{x}")
        };
        wordings
            .iter()
            .flat_map(|wording| [wording.clone(), plain(wording)])
            .flat_map(|wording| read_sentence(&wording, text, &Bindings::new(), self.slots))
            .any(|(rest, _)| self.reads_sentences_from(position + 1, rest))
    }

    fn read_from(&self, position: usize, text: &str, bindings: &Bindings) -> Option<Bindings> {
        let Some(wordings) = self.sentences.get(position) else {
            return text.is_empty().then(|| bindings.clone());
        };
        let text = match position {
            0 => text,
            _ => text.strip_prefix(' ')?,
        };
        wordings
            .iter()
            .flat_map(|wording| read_sentence(wording, text, bindings, self.slots))
            .find_map(|(rest, bindings)| self.read_from(position + 1, rest, &bindings))
    }
}

/// Puts the slots' values into a template.
pub(crate) fn fill(template: &str, bindings: &Bindings) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((literal, slot, with_article, after)) = next_slot(rest) {
        text.push_str(literal);
        let value = &bindings[slot];
        if with_article {
            text.push_str(lexicon::article(value));
            text.push(' ');
        }
        text.push_str(value);
        rest = after;
    }
    text + rest
}

/// Every way to read `template` from the start of `text`: what is left, and the slots' values.
fn read_sentence<'t>(
    template: &str,
    text: &'t str,
    bindings: &Bindings,
    slots: &[Slot],
) -> Vec<(&'t str, Bindings)> {
    let Some((literal, slot, with_article, after)) = next_slot(template) else {
        let rest = text.strip_prefix(template);
        return rest.map(|rest| (rest, bindings.clone())).into_iter().collect();
    };
    let Some(text) = text.strip_prefix(literal) else {
        return Vec::new();
    };
    let Some(&(slot, domain)) = slots.iter().find(|(name, _)| *name == slot) else {
        return Vec::new();
    };
    values(text, bindings.get(slot), domain, with_article)
        .into_iter()
        .flat_map(|(value, rest)| {
            let mut bindings = bindings.clone();
            bindings.insert(slot, value.to_owned());
            read_sentence(after, rest, &bindings, slots)
        })
        .collect()
}

/// The values a slot can have at the start of `text`, each with what follows it.
fn values<'t>(
    text: &'t str,
    bound: Option<&String>,
    domain: Domain,
    with_article: bool,
) -> Vec<(&'t str, &'t str)> {
    let (article, text) = if with_article {
        let Some((article, text)) = text.split_once(' ') else { return Vec::new() };
        (Some(article), text)
    } else {
        (None, text)
    };
    let letters = |text: &'t str| {
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        text.split_at(end)
    };
    let candidates: Vec<(&str, &str)> = match (bound, domain) {
        (Some(value), _) => text
            .strip_prefix(value.as_str())
            .map(|rest| (&text[..value.len()], rest))
            .into_iter()
            .collect(),
        (None, Domain::OneOf(choices)) => choices
            .iter()
            .filter_map(|c| text.strip_prefix(c).map(|rest| (&text[..c.len()], rest)))
            .collect(),
        (None, Domain::Word | Domain::Name) => {
            let (word, rest) = letters(text);
            let capitals = word.bytes().filter(u8::is_ascii_uppercase).count();
            let starts_high = word.starts_with(|c: char| c.is_ascii_uppercase());
            let fits = match domain {
                Domain::Name => starts_high && capitals == 1,
                _ => !word.is_empty() && capitals == 0,
            };
            fits.then_some((word, rest)).into_iter().collect()
        }
    };
    candidates
        .into_iter()
        .filter(|(value, _)| article.is_none_or(|a| a == lexicon::article(value)))
        .collect()
}

/// Splits a template at its first slot: text before, the slot, whether with its article, text behind.
fn next_slot(template: &str) -> Option<(&str, &str, bool, &str)> {
    let (literal, rest) = template.split_once('{')?;
    let (slot, after) = rest.split_once('}')?;
    let bare = slot.strip_prefix("an ");
    Some((literal, bare.unwrap_or(slot), bare.is_some(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: &[Slot] = &[
        ("x", Domain::Word),
        ("name", Domain::Name),
        ("place", Domain::OneOf(&["by the sea", "by the sea wall"])),
    ];

    fn form() -> Form {
        let lines = |lines: &[&str]| lines.iter().map(|&l| l.to_owned()).collect();
        Form {
            slots: SLOTS,
            sentences: vec![
                lines(&["Here was {an x} {place}.", "Look, {an x}."]),
                lines(&["The {x} was {name}."]),
            ],
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let mut dice = Dice::new(3);
        for _ in 0..50 {
            let mut bindings =
                Bindings::from([("x", "owl".to_owned()), ("name", "Pip".to_owned())]);
            let text = form().write(&mut dice, &mut bindings);
            let read = form().read(&text, &Bindings::new()).expect(&text);
            assert_eq!(read["x"], "owl");
        }
    }

    #[test]
    fn refuses_a_slot_that_changes_and_a_wrong_article() {
        let read = |text: &str| form().read(text, &Bindings::new()).is_some();
        assert!(read("Look, an owl. The owl was Pip."));
        assert!(!read("Look, an owl. The owlet was Pip."));
        assert!(!read("Look, a owl. The owl was Pip."));
        assert!(!read("Look, an owl. The owl was Pip. "));
        assert!(!read("Look, an owl. The owl was pip."));
    }
}

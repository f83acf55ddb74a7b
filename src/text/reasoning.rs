//! Reasoning in what a model writes: which part of an answer is reasoning, and which is
//! for the user.
//!
//! Models set reasoning apart with tags, phrases or channels of their own; a family is a row of such
//! texts in `families`, found by the model's chat template, which shows them. Text is parted while
//! it is being written and nothing is lost: whatever the pieces, the events joined are the same, and
//! what is no markup comes out as one or the other. Tool calls are none of its business: they come
//! out as content, with their markup.
//!
//! # How to add a reasoning format
//!
//! 1. `src/text/reasoning/families.rs`: a row, before families whose marks say less. What a tag can do is
//!    in `src/text/reasoning/tags.rs`.
//! 2. `src/text/reasoning/tests.rs`: an answer in the format.
//! 3. `SCONCE_UPDATE_README=1 cargo test --test main readme` writes `--reasoning-parser` of `src/guide/flags.md`.

mod event;
mod families;
mod family;
mod tags;

pub use event::{ReasoningEvent, ReasoningParser};
use families::FAMILIES;
use family::Family;
use tags::TagReader;

/// The name of the family that a chat template belongs to.
pub fn detect(template_source: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|family| (family.detect)(template_source)).map(|family| family.name)
}

/// A new parser of the family called `name`, for an answer that begins within reasoning or not.
pub fn parser(name: &str, starts_inside: bool) -> Option<Box<dyn ReasoningParser>> {
    let tags = &family(name)?.tags;
    Some(Box::new(TagReader::new(tags, starts_inside)))
}

/// Whether a rendered prompt ends within reasoning: the answer's first text is the prompt's last.
pub fn starts_inside(name: &str, prompt: &str) -> bool {
    let prompt = prompt.trim_end();
    family(name).is_some_and(|family| family.tags.opens.iter().any(|open| prompt.ends_with(open)))
}

/// Whether a message that is to be continued breaks off within reasoning.
pub fn continues_inside(name: &str, message: &str) -> bool {
    let last = |marks: &[&str]| marks.iter().filter_map(|mark| message.rfind(mark)).max();
    family(name).is_some_and(|family| last(family.tags.opens) > last(family.tags.closes))
}

/// Special tokens that the parser has to see in the text, though others are hidden.
pub fn markers(name: &str) -> &'static [&'static str] {
    family(name).map_or(&[], |family| family.markers)
}

/// What stands around a family's reasoning, for whoever has to know where it ends before the text
/// is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// The text that opens reasoning at the beginning of an answer.
    pub open: Option<&'static str>,
    /// The text that ends reasoning: behind it stands the answer.
    pub close: &'static str,
    /// Whether every answer has `close`, with or without reasoning.
    pub always: bool,
}

/// The marks around a family's reasoning.
pub fn marks(name: &str) -> Option<Marks> {
    if name == "harmony" {
        // The answer is a message on a channel of its own, behind those on others.
        return Some(Marks { open: None, close: "<|channel|>final<|message|>", always: true });
    }
    let tags = &family(name)?.tags;
    let (open, close) = (tags.opens.first().copied(), tags.closes.first().copied()?);
    Some(Marks { open, close, always: false })
}

/// The names of all families.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

#[cfg(test)]
mod tests;

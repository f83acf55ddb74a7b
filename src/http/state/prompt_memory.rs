//! What earlier requests' prompts were, as hashes: enough to say how far a later one repeats them, and
//! what was changed if it doesn't.
//!
//! Prompts are hashed in chained blocks, as the KV cache does: two prompts share as many of their
//! first tokens as they share of their first hashes.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Prompts that are remembered; the oldest goes first.
const MOST: usize = 4096;
/// Tokens of a block.
const BLOCK: usize = 16;
/// Tokens at the end of a prompt that only ask for an answer; the next prompt has the answer there.
const OPENING: usize = 2 * BLOCK;

/// A prompt, and what it was made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptFacts {
    /// What shapes the beginning of the prompt, by the names that an API has for it, in the order in
    /// which they are looked at.
    aspects: Vec<(&'static str, u64)>,
    /// Of each message.
    messages: Vec<u64>,
    /// Of each full block, with all before it.
    blocks: Vec<u64>,
}

impl PromptFacts {
    /// Adds something that shapes the prompt, under the name of the reason if it changes.
    pub(crate) fn with_aspect(mut self, name: &'static str, value: &impl Hash) -> Self {
        self.aspects.push((name, hash(value)));
        self
    }

    /// Adds a message.
    pub(crate) fn add_message(&mut self, message: &impl Hash) {
        self.messages.push(hash(message));
    }

    /// Adds the prompt's tokens.
    pub(crate) fn with_tokens(mut self, token_ids: &[u32]) -> Self {
        let mut before = 0_u64;
        self.blocks = token_ids
            .chunks_exact(BLOCK)
            .map(|block| {
                before = hash(&(before, block));
                before
            })
            .collect();
        self
    }
}

/// Why a prompt doesn't go on as an earlier one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Divergence {
    /// This changed.
    Aspect(&'static str),
    /// A message changed that was there before.
    Messages,
    /// Something else that shapes prompts.
    Other,
}

/// How two prompts part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) divergence: Divergence,
    /// Tokens that both begin with.
    pub(crate) shared_tokens: usize,
    /// Further tokens of the earlier prompt.
    pub(crate) missed_tokens: usize,
}

/// What comes of a comparison of two prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The earlier one isn't remembered.
    Unknown,
    /// The later one goes on where the earlier one ended.
    GoesOn,
    Parts(Miss),
}

/// The prompts of the requests that asked for a comparison.
#[derive(Debug, Default)]
pub(crate) struct PromptMemory(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    facts: HashMap<String, PromptFacts>,
    order: VecDeque<String>,
}

impl PromptMemory {
    /// Keeps the prompt of the answer `id`; how it goes on that of the answer `previous`, if there is
    /// one to compare with.
    pub(crate) fn record(
        &self,
        id: &str,
        facts: PromptFacts,
        previous: Option<&str>,
    ) -> Option<Compared> {
        let compared = previous.map(|previous| self.compare(previous, &facts));
        self.remember(id, facts);
        compared
    }

    fn remember(&self, id: &str, facts: PromptFacts) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.facts.insert(id.to_owned(), facts).is_none() {
            remembered.order.push_back(id.to_owned());
        }
        while remembered.order.len() > MOST
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.facts.remove(&oldest);
        }
    }

    /// How a prompt goes on that of the answer `id`.
    fn compare(&self, id: &str, facts: &PromptFacts) -> Compared {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match remembered.facts.get(id).map(|before| miss(before, facts)) {
            None => Compared::Unknown,
            Some(None) => Compared::GoesOn,
            Some(Some(miss)) => Compared::Parts(miss),
        }
    }
}

fn miss(before: &PromptFacts, after: &PromptFacts) -> Option<Miss> {
    let pairs = before.blocks.iter().zip(&after.blocks);
    let shared = pairs.take_while(|(before, after)| before == after).count();
    if (before.blocks.len() - shared) * BLOCK <= OPENING {
        return None;
    }
    let mut aspects = before.aspects.iter().zip(&after.aspects);
    let changed = aspects.find(|(before, after)| before != after);
    let divergence = match changed {
        Some((_, (name, _))) => Divergence::Aspect(name),
        None if !after.messages.starts_with(&before.messages) => Divergence::Messages,
        None => Divergence::Other,
    };
    Some(Miss {
        divergence,
        shared_tokens: shared * BLOCK,
        missed_tokens: (before.blocks.len() - shared) * BLOCK,
    })
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(system: &str, messages: &[&str], tokens: &[u32]) -> PromptFacts {
        let mut facts = PromptFacts::default().with_aspect("system", &system);
        for message in messages {
            facts.add_message(message);
        }
        facts.with_tokens(tokens)
    }

    #[test]
    fn a_prompt_that_goes_on_has_no_miss() {
        let memory = PromptMemory::default();
        let tokens: Vec<u32> = (0..160).collect();
        memory.remember("a", facts("s", &["x"], &tokens));
        assert_eq!(memory.compare("b", &facts("s", &["x"], &tokens)), Compared::Unknown);
        // The end that asks for an answer may differ.
        let next: Vec<u32> = (0..140).chain(500..600).collect();
        assert_eq!(memory.compare("a", &facts("s", &["x", "y"], &next)), Compared::GoesOn);
    }

    #[test]
    fn the_first_thing_that_changed_is_named() {
        let memory = PromptMemory::default();
        let tokens: Vec<u32> = (0..160).collect();
        memory.remember("a", facts("s", &["x"], &tokens));
        let parted: Vec<u32> = (0..50).chain(900..1000).collect();
        let told = |system: &str, messages: &[&str]| match memory
            .compare("a", &facts(system, messages, &parted))
        {
            Compared::Parts(miss) => miss,
            other => panic!("{other:?}"),
        };
        let miss = told("t", &["y"]);
        assert_eq!((miss.shared_tokens, miss.missed_tokens), (48, 112));
        assert_eq!(miss.divergence, Divergence::Aspect("system"));
        assert_eq!(told("s", &["y"]).divergence, Divergence::Messages);
        assert_eq!(told("s", &["x", "y"]).divergence, Divergence::Other);
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let memory = PromptMemory::default();
        for id in 0..=MOST {
            memory.remember(&id.to_string(), PromptFacts::default());
        }
        assert_eq!(memory.compare("0", &PromptFacts::default()), Compared::Unknown);
        assert_eq!(memory.compare("1", &PromptFacts::default()), Compared::GoesOn);
    }
}

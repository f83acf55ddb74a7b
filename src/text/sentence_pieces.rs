//! How SentencePiece changes a text before it is cut into pieces, and the pieces of the whole.
//!
//! Kudo and Richardson, "SentencePiece", 2018. Characters are respelled as a table says (the longest
//! match counts), repeated spaces go where the model wants that, and spaces become `▁`. What stands
//! in the text between tokens that were added is one text: only its beginning gets a `▁`.

use tokenizers::{AddedVocabulary, Model, ModelWrapper, OffsetReferential, OffsetType};

/// The character that stands for a space.
const SPACE: char = '▁';

/// What a model's normalizer does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SentencePieces {
    /// The table that respells characters, if the model has one.
    pub(super) charsmap: Option<Charsmap>,
    /// Whether text begins with a space that it doesn't have.
    pub(super) space_prefix: bool,
    /// Whether repeated spaces, and those at both ends, go.
    pub(super) collapse_spaces: bool,
}

/// A table of character sequences and what they become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charsmap {
    /// A double array, as the Darts library lays it out.
    units: Vec<u32>,
    /// What sequences of characters become: texts that end in a 0 byte each.
    texts: Vec<u8>,
}

impl Charsmap {
    /// Reads a table: the length of the array in bytes, the array, the texts.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let bad = || "the table of respelled characters is malformed".to_owned();
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(bad)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| bad())?;
        let (array, texts) = rest.split_at_checked(length).ok_or_else(bad)?;
        let units: Vec<u32> = array
            .chunks_exact(4)
            .map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]))
            .collect();
        if units.is_empty() || std::str::from_utf8(texts).is_err() {
            return Err(bad());
        }
        Ok(Self { units, texts: texts.to_vec() })
    }

    /// What the longest sequence at the beginning of `text` becomes, and its bytes.
    fn longest(&self, text: &[u8]) -> Option<(&str, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let unit = |at: usize| self.units.get(at).copied();
        let mut at = offset(unit(0)?);
        let mut longest = None;
        for (index, byte) in text.iter().enumerate() {
            at ^= usize::from(*byte);
            let Some(node) = unit(at) else { break };
            if node & (1 << 31 | 0xff) != u32::from(*byte) {
                break;
            }
            at ^= offset(node);
            if node >> 8 & 1 == 1
                && let Some(value) = unit(at)
            {
                longest = Some(((value & !(1 << 31)) as usize, index + 1));
            }
        }
        let (start, bytes) = longest?;
        let end = self.texts.get(start..)?.iter().position(|byte| *byte == 0)? + start;
        Some((std::str::from_utf8(&self.texts[start..end]).ok()?, bytes))
    }
}

/// A text on its way through the normalizer.
struct Normalized<'a> {
    rules: &'a SentencePieces,
    text: String,
    /// Whether what came last ends in a space, so that spaces that follow go.
    after_space: bool,
    /// Whether nothing has come yet.
    at_start: bool,
}

impl SentencePieces {
    /// The ids of `text`, in which `added` tokens stand for themselves.
    pub(super) fn encode(
        &self,
        model: &ModelWrapper,
        added: &AddedVocabulary,
        text: &str,
    ) -> Result<Vec<u32>, tokenizers::Error> {
        let parts = added.extract_and_normalize(None::<&tokenizers::NormalizerWrapper>, text);
        let parts = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let mut ids = Vec::new();
        let mut normalized = Normalized {
            rules: self,
            text: String::new(),
            after_space: self.collapse_spaces,
            at_start: true,
        };
        let last = parts.len().saturating_sub(1);
        for (place, (part, _, tokens)) in parts.iter().enumerate() {
            let Some(tokens) = tokens else {
                normalized.push(part, place == last);
                continue;
            };
            // A control token begins a text anew; one of the text's own is a word of it.
            let control = tokens.iter().all(|token| added.is_special_token(&token.value));
            if !control {
                normalized.begin();
            }
            ids.extend(pieces(model, &std::mem::take(&mut normalized.text))?);
            ids.extend(tokens.iter().map(|token| token.id));
            normalized.at_start = control;
            normalized.after_space = control && self.collapse_spaces;
        }
        ids.extend(pieces(model, &normalized.text)?);
        Ok(ids)
    }
}

/// The ids of a normalized text.
fn pieces(model: &ModelWrapper, text: &str) -> Result<Vec<u32>, tokenizers::Error> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(model.tokenize(text)?.into_iter().map(|token| token.id).collect())
}

impl Normalized<'_> {
    /// Adds the space that a text begins with.
    fn begin(&mut self) {
        if std::mem::take(&mut self.at_start) && self.rules.space_prefix {
            self.text.push(SPACE);
        }
    }

    /// Adds a part of the text, the last one perhaps.
    fn push(&mut self, mut part: &str, last: bool) {
        while let Some(first) = part.chars().next() {
            let map = self.rules.charsmap.as_ref();
            let (respelled, bytes) = map
                .and_then(|map| map.longest(part.as_bytes()))
                .unwrap_or((&part[..first.len_utf8()], first.len_utf8()));
            part = &part[bytes..];
            if self.at_start && self.rules.collapse_spaces && respelled == " " {
                continue;
            }
            self.begin();
            let respelled =
                if self.after_space { respelled.trim_start_matches(' ') } else { respelled };
            if respelled.is_empty() {
                continue;
            }
            let spelled = respelled.chars().map(|c| if c == ' ' { SPACE } else { c });
            self.text.extend(spelled);
            self.after_space = self.rules.collapse_spaces && respelled.ends_with(' ');
        }
        if last && self.rules.collapse_spaces {
            self.text.truncate(self.text.trim_end_matches(SPACE).len());
        }
    }
}

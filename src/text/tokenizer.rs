//! Text to ids and ids to text, as the model's own tokenizer does it.
//!
//! A thin, shareable wrapper over the `tokenizers` crate that adds what a server needs: which ids
//! are special, the bytes behind an id, plain encoding of untrusted text, and decoding one token at
//! a time (see [`Detokenizer`](super::detokenizer::Detokenizer)). It knows no chat format.

mod common_beginning;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use thiserror::Error;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Lowercase, Sequence};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessor, PostProcessorWrapper,
    PreTokenizerWrapper, TokenizerImpl, TruncationDirection,
};

use super::decoder::DecoderChain;
use super::sentence_pieces::SentencePieces;
use super::special_tokens::SpecialTokens;
use super::tokenizer_config::TokenizerConfig;

/// A tokenizer that cannot be loaded, or a text that it refuses.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// `tokenizer.json` can't be read as a tokenizer.
    #[error("cannot load the tokenizer: {0}")]
    Load(String),
    /// The text is far longer than it may be, so it was not tokenized to its end.
    #[error("the text has more than {0} tokens")]
    TooLong(usize),
    /// The tokenizer refused a text.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
}

/// Bytes of a text that is tokenized without being counted first.
const SHORT: usize = 128 << 10;
/// Bytes that are counted at a time.
const PIECE: usize = 32 << 10;

/// A tokenizer of the usual kind.
type BpeTokenizer = TokenizerImpl<
    BPE,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// A model's tokenizer. Immutable and `Sync`: share it as `Arc<Tokenizer>`.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The same tokenizer, blind to special tokens in the text; made when first asked for.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// Whether texts may be cut where lines begin; found when first asked for.
    lines_stand_alone: OnceLock<bool>,
    /// Cuts text into pieces instead, with the model and the added tokens of `inner`.
    pieces: Option<SentencePieces>,
    chain: DecoderChain,
    special_tokens: SpecialTokens,
    special_ids: HashSet<u32>,
    bos_id: Option<u32>,
    eos_id: Option<u32>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
}

/// Where a text that is too long loses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutSide {
    /// The text loses its first tokens.
    Left,
    /// The text loses its last tokens.
    Right,
}

/// The ids of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// In their order.
    pub ids: Vec<u32>,
    /// Where each token begins and ends in the text, in characters, if it was asked for and the
    /// tokenizer can tell. Tokens that were added at the ends stand nowhere: `(0, 0)`.
    pub offsets: Option<Vec<(usize, usize)>>,
}

/// The ids of two texts that a model reads together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPair {
    /// In their order, with what stands around and between the texts.
    pub ids: Vec<u32>,
    /// Where the second text begins, for tokenizers that tell texts apart.
    pub second: Option<usize>,
}

impl CutSide {
    /// At most `most` of `ids`.
    pub fn keep<T>(self, ids: &[T], most: usize) -> &[T] {
        let most = most.min(ids.len());
        match self {
            Self::Left => &ids[ids.len() - most..],
            Self::Right => &ids[..most],
        }
    }
}

impl Tokenizer {
    /// Loads `tokenizer.json`, with what `tokenizer_config.json` adds to it.
    ///
    /// # Errors
    /// When the bytes are no tokenizer.
    pub fn from_json(json: &[u8], config: &TokenizerConfig) -> Result<Self, TokenizerError> {
        // The library panics at some files that are none.
        let read = catch_unwind(AssertUnwindSafe(|| read_json(json)));
        let read = read.unwrap_or_else(|_| Err("the file makes no sense".to_owned()));
        Self::new(read.map_err(TokenizerError::Load)?, config)
    }

    /// Wraps a built tokenizer, for example one made from a GGUF vocabulary.
    ///
    /// The special tokens of `config` that are in the vocabulary become special. Truncation and
    /// padding are switched off: how long a prompt may be is not the tokenizer's to decide.
    ///
    /// # Errors
    /// When the special tokens cannot be added.
    pub fn new(
        mut inner: tokenizers::Tokenizer,
        config: &TokenizerConfig,
    ) -> Result<Self, TokenizerError> {
        let load = |error: tokenizers::Error| TokenizerError::Load(error.to_string());
        inner.with_truncation(None).map_err(load)?;
        inner.with_padding(None);
        let named = config.special_tokens.iter().map(|(_, text)| text.to_owned());
        let known: Vec<AddedToken> = named
            .filter(|text| inner.token_to_id(text).is_some() && !is_added(&inner, text))
            .map(|text| AddedToken::from(text, true))
            .collect();
        inner.add_special_tokens(known).map_err(load)?;
        let id_of = |text: Option<&str>| text.and_then(|text| inner.token_to_id(text));
        let added = inner.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        Ok(Self {
            chain: DecoderChain::new(inner.get_decoder()),
            special_ids: special.collect(),
            bos_id: id_of(config.special_tokens.bos()),
            eos_id: id_of(config.special_tokens.eos()),
            special_tokens: config.special_tokens.clone(),
            add_bos: config.add_bos,
            add_eos: config.add_eos,
            plain: OnceLock::new(),
            lines_stand_alone: OnceLock::new(),
            pieces: None,
            inner,
        })
    }

    /// Makes the tokenizer normalize text as SentencePiece does.
    pub(super) fn with_sentence_pieces(self, pieces: SentencePieces) -> Self {
        Self { pieces: Some(pieces), ..self }
    }

    /// The same tokenizer, which reads all letters as small ones.
    ///
    /// # Errors
    /// When the tokenizer can't have that.
    pub fn lowercased(mut self) -> Result<Self, TokenizerError> {
        let first = NormalizerWrapper::Lowercase(Lowercase);
        let rest = self.inner.get_normalizer().cloned();
        let all = Sequence::new(std::iter::once(first).chain(rest).collect());
        let changed = self.inner.with_normalizer(Some(NormalizerWrapper::Sequence(all)));
        changed.map_err(|error| TokenizerError::Load(error.to_string()))?;
        (self.plain, self.lines_stand_alone) = (OnceLock::new(), OnceLock::new());
        Ok(self)
    }

    /// The ids of `text`. Special tokens written in the text are recognized.
    ///
    /// A rendered chat prompt already carries its special tokens: encode it with
    /// `add_special_tokens = false`, or it gets a second bos. A plain completion prompt is encoded
    /// with `true`.
    ///
    /// # Errors
    /// When the tokenizer refuses the text (a piece without an unknown token, for example).
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        self.encode_with(&self.inner, text, add_special_tokens)
    }

    /// As [`encode`](Self::encode), for a text that may have `most` tokens: one that has more than
    /// twice as many is refused before all of it is tokenized. It may still have more than `most`.
    ///
    /// # Errors
    /// [`TokenizerError::TooLong`], and as [`encode`](Self::encode).
    pub fn encode_at_most(
        &self,
        text: &str,
        add_special_tokens: bool,
        most: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > SHORT && text.len() > most {
            self.count_pieces(text, most.saturating_mul(2))?;
        }
        self.encode(text, add_special_tokens)
    }

    /// Counts piece by piece. A cut makes a few tokens more of those around it, never twice as many
    /// of the whole.
    fn count_pieces(&self, text: &str, bound: usize) -> Result<(), TokenizerError> {
        let (mut rest, mut count) = (text, 0);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
            count += self.encode(piece, false)?.len();
            if count > bound {
                return Err(TokenizerError::TooLong(bound));
            }
            rest = after;
        }
        Ok(())
    }

    /// As [`encode`](Self::encode), with the place of each token in the text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Encoded, TokenizerError> {
        let ids = self.encode(text, add_special_tokens)?;
        if self.pieces.is_some() {
            return Ok(Encoded { ids, offsets: None });
        }
        let encoding = self.inner.encode_char_offsets(text, add_special_tokens);
        let encoding = encoding.map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let (told, offsets) = (encoding.get_ids(), encoding.get_offsets());
        // The ends may have been made to agree with what the model's configuration says.
        let nowhere = (0, 0);
        let offsets = match &ids[..] {
            all if all == told => Some(offsets.to_vec()),
            [_, rest @ ..] if rest == told => Some([&[nowhere], offsets].concat()),
            [rest @ .., _] if rest == told => Some([offsets, &[nowhere]].concat()),
            all if told.get(1..) == Some(all) => offsets.get(1..).map(<[_]>::to_vec),
            _ => None,
        };
        Ok(Encoded { ids, offsets })
    }

    /// The ids of `text` as plain text: special tokens written in it are spelled out, not obeyed,
    /// and none are added.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let plain = self.plain.get_or_init(|| {
            let mut plain = self.inner.clone();
            plain.set_encode_special_tokens(true);
            plain
        });
        self.encode_with(plain, text, false)
    }

    /// The text of `ids`, lossy where they are not valid UTF-8. Ids outside the vocabulary say
    /// nothing.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        let mut chain = self.chain.clone();
        let mut text = String::new();
        for &id in ids {
            self.push_token(&mut chain, id, skip_special_tokens, &mut text);
        }
        chain.finish(&mut text);
        text
    }

    /// The bytes that the token contributes in the middle of a text; several tokens may share one
    /// character. Empty for an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        self.decoded_token(id).map(|token| self.chain.token_bytes(&token)).unwrap_or_default()
    }

    /// [`token_bytes`](Self::token_bytes) as text, lossy where the token is part of a character.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.token_bytes(id)).into_owned()
    }

    /// The token as the vocabulary spells it (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token as the vocabulary spells it.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// One more than the largest id. A model may have more rows of logits than this. Looks
    /// through the whole vocabulary.
    pub fn vocab_size(&self) -> usize {
        let last_id = self.inner.get_vocab(true).into_values().max();
        last_id.map_or(0, |id| id as usize + 1)
    }

    /// Whether `skip_special_tokens` hides the token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special_ids.contains(&id)
    }

    /// All special ids, in ascending order.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.special_ids.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The token that begins a sequence, where the model has one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    /// The token that ends a sequence. A model may stop at further ones (its generation config
    /// lists them).
    pub fn eos_id(&self) -> Option<u32> {
        self.eos_id
    }

    /// The texts of the named special tokens, as chat templates want them.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special_tokens
    }

    /// A fresh decoding chain for a stream.
    pub(crate) fn chain(&self) -> DecoderChain {
        self.chain.clone()
    }

    /// Feeds one id to a chain.
    pub(crate) fn push_token(
        &self,
        chain: &mut DecoderChain,
        id: u32,
        skip_special_tokens: bool,
        out: &mut String,
    ) {
        if skip_special_tokens && self.is_special(id) {
            return;
        }
        if let Some(token) = self.decoded_token(id) {
            chain.push(token, out);
        }
    }

    /// The token as decoders want it: an added token that is normalized on the way in comes in its
    /// normalized form.
    fn decoded_token(&self, id: u32) -> Option<String> {
        let added = self.inner.get_added_vocabulary().simple_id_to_token(id);
        added.or_else(|| self.inner.id_to_token(id))
    }

    /// The ids of `text`, cut to `most`: the tokens that are added at the ends stay, those of the
    /// text go, from the given side.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_within(
        &self,
        text: &str,
        add_special_tokens: bool,
        most: usize,
        cut: CutSide,
    ) -> Result<Vec<u32>, TokenizerError> {
        let ids = self.encode(text, add_special_tokens)?;
        if ids.len() <= most {
            return Ok(ids);
        }
        let plain = self.encode(text, false)?;
        // What stands around the text's own ids was added.
        let added = ids.len().saturating_sub(plain.len());
        let start = (0..=added).find(|start| ids[*start..].starts_with(&plain));
        let Some(start) = start.filter(|_| added <= most) else {
            return Ok(cut.keep(&ids, most).to_vec());
        };
        let end = start + plain.len();
        Ok([&ids[..start], cut.keep(&plain, most - added), &ids[end..]].concat())
    }

    /// The ids of two texts as one, with all special tokens. With `most` the longer text loses tokens
    /// from the given side until there are no more than that, then both do.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_pair(
        &self,
        [first, second]: [&str; 2],
        most: Option<(usize, CutSide)>,
    ) -> Result<EncodedPair, TokenizerError> {
        let refused = |error: tokenizers::Error| TokenizerError::Encode(error.to_string());
        if self.pieces.is_some() {
            let parts = [self.encode(first, true)?, self.encode(second, true)?];
            let kept = longest_first(parts.each_ref().map(Vec::len), most.map(|(most, _)| most));
            let side = most.map_or(CutSide::Right, |(_, side)| side);
            let ids = [side.keep(&parts[0], kept[0]), side.keep(&parts[1], kept[1])].concat();
            return Ok(EncodedPair { ids, second: None });
        }
        let post = self.inner.get_post_processor();
        let added = post.map_or(0, |post| post.added_tokens(true));
        let encode = |text: &str| self.inner.encode_fast(text, false).map_err(refused);
        let mut parts = [encode(first)?, encode(second)?];
        if let Some((most, side)) = most {
            let lengths = parts.each_ref().map(|part| part.get_ids().len());
            let kept = longest_first(lengths, Some(most.saturating_sub(added)));
            let direction = match side {
                CutSide::Left => TruncationDirection::Left,
                CutSide::Right => TruncationDirection::Right,
            };
            for (part, kept) in parts.iter_mut().zip(kept) {
                part.truncate(kept, 0, direction);
            }
        }
        let [first, second] = parts;
        let joined = self.inner.post_process(first, Some(second), true).map_err(refused)?;
        let mut ids = joined.get_ids().to_vec();
        let length = ids.len();
        self.wrap(&mut ids, joined.get_special_tokens_mask());
        let second = joined.get_type_ids().iter().position(|kind| *kind == 1);
        // What was added in front moves it.
        let moved =
            usize::from(ids.len() > length && ids.get(1..=length) == Some(joined.get_ids()));
        Ok(EncodedPair { ids, second: second.map(|second| second + moved) })
    }

    fn encode_with(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let refused = |error: tokenizers::Error| TokenizerError::Encode(error.to_string());
        if let Some(pieces) = &self.pieces {
            let (model, added) = (tokenizer.get_model(), tokenizer.get_added_vocabulary());
            let mut ids = pieces.encode(model, added, text).map_err(refused)?;
            if add_special_tokens {
                self.wrap(&mut ids, &[]);
            }
            return Ok(ids);
        }
        let encoding = tokenizer.encode_fast(text, add_special_tokens).map_err(refused)?;
        let mut ids = encoding.get_ids().to_vec();
        if add_special_tokens {
            self.wrap(&mut ids, encoding.get_special_tokens_mask());
        }
        Ok(ids)
    }

    /// Makes the ends agree with `add_bos_token` and `add_eos_token`, which transformers lets
    /// overrule the post-processor in `tokenizer.json`. `mask` marks what that one added.
    fn wrap(&self, ids: &mut Vec<u32>, mask: &[u32]) {
        let added = |at: Option<&u32>| at.is_some_and(|&mark| mark == 1);
        if let (Some(wanted), Some(eos)) = (self.add_eos, self.eos_id) {
            match (wanted, ids.last() == Some(&eos) && added(mask.last())) {
                (true, false) => ids.push(eos),
                (false, true) => drop(ids.pop()),
                _ => {}
            }
        }
        if let (Some(wanted), Some(bos)) = (self.add_bos, self.bos_id) {
            match (wanted, ids.first() == Some(&bos) && added(mask.first())) {
                (true, false) => ids.insert(0, bos),
                (false, true) => drop(ids.remove(0)),
                _ => {}
            }
        }
    }
}

/// How many tokens each of two texts keeps of `lengths`, for no more than `most` together: the longer
/// one loses tokens first.
fn longest_first([first, second]: [usize; 2], most: Option<usize>) -> [usize; 2] {
    let Some(most) = most.filter(|most| first + second > *most) else { return [first, second] };
    let shorter = first.min(second).min(most / 2);
    let longer = most - shorter;
    if first <= second { [shorter, longer] } else { [longer, shorter] }
}

fn read_json(json: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    // Nearly all are BPE, and reading one as such takes half the time of reading one of unknown
    // kind, whose vocabulary becomes a generic JSON value first.
    match serde_json::from_slice::<BpeTokenizer>(json) {
        Ok(bpe) => Ok(bpe.into()),
        Err(_) => tokenizers::Tokenizer::from_bytes(json).map_err(|error| error.to_string()),
    }
}

fn is_added(tokenizer: &tokenizers::Tokenizer, text: &str) -> bool {
    let added = tokenizer.get_added_vocabulary().get_vocab().get(text).copied();
    let decoder = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    added.and_then(|id| decoder.get(&id)).is_some_and(|token| token.special)
}

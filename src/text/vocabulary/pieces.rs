//! Tokenizers of SentencePiece's two algorithms.
//!
//! SentencePiece BPE has no merges, so every way to split a token in two becomes one, ranked by the
//! token's score (as Hugging Face converts such models, see Kudo and Richardson, "SentencePiece",
//! 2018).

use tokenizers::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Merges};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::normalizers::{NormalizerWrapper, Prepend};

use super::contents::{SPACE, Vocabulary, replace};
use super::error::{VocabularyError, malformed};

/// Byte pairs merged in the order of the scores.
pub(super) fn bpe(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, VocabularyError> {
    if vocabulary.scores.is_empty() {
        return Err(malformed("a vocabulary of kind llama needs scores"));
    }
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.vocab(), merges_by_score(vocabulary))
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(text) = vocabulary.unk_id.and_then(|id| vocabulary.tokens.get(id as usize)) {
        builder = builder.unk_token(text.clone());
    }
    let model = builder.build().map_err(|error| malformed(error.to_string()))?;
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if vocabulary.add_space_prefix.unwrap_or(true) {
        normalizers.push(Prepend::new(SPACE.to_owned()).into());
    }
    normalizers.push(replace(" ", SPACE)?.into());
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let normalized = tokenizer.with_normalizer(Some(Normalizers::new(normalizers)));
    normalized.map_err(|error| malformed(error.to_string()))?;
    tokenizer.with_decoder(Some(decoders(vocabulary)?));
    Ok(tokenizer)
}

/// The most likely cut counts; what is no token's text is cut into bytes where there are tokens
/// for them.
pub(super) fn unigram(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, VocabularyError> {
    /// Less likely than any cut of a text.
    const NEVER: f64 = -1e6;
    if vocabulary.scores.is_empty() {
        return Err(malformed("a vocabulary of kind t5 needs scores"));
    }
    let kind = |id: usize| vocabulary.token_types.get(id).copied().unwrap_or(1);
    let scored = vocabulary.tokens.iter().zip(&vocabulary.scores).enumerate();
    let pieces = scored.map(|(id, (text, score))| {
        // Only normal pieces are found in a text; those that are added are found before.
        let score = if kind(id) == 1 { f64::from(*score) } else { NEVER };
        (text.clone(), score)
    });
    let bytes = (0..vocabulary.tokens.len()).any(|id| kind(id) == 6);
    let unknown = vocabulary.unk_id.map(|id| id as usize);
    let mut model = Unigram::from(pieces.collect(), unknown, bytes)
        .map_err(|error| malformed(error.to_string()))?;
    let normal = (0..vocabulary.tokens.len()).filter(|id| kind(*id) == 1);
    let lowest = normal.map(|id| f64::from(vocabulary.scores[id])).fold(f64::INFINITY, f64::min);
    model.min_score = if lowest.is_finite() { lowest } else { 0.0 };
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_decoder(Some(decoders(vocabulary)?));
    Ok(tokenizer)
}

/// `▁` is a space, tokens of bytes are bytes, and the leading space goes if it was added.
fn decoders(vocabulary: &Vocabulary) -> Result<Decoders, VocabularyError> {
    let mut decoders: Vec<DecoderWrapper> =
        vec![replace(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if vocabulary.add_space_prefix.unwrap_or(true) {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Decoders::new(decoders))
}

/// Every split of a token into two tokens, those of the best token first.
fn merges_by_score(vocabulary: &Vocabulary) -> Merges {
    let ids = vocabulary.ids();
    let mut ranked: Vec<(f32, &str, &str)> = Vec::new();
    for (text, &score) in vocabulary.tokens.iter().zip(&vocabulary.scores) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if ids.contains_key(left) && ids.contains_key(right) {
                ranked.push((score, left, right));
            }
        }
    }
    // Ties as Hugging Face breaks them: the longer left half first.
    ranked.sort_by(|a, b| {
        let lengths =
            |(_, left, right): &(f32, &str, &str)| (left.chars().count(), right.chars().count());
        b.0.total_cmp(&a.0).then_with(|| lengths(b).cmp(&lengths(a)))
    });
    ranked.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect()
}

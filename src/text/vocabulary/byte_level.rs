//! BPE with merges: on bytes spelled as characters, or on text with tokens for single bytes.

use tokenizers::SplitDelimiterBehavior;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::models::bpe::{BPE, BpeBuilder, Merges};
use tokenizers::normalizers::utils::Lowercase;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

use super::contents::{SPACE, Vocabulary, replace};
use super::error::{VocabularyError, malformed};
use super::tekken;
use crate::decoder::byte_of_char;
use crate::pre_tokenizers::{self, Spelling};

/// The tokenizer of a byte-level vocabulary, and whether its prompts begin with bos.
pub(super) fn build(
    vocabulary: &Vocabulary,
) -> Result<(tokenizers::Tokenizer, bool), VocabularyError> {
    // Some files name the rules as the kind.
    let kind = if vocabulary.kind == "gemma4" { "gemma4" } else { "default" };
    let name = vocabulary.pre.as_deref().unwrap_or(kind);
    let unknown = || VocabularyError::PreTokenizer(name.to_owned());
    let (patterns, spelling, ignore_merges, add_bos) = if let Some(pattern) = &vocabulary.split {
        (vec![pattern.clone()], Spelling::Characters, true, false)
    } else {
        let rules = pre_tokenizers::find(name).ok_or_else(unknown)?;
        let patterns = rules.patterns.iter().map(|pattern| (*pattern).to_owned());
        (patterns.collect(), rules.spelling, rules.ignore_merges, rules.add_bos)
    };
    // The one whose files need no merges: a token's place is its rank.
    let by_rank = name == "kimi-k2" && vocabulary.merges.is_empty();
    let ignore_merges = ignore_merges || by_rank || vocabulary.whole_words;
    let merges = if by_rank { tekken::merges(&words(vocabulary)) } else { Vec::new() };
    let merges = if by_rank { &merges } else { &vocabulary.merges };
    let merges: Result<Merges, VocabularyError> = merges.iter().map(|merge| pair(merge)).collect();
    let builder =
        BPE::builder().vocab_and_merges(vocabulary.vocab(), merges?).ignore_merges(ignore_merges);
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    if spelling == Spelling::Words {
        steps.push(split(r"\s+".to_owned(), SplitDelimiterBehavior::Removed)?);
    }
    for pattern in patterns {
        steps.push(split(pattern, SplitDelimiterBehavior::Isolated)?);
    }
    let tokenizer = match spelling {
        Spelling::Characters => {
            steps.push(ByteLevel::new(false, true, false).into());
            let mut tokenizer = tokenizers::Tokenizer::new(model(builder)?);
            tokenizer.with_decoder(Some(ByteLevel::default()));
            tokenizer
        }
        Spelling::Spaces => with_spaces(vocabulary, builder)?,
        Spelling::Words => without_spaces(vocabulary, builder)?,
    };
    let mut tokenizer = tokenizer;
    tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
    Ok((tokenizer, add_bos))
}

fn model(builder: BpeBuilder) -> Result<BPE, VocabularyError> {
    builder.build().map_err(|error| malformed(error.to_string()))
}

/// Spaces are `▁`, and characters without a token become tokens of bytes.
fn with_spaces(
    vocabulary: &Vocabulary,
    builder: BpeBuilder,
) -> Result<tokenizers::Tokenizer, VocabularyError> {
    let builder = unknown(vocabulary, builder.byte_fallback(true).fuse_unk(true));
    let mut tokenizer = tokenizers::Tokenizer::new(model(builder)?);
    let normalized = tokenizer.with_normalizer(Some(replace(" ", SPACE)?));
    normalized.map_err(|error| malformed(error.to_string()))?;
    let decoders =
        vec![replace(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok(tokenizer)
}

/// Words as they are or, if the file says so, in small letters.
fn without_spaces(
    vocabulary: &Vocabulary,
    builder: BpeBuilder,
) -> Result<tokenizers::Tokenizer, VocabularyError> {
    let mut tokenizer = tokenizers::Tokenizer::new(model(unknown(vocabulary, builder))?);
    if vocabulary.lowercase == Some(true) {
        let normalized = tokenizer.with_normalizer(Some(Lowercase));
        normalized.map_err(|error| malformed(error.to_string()))?;
    }
    Ok(tokenizer)
}

/// The model with the token of what no other covers.
fn unknown(vocabulary: &Vocabulary, builder: BpeBuilder) -> BpeBuilder {
    let text = vocabulary.unk_id.and_then(|id| vocabulary.tokens.get(id as usize));
    match text {
        Some(text) => builder.unk_token(text.clone()),
        None => builder,
    }
}

fn split(
    pattern: String,
    behavior: SplitDelimiterBehavior,
) -> Result<PreTokenizerWrapper, VocabularyError> {
    let split = Split::new(SplitPattern::Regex(pattern), behavior, false);
    Ok(split.map_err(|error| malformed(error.to_string()))?.into())
}

/// The bytes of the tokens that are words of a text, by rank.
fn words(vocabulary: &Vocabulary) -> Vec<Vec<u8>> {
    let kind = |id: usize| vocabulary.token_types.get(id).copied().unwrap_or(1);
    let words = vocabulary.tokens.iter().enumerate().filter(|(id, _)| kind(*id) == 1);
    words.filter_map(|(_, text)| text.chars().map(byte_of_char).collect()).collect()
}

/// The halves of a merge; the left one may begin with a space but not be empty.
fn pair(merge: &str) -> Result<(String, String), VocabularyError> {
    let first = merge.chars().next().map_or(0, char::len_utf8);
    let at = merge[first..].find(' ').map(|at| at + first);
    let at = at.ok_or_else(|| malformed(format!("the merge {merge:?} is no pair")))?;
    Ok((merge[..at].to_owned(), merge[at + 1..].to_owned()))
}

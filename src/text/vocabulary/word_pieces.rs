//! Word pieces: the longest piece at the beginning of what is left of a word.
//!
//! Devlin et al., "BERT", 2018. GGUF files spell pieces that begin a word with `▁` before them, and
//! the others as they are; elsewhere the others have `##` before them.

use std::collections::{HashMap, HashSet};

use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::contents::{SPACE, Vocabulary};
use super::error::{VocabularyError, malformed};

const CONTINUED: &str = "##";
/// Longer words are unknown.
const MAX_CHARACTERS: usize = 100;

/// The tokenizer. Its control tokens keep their texts.
pub(super) fn build(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, VocabularyError> {
    let kind = |id: usize| vocabulary.token_types.get(id).copied().unwrap_or(1);
    let special = [vocabulary.bos_id, vocabulary.sep_id, vocabulary.unk_id, vocabulary.pad_id];
    let special: HashSet<u32> = special.into_iter().flatten().collect();
    let mut pieces: HashMap<String, u32> = HashMap::with_capacity(vocabulary.tokens.len());
    for (id, text) in (0u32..).zip(&vocabulary.tokens) {
        let text = match text.strip_prefix(SPACE) {
            Some(beginning) => beginning.to_owned(),
            None if kind(id as usize) != 1 || special.contains(&id) => text.clone(),
            None => format!("{CONTINUED}{text}"),
        };
        pieces.entry(text).or_insert(id);
    }
    let unknown = vocabulary.unk_id.and_then(|id| vocabulary.tokens.get(id as usize));
    let unknown = unknown.cloned().unwrap_or_else(|| "[UNK]".to_owned());
    let model = WordPiece::builder()
        .vocab(pieces.into_iter().collect::<Vocab>())
        .unk_token(unknown)
        .continuing_subword_prefix(CONTINUED.to_owned())
        .max_input_chars_per_word(MAX_CHARACTERS)
        .build()
        .map_err(|error| malformed(error.to_string()))?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let lowercase = vocabulary.lowercase.unwrap_or(true);
    tokenizer
        .with_normalizer(Some(BertNormalizer::new(true, true, None, lowercase)))
        .map_err(|error| malformed(error.to_string()))?;
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_decoder(Some(WordPieceDecoder::new(CONTINUED.to_owned(), true)));
    Ok(tokenizer)
}

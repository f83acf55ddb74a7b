//! The vocabulary of a `tekken.json`, where a checkpoint has nothing else: byte-level BPE in which a
//! token's place is its rank, with special tokens before all others.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::contents::Vocabulary;
use super::error::{VocabularyError, malformed};
use crate::decoder::char_of_byte;

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Token>,
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct Token {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
}

/// The special tokens of files that don't list them.
const SPECIAL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// What the file says.
///
/// # Errors
/// When it is none, or its parts don't fit.
pub fn vocabulary(file: &[u8]) -> Result<Vocabulary, VocabularyError> {
    let File { config, vocab, special_tokens } =
        serde_json::from_slice(file).map_err(|error| malformed(format!("tekken.json: {error}")))?;
    let specials = config.default_num_special_tokens;
    let count = config.default_vocab_size.checked_sub(specials).ok_or_else(|| {
        malformed(format!(
            "tekken.json: {specials} special tokens of {}",
            config.default_vocab_size
        ))
    })?;
    if count > vocab.len() {
        return Err(malformed(format!("tekken.json: {} tokens, expected {count}", vocab.len())));
    }
    let mut words: Vec<Vec<u8>> = Vec::with_capacity(count);
    for (index, token) in vocab.into_iter().take(count).enumerate() {
        if token.rank != index {
            let message = format!("tekken.json: token {index} has the rank {}", token.rank);
            return Err(malformed(message));
        }
        let bytes = STANDARD.decode(&token.token_bytes);
        words.push(
            bytes.map_err(|error| malformed(format!("tekken.json: token {index}: {error}")))?,
        );
    }
    let mut tokens: Vec<String> = (0..specials).map(|rank| format!("<SPECIAL_{rank}>")).collect();
    let named = special_tokens.unwrap_or_else(|| {
        let names = SPECIAL.iter().enumerate();
        names.map(|(rank, name)| Special { rank, token_str: (*name).to_owned() }).collect()
    });
    for Special { rank, token_str } in named {
        let place = tokens
            .get_mut(rank)
            .ok_or_else(|| malformed(format!("tekken.json: special token {rank} of {specials}")))?;
        *place = token_str;
    }
    let merges = merges(&words);
    let id_of = |text: &str| {
        let place = tokens.iter().position(|token| token == text)?;
        u32::try_from(place).ok()
    };
    let (unk_id, bos_id, eos_id, pad_id) =
        (id_of("<unk>"), id_of("<s>"), id_of("</s>"), id_of("<pad>"));
    let token_types = [vec![3; specials], vec![1; count]].concat();
    tokens.extend(words.iter().map(|word| spelled(word)));
    Ok(Vocabulary {
        kind: "gpt2".to_owned(),
        split: Some(config.pattern),
        tokens,
        token_types,
        merges,
        unk_id,
        bos_id,
        eos_id,
        pad_id,
        add_bos: Some(true),
        ..Vocabulary::default()
    })
}

/// A token as byte-level vocabularies spell it.
pub(super) fn spelled(word: &[u8]) -> String {
    word.iter().map(|byte| char_of_byte(*byte)).collect()
}

/// Every way to make a token of two others, those of the first token first; of one token's those
/// with the earliest parts.
pub(super) fn merges(words: &[Vec<u8>]) -> Vec<String> {
    let ranks: HashMap<&[u8], usize> =
        words.iter().enumerate().map(|(rank, word)| (word.as_slice(), rank)).collect();
    let mut merges = Vec::new();
    for word in words {
        let splits = (1..word.len()).map(|at| word.split_at(at));
        let mut ranked: Vec<(usize, usize, &[u8], &[u8])> = splits
            .filter_map(|(left, right)| Some((*ranks.get(left)?, *ranks.get(right)?, left, right)))
            .collect();
        ranked.sort_unstable();
        merges.extend(
            ranked
                .into_iter()
                .map(|(_, _, left, right)| format!("{} {}", spelled(left), spelled(right))),
        );
    }
    merges
}

//! Learns the tokenizer from the corpus and writes it as Hugging Face's `tokenizer.json`.
//! Refuses to know the model. Byte pair encoding: Sennrich et al. 2016.
//!
//! Merges are learned on words without the space before them, so that a rare word falls into the same
//! pieces behind a space and behind a quote, and copying one is a matter of repeating tokens. Only the
//! commonest whole words have a token with the space; no merge makes it (`ignore_merges` looks whole
//! words up first), or it would eat the start of longer words.

use crate::corpus;
use crate::corpus::dice::Dice;
use crate::corpus::lexicon::{self, Lexicon};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Tokens in all.
pub(crate) const VOCABULARY: usize = 2048;
/// Common words that have a token with the space before them.
const SPACED_WORDS: usize = 420;
/// Conversations that the merges are best learned from.
pub(crate) const SAMPLE: usize = 8_000;
/// How texts are cut before merging; digits stand alone.
const CUT: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Tokens that are never made by merging.
pub(crate) const SPECIAL: &[&str] = &[
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
];

type Counts = BTreeMap<String, usize>;

/// `tokenizer.json` for `sample` conversations of the corpus that `seed` names.
pub(crate) fn learn(seed: u64, sample: usize) -> Value {
    let (words, spaced) = count_words(seed, sample);
    let alphabet = byte_alphabet();
    let mut tokens: Vec<String> = SPECIAL.iter().map(|&t| t.to_owned()).collect();
    let mut letters: Vec<char> = alphabet.to_vec();
    letters.sort_unstable();
    tokens.extend(letters.iter().map(char::to_string));

    let room = VOCABULARY - tokens.len() - SPACED_WORDS;
    let merges = learn_merges(&words, room);
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));

    let whole: std::collections::HashSet<&String> = tokens.iter().collect();
    let mut common: Vec<(&String, &usize)> =
        spaced.iter().filter(|(word, _)| whole.contains(word) && !is_digit(word)).collect();
    common.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let space = alphabet[usize::from(b' ')].to_string();
    let common: Vec<String> =
        common.into_iter().take(SPACED_WORDS).map(|(word, _)| word.clone()).collect();
    for word in common {
        tokens.push(format!("{space}{word}"));
    }
    to_json(&tokens, &merges)
}

/// Digits stay the same tokens with and without a space before them.
fn is_digit(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// How often each stretch without its space occurs, and how often with one.
fn count_words(seed: u64, sample: usize) -> (Counts, Counts) {
    let mut dice = Dice::new(seed);
    let (mut words, mut spaced) = (Counts::new(), Counts::new());
    let mut add = |text: &str, weight: usize| {
        for (word, behind_space) in cut(text) {
            let word = in_alphabet(word);
            *words.entry(word.clone()).or_default() += weight;
            if behind_space {
                *spaced.entry(word).or_default() += weight;
            }
        }
    };
    for _ in 0..sample {
        for stretch in corpus::draw(&mut dice, Lexicon::Known).stretches() {
            let text = SPECIAL.iter().fold(stretch.text, |text, token| text.replace(token, "\n"));
            add(&text, 1);
        }
    }
    // Real words count more often than the mixture shows them, so that many become one or two tokens.
    for word in lexicon::known() {
        add(word, 20);
    }
    (words, spaced)
}

/// The stretches that the runtime's cut gives, each without the space before it, for ASCII text.
fn cut(text: &str) -> Vec<(&str, bool)> {
    let class = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' => 0,
        b'0'..=b'9' => 1,
        b' ' | b'\n' => 2,
        _ => 3,
    };
    let bytes = text.as_bytes();
    let mut stretches = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let kind = class(bytes[start]);
        let mut end = start + 1;
        while kind != 1 && end < bytes.len() && class(bytes[end]) == kind {
            end += 1;
        }
        if kind != 2 {
            stretches.push((&text[start..end], start > 0 && bytes[start - 1] == b' '));
        }
        start = end;
    }
    stretches
}

/// The commonest pair becomes one, again and again; equal counts go by the alphabet.
fn learn_merges(words: &Counts, room: usize) -> Vec<(String, String)> {
    let mut words: Vec<(Vec<String>, usize)> = words
        .iter()
        .map(|(word, &count)| (word.chars().map(String::from).collect(), count))
        .collect();
    let mut merges = Vec::new();
    while merges.len() < room {
        let mut pairs: HashMap<(&str, &str), usize> = HashMap::new();
        for (pieces, count) in &words {
            for pair in pieces.windows(2) {
                *pairs.entry((&pair[0], &pair[1])).or_default() += count;
            }
        }
        let best = pairs
            .into_iter()
            .max_by(|(a, count_a), (b, count_b)| count_a.cmp(count_b).then(b.cmp(a)));
        let Some(((left, right), _)) = best else { break };
        let (left, right) = (left.to_owned(), right.to_owned());
        for (pieces, _) in &mut words {
            merge(pieces, &left, &right);
        }
        merges.push((left, right));
    }
    merges
}

fn merge(pieces: &mut Vec<String>, left: &str, right: &str) {
    let mut index = 0;
    while index + 1 < pieces.len() {
        if pieces[index] == left && pieces[index + 1] == right {
            let tail = pieces.remove(index + 1);
            pieces[index].push_str(&tail);
        }
        index += 1;
    }
}

/// The character that stands for each byte: itself where it prints, else one from 256 on.
fn byte_alphabet() -> [char; 256] {
    let mut next = 256;
    std::array::from_fn(|byte| {
        let prints = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if prints { byte as u32 } else { next };
        next += u32::from(!prints);
        char::from_u32(code).expect("all codes are below the surrogates")
    })
}

fn in_alphabet(text: &str) -> String {
    let alphabet = byte_alphabet();
    text.bytes().map(|byte| alphabet[usize::from(byte)]).collect()
}

fn to_json(tokens: &[String], merges: &[(String, String)]) -> Value {
    let ids: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), Value::from(id))).collect();
    let added: Vec<Value> = SPECIAL
        .iter()
        .enumerate()
        .map(|(id, token)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": token.starts_with("<|")})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": false});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": CUT}, "behavior": "Isolated", "invert": false},
            byte_level,
        ]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": true, "vocab": ids, "merges": merges},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::feed;
    use tokenizers::Tokenizer;

    fn tokenizer() -> Tokenizer {
        let json = learn(1, 400).to_string();
        Tokenizer::from_bytes(json).expect("what is learned loads")
    }

    fn pieces(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
        let encoding = tokenizer.encode_fast(text, false).expect("text tokenizes");
        encoding.get_ids().iter().map(|&id| tokenizer.id_to_token(id).expect("a token")).collect()
    }

    #[test]
    fn unseen_words_fall_into_the_same_pieces_behind_a_space_and_behind_a_quote() {
        let tokenizer = tokenizer();
        for word in lexicon::held_out() {
            let mut spaced = pieces(&tokenizer, &format!("a {word}"));
            let mut quoted = pieces(&tokenizer, &format!("\"{word}\""));
            spaced.drain(..2);
            quoted.remove(0);
            quoted.pop();
            assert_eq!(spaced, quoted, "{word}");
        }
    }

    #[test]
    fn special_tokens_come_first_and_digits_stand_alone() {
        let tokenizer = tokenizer();
        for (id, token) in SPECIAL.iter().enumerate() {
            assert_eq!(tokenizer.token_to_id(token), Some(id as u32));
        }
        assert_eq!(tokenizer.get_vocab_size(true), VOCABULARY);
        let space = in_alphabet(" ");
        assert_eq!(pieces(&tokenizer, " 15=3"), [space.as_str(), "1", "5", "=", "3"]);
    }

    #[test]
    fn stretches_tokenize_as_the_whole_does_and_decode_to_it() {
        let tokenizer = tokenizer();
        let mut dice = Dice::new(13);
        for _ in 0..200 {
            let dialogue = corpus::draw(&mut dice, Lexicon::Known);
            let whole: String = dialogue.stretches().into_iter().map(|s| s.text).collect();
            let (tokens, _) = feed::tokenize(&tokenizer, &dialogue).expect("it tokenizes");
            let encoding = tokenizer.encode_fast(whole.as_str(), false).expect("it tokenizes");
            assert_eq!(tokens, encoding.get_ids());
            assert_eq!(tokenizer.decode(&tokens, false).expect("it decodes"), whole);
        }
    }
}

//! Ten thousand odd texts, each tokenizer's ids of which are those of the library that owns its
//! format. `tests/fixtures/make_tokenizers.py` has the same generator.

use super::{Vocabulary, sentencepiece, tekken, tiktoken};
use crate::tokenizer::Tokenizer;
use crate::tokenizer_config::TokenizerConfig;

const COUNT: usize = 10_000;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/", $name))
    };
}

/// Reproducible texts of pieces that tokenizers trip over.
fn odd_texts() -> impl Iterator<Item = String> {
    let pieces: Vec<String> = serde_json::from_slice(fixture!("odd_texts.json")).unwrap();
    let mut state = 20_261_122u64;
    let mut draw = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    (0..COUNT).map(move |_| {
        let mut text = String::new();
        for _ in 0..=draw() % 12 {
            let drawn = draw();
            let piece = &pieces[(drawn >> 3) % pieces.len()];
            match drawn % 8 {
                0 => {
                    let code = u32::try_from((drawn >> 3) % 0x0010_f800).unwrap();
                    let code = if code < 0xd800 { code } else { code + 0x800 };
                    text.push(char::from_u32(code).unwrap());
                }
                1 => text.push_str(&piece.repeat(1 + (drawn >> 16) % 40)),
                _ => text.push_str(piece),
            }
        }
        text
    })
}

/// The lowest bits of the FNV-1a hash of ids.
fn hash(ids: &[u32]) -> [u8; 2] {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let bytes = hash.to_le_bytes();
    [bytes[0], bytes[1]]
}

/// Encodes all texts as plain text.
fn check(tokenizer: &Tokenizer, expected: &[u8]) {
    assert_eq!(expected.len(), 2 * COUNT);
    let mut wrong = Vec::new();
    for (text, expected) in odd_texts().zip(expected.chunks_exact(2)) {
        let ids = tokenizer.encode_plain(&text).unwrap();
        if hash(&ids) != expected {
            wrong.push((text, ids));
        }
    }
    wrong.sort_by_key(|(text, _)| text.len());
    let shortest = &wrong[..wrong.len().min(5)];
    assert!(wrong.is_empty(), "{} of {COUNT} differ, as {shortest:?}", wrong.len());
}

fn of(vocabulary: &Vocabulary) -> Tokenizer {
    vocabulary.tokenizer().unwrap()
}

#[test]
fn sentencepiece_bpe_equals_sentencepiece() {
    let vocabulary = sentencepiece::vocabulary(fixture!("tokenizers/tokenizer.model")).unwrap();
    check(&of(&vocabulary), fixture!("tokenizers/sentencepiece.odd"));
}

#[test]
fn sentencepiece_unigram_equals_sentencepiece() {
    let vocabulary = sentencepiece::vocabulary(fixture!("tokenizers/unigram.model")).unwrap();
    assert_eq!(vocabulary.remove_extra_whitespaces, Some(true));
    assert!(!vocabulary.precompiled_charsmap.is_empty());
    check(&of(&vocabulary), fixture!("tokenizers/unigram.odd"));
    let plain = sentencepiece::vocabulary(fixture!("tokenizers/unigram_plain.model")).unwrap();
    check(&of(&plain), fixture!("tokenizers/unigram_plain.odd"));
}

#[test]
fn tekken_equals_tiktoken() {
    let vocabulary = tekken::vocabulary(fixture!("tokenizers/tekken.json")).unwrap();
    check(&of(&vocabulary), fixture!("tokenizers/tekken.odd"));
}

#[test]
fn tiktoken_files_equal_tiktoken() {
    let file = fixture!("tokenizers/small.tiktoken");
    for (class, expected) in [
        ("QWenTokenizer", fixture!("tokenizers/tiktoken_qwen.odd")),
        ("Llama3Tokenizer", fixture!("tokenizers/tiktoken_llama3.odd")),
    ] {
        check(&of(&tiktoken::vocabulary(file, Some(class)).unwrap()), expected);
    }
}

#[test]
fn tokenizer_json_equals_tokenizers() {
    let file: serde_json::Value =
        serde_json::from_slice(fixture!("tokenizers/byte_level.json")).unwrap();
    for (pre, normalizer, expected) in [
        ("gpt-2", serde_json::Value::Null, fixture!("tokenizers/json_gpt2.odd")),
        ("llama3", serde_json::Value::Null, fixture!("tokenizers/json_llama3.odd")),
        ("qwen2", serde_json::json!({"type": "NFC"}), fixture!("tokenizers/json_qwen.odd")),
    ] {
        let pattern = crate::pre_tokenizers::find(pre).unwrap().patterns[0];
        let mut json = file.clone();
        json["normalizer"] = normalizer;
        json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
             "use_regex": false},
        ]});
        let json = serde_json::to_vec(&json).unwrap();
        check(&Tokenizer::from_json(&json, &TokenizerConfig::default()).unwrap(), expected);
    }
}

/// The vocabulary as conversion to GGUF spells it.
#[test]
fn word_pieces_equal_tokenizers() {
    let pieces = std::str::from_utf8(fixture!("tokenizers/word_pieces.txt")).unwrap();
    let is_special = |piece: &str| piece.starts_with('[') && piece.len() > 1;
    let spelled = |piece: &str| match piece.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None if is_special(piece) => piece.to_owned(),
        None => format!("▁{piece}"),
    };
    let kind = |piece| if is_special(piece) { 3 } else { 1 };
    let vocabulary = Vocabulary {
        kind: "bert".to_owned(),
        tokens: pieces.lines().map(spelled).collect(),
        token_types: pieces.lines().map(kind).collect(),
        unk_id: Some(1),
        bos_id: Some(2),
        eos_id: Some(3),
        sep_id: Some(3),
        ..Vocabulary::default()
    };
    let tokenizer = of(&vocabulary);
    check(&tokenizer, fixture!("tokenizers/word_pieces.odd"));
    let ids = tokenizer.encode("fox", true).unwrap();
    assert_eq!((ids.first(), ids.last()), (Some(&2), Some(&3)));
    assert_eq!(tokenizer.decode(&ids, true), "fox");
}

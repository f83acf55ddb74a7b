//! Pieces joined against the whole list decoded at once by the `tokenizers` crate.

use super::*;
use crate::decoder::char_of_byte;
use crate::tokenizer_config::TokenizerConfig;
use proptest::prelude::*;
use serde_json::{Value, json};

const TOKENS: [&str; 12] = [
    "▁", "▁the", "the", "<0xE4>", "<0xBD>", "<0xA0>", "<0x41>", "##ing", "end</w>", "ő", " ", "▁▁",
];

/// A tokenizer with `decoder`; ids from 256 on are [`TOKENS`], the last two are added.
fn tokenizer(decoder: &Value) -> (tokenizers::Tokenizer, Arc<Tokenizer>) {
    let bytes = (0..=255u8).map(|byte| char_of_byte(byte).to_string());
    let mut vocab = serde_json::Map::new();
    for (id, token) in bytes.chain(TOKENS.map(str::to_owned)).enumerate() {
        vocab.entry(token).or_insert(json!(id));
    }
    let added = |id: usize, content: &str, special: bool| {
        json!({"id": id, "content": content, "special": special, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": decoder,
        "added_tokens": [added(268, "<|end|>", true), added(269, "<tool>", false)],
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
            "byte_fallback": false, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "vocab": vocab, "merges": []}
    });
    let inner = tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap();
    let tokenizer = Tokenizer::new(inner.clone(), &TokenizerConfig::default()).unwrap();
    (inner, Arc::new(tokenizer))
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
}

fn replace() -> Value {
    json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})
}

fn llama() -> Value {
    json!({"type": "Sequence", "decoders": [replace(), {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
}

fn decoders() -> Vec<Value> {
    let metaspace = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    vec![
        Value::Null,
        byte_level(),
        llama(),
        json!({"type": "Sequence", "decoders": [replace(), {"type": "ByteFallback"}, {"type": "Fuse"}]}),
        metaspace("always"),
        metaspace("never"),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!({"type": "BPEDecoder", "suffix": "</w>"}),
        json!({"type": "CTC", "pad_token": "ő", "word_delimiter_token": "▁", "cleanup": true}),
        json!({"type": "Sequence", "decoders": [byte_level(), replace()]}),
        json!({"type": "Sequence", "decoders": [replace(), {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 2, "stop": 0}, {"type": "Fuse"}]}),
    ]
}

#[test]
fn characters_come_whole_and_as_soon_as_they_are() {
    let (_, tokenizer) = tokenizer(&byte_level());
    let mut stream = Detokenizer::new(tokenizer, true);
    let pieces: Vec<String> = "aé你".bytes().map(|byte| stream.push(u32::from(byte))).collect();
    assert_eq!(pieces, ["a", "", "é", "", "", "你"]);
    assert_eq!(stream.push(0xe4), "");
    assert_eq!(stream.push(268), "");
    assert_eq!(stream.push(u32::from(b'x')), "\u{fffd}x");
    assert_eq!(stream.push(0xe4) + &stream.push(0xbd), "");
    assert_eq!(stream.finish(), "\u{fffd}");
}

#[test]
fn leading_space_goes_and_runs_of_bytes_are_one_text() {
    let (_, tokenizer) = tokenizer(&llama());
    let mut stream = Detokenizer::new(Arc::clone(&tokenizer), true);
    assert_eq!(stream.push_all(&[257, 257]), "the the");
    assert_eq!(stream.push_all(&[259, 260, 261]), "");
    assert_eq!(stream.push(258), "你the");
    assert_eq!(stream.push_all(&[259, 258]), "\u{fffd}the");
    assert_eq!(stream.push(259) + &stream.finish(), "\u{fffd}");
    assert_eq!(tokenizer.token_bytes(257), b" the");
    assert_eq!(tokenizer.token_text(259), "\u{fffd}");
}

#[test]
fn special_tokens_and_unknown_ids() {
    let (_, tokenizer) = tokenizer(&byte_level());
    let ids = [268, 97, 269, 99_999];
    assert_eq!(tokenizer.decode(&ids, true), "a<tool>");
    assert_eq!(tokenizer.decode(&ids, false), "<|end|>a<tool>");
    assert_eq!(tokenizer.decode(&[], false), "");
    assert_eq!(tokenizer.vocab_size(), 270);
    assert_eq!(tokenizer.special_ids(), [268]);
    assert_eq!(tokenizer.token_bytes(99_999), b"");
}

proptest! {
    #[test]
    fn pieces_joined_are_the_whole(
        which in 0..11usize,
        ids in prop::collection::vec(prop_oneof![3 => 256..270u32, 2 => 0..256u32], 1..24),
        skip: bool,
    ) {
        let (inner, tokenizer) = tokenizer(&decoders()[which]);
        // The crate panics where nothing is left to decode.
        prop_assume!(ids.iter().any(|&id| id != 268));
        let whole = inner.decode(&ids, skip).unwrap();
        let mut stream = Detokenizer::new(Arc::clone(&tokenizer), skip);
        let mut joined: String = ids.iter().map(|&id| stream.push(id)).collect();
        joined.push_str(&stream.finish());
        prop_assert_eq!(&joined, &whole);
        prop_assert_eq!(tokenizer.decode(&ids, skip), whole);
    }
}

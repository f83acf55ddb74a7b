//! Vocabularies against tokenizers that were not made from them.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::*;
use crate::decoder::char_of_byte;
use crate::pre_tokenizers;
use proptest::prelude::*;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, TokenizerImpl};

const CORPUS: &str = "The quick brown fox jumps over the lazy dog. It's 12345 o'clock; isn't that \
    odd?\n\n\tdef main(x):\n        return x + 1  # ünïcödé 你好 世界 🌍\nWE'LL see: they'll say 99.9%. \
    The other brown dog returns; the lazy fox sees another dog, over and over again.";

/// A trained byte-level tokenizer with the pre-tokenizer of Llama 3.
fn trained() -> &'static tokenizers::Tokenizer {
    static TRAINED: OnceLock<tokenizers::Tokenizer> = OnceLock::new();
    TRAINED.get_or_init(|| {
        let alphabet: HashSet<char> = (0..=255).map(char_of_byte).collect();
        let mut trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(420)
            .initial_alphabet(alphabet)
            .special_tokens(vec![
                AddedToken::from("<|begin|>", true),
                AddedToken::from("<|end|>", true),
            ])
            .build();
        let pattern =
            SplitPattern::Regex(pre_tokenizers::find("llama-bpe").unwrap().patterns[0].into());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap();
        let steps: Vec<PreTokenizerWrapper> =
            vec![split.into(), ByteLevel::new(false, true, false).into()];
        let mut tokenizer: TokenizerImpl<
            BPE,
            NormalizerWrapper,
            PreTokenizers,
            ByteLevel,
            ByteLevel,
        > = TokenizerImpl::new(BPE::default());
        tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        tokenizer.train(&mut trainer, [CORPUS].iter()).unwrap();
        let added = AddedToken::from("<tool>", false).normalized(false);
        tokenizer.add_tokens([added]).unwrap();
        let json = tokenizer.to_string(false).unwrap();
        tokenizers::Tokenizer::from_bytes(json).unwrap()
    })
}

/// The trained tokenizer as a GGUF file would hold it.
fn exported() -> Vocabulary {
    let tokenizer = trained();
    let json: serde_json::Value =
        serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap();
    let merges = json["model"]["merges"].as_array().unwrap();
    let merge = |merge: &serde_json::Value| match merge.as_array() {
        Some(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        None => merge.as_str().unwrap().to_owned(),
    };
    let count = u32::try_from(tokenizer.get_vocab_size(true)).unwrap();
    let tokens: Vec<String> = (0..count).map(|id| tokenizer.id_to_token(id).unwrap()).collect();
    let kind = |text: &String| match text.as_str() {
        "<|begin|>" | "<|end|>" => 3,
        "<tool>" => 4,
        _ => 1,
    };
    Vocabulary {
        kind: "gpt2".to_owned(),
        pre: Some("llama-bpe".to_owned()),
        token_types: tokens.iter().map(kind).collect(),
        bos_id: tokenizer.token_to_id("<|begin|>"),
        eos_id: tokenizer.token_to_id("<|end|>"),
        merges: merges.iter().map(merge).collect(),
        tokens,
        ..Vocabulary::default()
    }
}

/// `ignore_merges` is part of the name's rules; the trained tokenizer gets it for the comparison.
fn expected(text: &str) -> Vec<u32> {
    trained().encode(text, false).unwrap().get_ids().to_vec()
}

#[test]
fn byte_level_ids_equal_those_of_the_original() {
    let tokenizer = exported().tokenizer().unwrap();
    for text in [
        "",
        " ",
        "The dog",
        "it's 1234567",
        "\n\n  x",
        "你好🌍é",
        "<|end|>a<tool> b",
        "\u{0}\u{7f}",
    ] {
        assert_eq!(tokenizer.encode(text, false).unwrap(), expected(text), "{text:?}");
    }
    assert!(tokenizer.is_special(tokenizer.token_id("<|end|>").unwrap()));
    assert!(!tokenizer.is_special(tokenizer.token_id("<tool>").unwrap()));
    assert_eq!(tokenizer.special_tokens().eos(), Some("<|end|>"));
}

#[test]
fn bos_is_added_as_the_pre_tokenizer_or_the_file_says() {
    let mut vocabulary = exported();
    let bos = vocabulary.bos_id.unwrap();
    let first =
        |vocabulary: &Vocabulary| vocabulary.tokenizer().unwrap().encode("a", true).unwrap()[0];
    assert_eq!(first(&vocabulary), bos);
    vocabulary.add_bos = Some(false);
    assert_ne!(first(&vocabulary), bos);
    vocabulary.add_eos = Some(true);
    let tokenizer = vocabulary.tokenizer().unwrap();
    assert_eq!(tokenizer.encode("a", true).unwrap().last(), vocabulary.eos_id.as_ref());
    assert_eq!(tokenizer.encode("a", false).unwrap(), expected("a"));
}

#[test]
fn special_tokens_in_plain_text_are_spelled_out() {
    let tokenizer = exported().tokenizer().unwrap();
    let ids = tokenizer.encode_plain("a<|end|>").unwrap();
    assert!(ids.iter().all(|&id| !tokenizer.is_special(id)));
    assert_eq!(tokenizer.decode(&ids, true), "a<|end|>");
    assert_eq!(tokenizer.decode(&tokenizer.encode("a<|end|>", false).unwrap(), true), "a");
}

/// As `Whitespace` of the tokenizers library cuts text, which the model was trained with.
#[test]
fn words_between_spaces_are_merged_as_text() {
    let tokens = ["[UNK]", "a", "b", "ab", ",", "好"].map(str::to_owned).to_vec();
    let mut vocabulary = Vocabulary {
        kind: "gpt2".to_owned(),
        pre: Some("whitespace".to_owned()),
        token_types: vec![2, 1, 1, 1, 1, 1],
        unk_id: Some(0),
        merges: vec!["a b".to_owned()],
        tokens,
        ..Vocabulary::default()
    };
    let ids = |vocabulary: &Vocabulary, text| {
        vocabulary.tokenizer().unwrap().encode(text, false).unwrap()
    };
    assert_eq!(ids(&vocabulary, "ab, a\n b好 a b"), [3, 4, 1, 2, 5, 1, 2]);
    assert_eq!(ids(&vocabulary, "B"), [0]);
    vocabulary.lowercase = Some(true);
    assert_eq!(ids(&vocabulary, "AB a"), [3, 1]);
}

/// A SentencePiece vocabulary: bytes, letters, and words by falling score.
fn sentence_piece() -> Vocabulary {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut token_types = vec![2, 3, 3];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    token_types.resize(tokens.len(), 6);
    let words = [
        "▁t",
        "he",
        "▁the",
        "▁▁",
        "in",
        "▁a",
        "er",
        "the",
        "▁▁▁▁",
        "ing",
        "re",
        "▁ther",
        "there",
        "ab",
        "aba",
        "abab",
        "ba",
        "▁b",
        "aa",
        "▁aa",
        "aaa",
    ];
    let letters = ["▁", "t", "h", "e", "i", "n", "g", "a", "b", "r", "é"];
    tokens.extend(words.into_iter().chain(letters).map(str::to_owned));
    token_types.resize(tokens.len(), 1);
    let scores = (0u16..).zip(&tokens).map(|(at, _)| -f32::from(at)).collect();
    Vocabulary {
        kind: "llama".to_owned(),
        bos_id: Some(1),
        eos_id: Some(2),
        unk_id: Some(0),
        tokens,
        scores,
        token_types,
        ..Vocabulary::default()
    }
}

/// SentencePiece by its definition: of all neighbours that form a token, join the best.
fn by_definition(vocabulary: &Vocabulary, text: &str) -> Vec<u32> {
    let ids = vocabulary.ids();
    let mut pieces: Vec<String> = match text {
        "" => Vec::new(),
        _ => format!("▁{}", text.replace(' ', "▁")).chars().map(String::from).collect(),
    };
    loop {
        let joined = |at: usize| pieces[at].clone() + &pieces[at + 1];
        let score = |id: u32| vocabulary.scores[id as usize];
        let candidates = (0..pieces.len().saturating_sub(1))
            .filter_map(|at| ids.get(joined(at).as_str()).map(|&id| (at, score(id))));
        let best = candidates.min_by(|a, b| {
            let left = |at: usize| pieces[at].chars().count();
            b.1.total_cmp(&a.1).then(left(b.0).cmp(&left(a.0))).then(a.0.cmp(&b.0))
        });
        let Some((at, _)) = best else { break };
        let right = pieces.remove(at + 1);
        pieces[at].push_str(&right);
    }
    let spell = |piece: String| match ids.get(piece.as_str()) {
        Some(&id) => vec![id],
        None => piece.bytes().map(|byte| ids[format!("<0x{byte:02X}>").as_str()]).collect(),
    };
    pieces.into_iter().flat_map(spell).collect()
}

#[test]
fn sentence_piece_text_comes_back() {
    let tokenizer = sentence_piece().tokenizer().unwrap();
    for text in ["there in the", "  a  b", "日本é", "a\nb", ""] {
        let ids = tokenizer.encode(text, true).unwrap();
        assert_eq!(ids[0], 1, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, true), text, "{text:?}");
    }
    assert_eq!(tokenizer.token_bytes(tokenizer.token_id("▁the").unwrap()), b" the");
    assert_eq!(tokenizer.token_bytes(tokenizer.token_id("<0xE6>").unwrap()), [0xe6]);
}

#[test]
fn without_a_space_prefix_text_starts_as_it_is() {
    let vocabulary = Vocabulary { add_space_prefix: Some(false), ..sentence_piece() };
    let tokenizer = vocabulary.tokenizer().unwrap();
    let ids = tokenizer.encode("the", false).unwrap();
    assert_eq!(ids, [tokenizer.token_id("the").unwrap()]);
    assert_eq!(tokenizer.decode(&tokenizer.encode(" the", false).unwrap(), false), " the");
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |vocabulary: Vocabulary| vocabulary.tokenizer().unwrap_err().to_string();
    let vocabulary = exported();
    let unknown = Vocabulary { pre: Some("novel".to_owned()), ..vocabulary.clone() };
    assert!(refused(unknown).contains("\"novel\" is not known"));
    let kind = Vocabulary { kind: "rwkv".to_owned(), ..vocabulary.clone() };
    assert!(refused(kind).contains("\"rwkv\" are not supported"));
    let merges = Vocabulary { merges: vec!["ab".to_owned()], ..vocabulary.clone() };
    assert!(refused(merges).contains("is no pair"));
    let merges = Vocabulary { merges: vec!["zzz qqq".to_owned()], ..vocabulary.clone() };
    assert!(refused(merges).contains("malformed"));
    let special = Vocabulary { eos_id: Some(99_999), ..vocabulary };
    assert!(refused(special).contains("id 99999"));
    let scores = Vocabulary { scores: vec![0.0], ..sentence_piece() };
    assert!(refused(scores).contains("1 scores"));
    assert!(refused(Vocabulary::default()).contains("no tokens"));
}

proptest! {
    #[test]
    fn byte_level_ids_equal_those_of_the_original_on_any_text(text in "\\PC{0,24}|[ a-zA-Z0-9'\n]{0,40}") {
        static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
        let tokenizer = TOKENIZER.get_or_init(|| exported().tokenizer().unwrap());
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert_eq!(&ids, &expected(&text));
        prop_assert_eq!(tokenizer.decode(&ids, false), text);
    }

    #[test]
    fn sentence_piece_ids_are_those_of_the_definition(text in "[abther ing日]{0,24}") {
        let vocabulary = sentence_piece();
        let tokenizer = vocabulary.tokenizer().unwrap();
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert_eq!(ids, by_definition(&vocabulary, &text));
    }
}

/// What the libraries that own a format make of a text.
#[derive(serde::Deserialize)]
struct Recorded {
    text: String,
    ids: Vec<u32>,
}

fn recorded(format: &str) -> Vec<Recorded> {
    let file = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/tokenizers/ids.json"
    ));
    let mut formats: std::collections::HashMap<String, Vec<Recorded>> =
        serde_json::from_str(file).unwrap();
    formats.remove(format).unwrap()
}

const SENTENCEPIECE: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/tokenizers/tokenizer.model"
));
const TEKKEN: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/tokenizers/tekken.json"
));

#[test]
fn a_sentencepiece_model_gives_the_ids_that_sentencepiece_gives() {
    let vocabulary = sentencepiece::vocabulary(SENTENCEPIECE).unwrap();
    assert_eq!((vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id), (Some(1), Some(2), None));
    let tokenizer = vocabulary.tokenizer().unwrap();
    for Recorded { text, ids } in recorded("sentencepiece") {
        assert_eq!(tokenizer.encode_plain(&text).unwrap(), ids, "{text:?}");
        let with_bos = tokenizer.encode("fox", true).unwrap();
        assert_eq!(with_bos[0], 1);
        assert_eq!(tokenizer.decode(&ids, false), text, "{text:?}");
    }
}

#[test]
fn a_tekken_file_gives_the_ids_that_mistral_gives() {
    let vocabulary = tekken::vocabulary(TEKKEN).unwrap();
    assert_eq!(
        (vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id),
        (Some(1), Some(2), Some(11))
    );
    let tokenizer = vocabulary.tokenizer().unwrap();
    for Recorded { text, ids } in recorded("tekken") {
        assert_eq!(tokenizer.encode_plain(&text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false), text, "{text:?}");
    }
    assert_eq!(tokenizer.encode("[INST]", false).unwrap(), [3]);
}

#[test]
fn tiktoken_files_are_of_known_families() {
    let file = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/tokenizers/small.tiktoken"
    ));
    assert!(tiktoken::is_one(file) && !tiktoken::is_one(SENTENCEPIECE));
    let error = tiktoken::vocabulary(file, Some("OtherTokenizer")).unwrap_err().to_string();
    assert!(error.contains("OtherTokenizer") && error.contains("128000"), "{error}");
    let vocabulary = tiktoken::vocabulary(file, Some("Llama3Tokenizer")).unwrap();
    let tokenizer = vocabulary.tokenizer().unwrap();
    let bos = tokenizer.token_id("<|begin_of_text|>");
    assert_eq!(tokenizer.bos_id(), bos);
    assert_eq!(tokenizer.encode("a", true).unwrap().first().copied(), bos);
    // As the published files have them.
    let place = |text: &str| vocabulary.tokens.iter().position(|token| token == text).unwrap();
    assert_eq!(place("<|eot_id|>") - place("<|begin_of_text|>"), 9);
    assert_eq!(vocabulary.tokens.len() - place("<|begin_of_text|>"), 256);
    for (file, complaint) in [
        (&b"IQ== 0\nIg== 2\n"[..], "line 2 of a tiktoken file has the rank 2, expected 1"),
        (b"IQ== 0\nnothing\n", "line 2 of a tiktoken file is no token"),
        (b"\xff", "no text"),
    ] {
        let error = tiktoken::vocabulary(file, Some("QWenTokenizer")).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn kimi_vocabularies_need_no_merges() {
    let mut vocabulary = exported();
    vocabulary.pre = Some("kimi-k2".to_owned());
    vocabulary.merges.clear();
    let tokenizer = vocabulary.tokenizer().unwrap();
    let ids = tokenizer.encode(" other", false).unwrap();
    assert!(ids.len() < 6, "{ids:?} are single bytes");
    assert_eq!(tokenizer.decode(&ids, false), " other");
}

/// Gemma 4's way: merges of text, with `▁` for a space and bytes for what has no token.
#[test]
fn merges_of_text_fall_back_to_bytes() {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let words = ["<unk>", "▁", "a", "b", "ab", "▁ab", "\n"].map(str::to_owned);
    let vocabulary = Vocabulary {
        kind: "gpt2".to_owned(),
        pre: Some("gemma4".to_owned()),
        tokens: words.into_iter().chain(bytes).collect(),
        merges: vec!["a b".to_owned(), "▁ ab".to_owned()],
        unk_id: Some(0),
        ..Vocabulary::default()
    };
    let tokenizer = vocabulary.tokenizer().unwrap();
    let ids = tokenizer.encode("ab ab\nb é", false).unwrap();
    assert_eq!(ids, [4, 5, 6, 3, 1, 7 + 0xc3, 7 + 0xa9]);
    assert_eq!(tokenizer.decode(&ids, false), "ab ab\nb é");
}

#[test]
fn unknown_pre_tokenizers_are_refused_with_the_known_ones() {
    let vocabulary = Vocabulary { pre: Some("new".to_owned()), ..exported() };
    let error = vocabulary.tokenizer().unwrap_err().to_string();
    assert!(error.contains("\"new\"") && error.contains("kimi-k2, kormo"), "{error}");
}

#[test]
fn added_tokens_take_ids_behind_the_vocabulary_or_of_others() {
    let mut vocabulary = sentencepiece::vocabulary(SENTENCEPIECE).unwrap();
    let count = vocabulary.tokens.len();
    vocabulary.add(count, "<|im_end|>", true).unwrap();
    vocabulary.add(300, "<|im_start|>", true).unwrap();
    let tokenizer = vocabulary.tokenizer().unwrap();
    let ids = tokenizer.encode("<|im_start|><|im_end|>", false).unwrap();
    assert_eq!(ids, [300, u32::try_from(count).unwrap()]);
    assert!(vocabulary.add(count + 2, "x", false).is_err());
}

#[test]
fn files_that_are_none_are_refused_in_words() {
    let mut truncated = SENTENCEPIECE.to_vec();
    truncated.truncate(1001);
    for (file, complaint) in [
        (&truncated[..], "truncated"),
        (&[0x0f][..], "type 7"),
        (&[0xff; 12][..], "more than ten bytes"),
        (&[0x0a, 0x02, 0x0a, 0x00][..], "doesn't say what it is"),
        (&[0x12, 0x02, 0x18, 0x03][..], "is of kind 3"),
        (&[0x0a, 0x03, 0x0a, 0x01, 0xff][..], "no UTF-8"),
        (&[0x12, 0x02, 0x18, 0x02, 0x1a, 0x02, 0x28, 0x00][..], "keeps spaces"),
        (b"IQ== 0\nIg== 1\n", "tokenizer.model"),
    ] {
        let error = sentencepiece::vocabulary(file).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
    for (file, complaint) in [
        ("{}", "config"),
        (
            r#"{"config": {"pattern": "x", "default_vocab_size": 3, "default_num_special_tokens": 4},
            "vocab": []}"#,
            "4 special tokens of 3",
        ),
        (
            r#"{"config": {"pattern": "x", "default_vocab_size": 5, "default_num_special_tokens": 4},
            "vocab": []}"#,
            "0 tokens, expected 1",
        ),
        (
            r#"{"config": {"pattern": "x", "default_vocab_size": 5, "default_num_special_tokens": 4},
            "vocab": [{"rank": 3, "token_bytes": "QQ=="}]}"#,
            "the rank 3",
        ),
    ] {
        let error = tekken::vocabulary(file.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

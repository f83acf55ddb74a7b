//! The vocabulary of a tiktoken file, where a checkpoint has nothing else: lines of a token's bytes
//! in base64 and its rank.
//!
//! The file says neither how text is cut into words nor which tokens are special. Both are those of
//! a known family, which is found by the number of tokens or by the class that
//! `tokenizer_config.json` names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::contents::Vocabulary;
use super::error::{VocabularyError, malformed};
use super::tekken;

/// What belongs to a family's files.
struct Family {
    /// `tokenizer_class` in `tokenizer_config.json`.
    classes: &'static [&'static str],
    /// Numbers of tokens in the family's published files.
    counts: &'static [usize],
    /// The pre-tokenizer's name in the words of GGUF.
    pre: &'static str,
    /// The family's special tokens, given the number of ordinary tokens before them.
    special: fn(usize) -> Vec<String>,
    bos: Option<&'static str>,
    eos: &'static str,
}

const FAMILIES: &[Family] = &[
    Family {
        classes: &["QWenTokenizer"],
        counts: &[151_643],
        pre: "qwen2",
        special: qwen,
        bos: None,
        eos: "<|endoftext|>",
    },
    Family {
        classes: &["Llama3Tokenizer"],
        counts: &[128_000],
        pre: "llama3",
        special: llama,
        bos: Some("<|begin_of_text|>"),
        eos: "<|end_of_text|>",
    },
    Family {
        classes: &["TikTokenTokenizer"],
        counts: &[163_584, 163_328],
        pre: "kimi-k2",
        special: kimi,
        bos: Some("[BOS]"),
        eos: "[EOS]",
    },
    Family {
        classes: &["ChatGLM4Tokenizer"],
        counts: &[151_329],
        pre: "glm4",
        special: glm,
        bos: None,
        eos: "<|endoftext|>",
    },
];

fn qwen(_: usize) -> Vec<String> {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    named.into_iter().chain((0..205).map(|i| format!("<|extra_{i}|>"))).collect()
}

fn llama(_: usize) -> Vec<String> {
    let reserved = |i: usize| format!("<|reserved_special_token_{i}|>");
    let mut names = vec!["<|begin_of_text|>".to_owned(), "<|end_of_text|>".to_owned()];
    names.extend((0..4).map(reserved));
    names.extend(["<|start_header_id|>", "<|end_header_id|>"].map(str::to_owned));
    names.extend([reserved(4), "<|eot_id|>".to_owned()]);
    names.extend((5..251).map(reserved));
    names
}

fn kimi(count: usize) -> Vec<String> {
    let named = ["[BOS]", "[EOS]"].map(str::to_owned);
    named.into_iter().chain((2..256).map(|i| format!("<|reserved_token_{}|>", count + i))).collect()
}

fn glm(_: usize) -> Vec<String> {
    let names = [
        "<|endoftext|>",
        "[MASK]",
        "[gMASK]",
        "[sMASK]",
        "<sop>",
        "<eop>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
    ];
    names.map(str::to_owned).to_vec()
}

/// Whether a file looks like one of tiktoken, whatever it is called.
pub fn is_one(file: &[u8]) -> bool {
    let line = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).is_ok_and(|line| word(line).is_some())
}

/// What the file of a family says; `class` is what `tokenizer_config.json` calls the tokenizer.
///
/// # Errors
/// When the file is none, or of no known family.
pub fn vocabulary(file: &[u8], class: Option<&str>) -> Result<Vocabulary, VocabularyError> {
    let words = words(file)?;
    let count = words.len();
    let by_class = |family: &&Family| class.is_some_and(|class| family.classes.contains(&class));
    let family = FAMILIES
        .iter()
        .find(by_class)
        .or_else(|| FAMILIES.iter().find(|family| family.counts.contains(&count)))
        .ok_or_else(|| {
            let known = FAMILIES.iter().flat_map(|family| family.counts).map(usize::to_string);
            malformed(format!(
                "a tiktoken file of {count} tokens and the class {class:?} is of no known family; \
                 known are files of {} tokens",
                known.collect::<Vec<_>>().join(", ")
            ))
        })?;
    let merges = tekken::merges(&words);
    let mut tokens: Vec<String> = words.iter().map(|word| tekken::spelled(word)).collect();
    tokens.extend((family.special)(count));
    let mut token_types = vec![1; count];
    token_types.resize(tokens.len(), 3);
    let id_of = |text: &str| {
        let place = tokens[count..].iter().position(|token| token == text)?;
        u32::try_from(count + place).ok()
    };
    Ok(Vocabulary {
        kind: "gpt2".to_owned(),
        pre: Some(family.pre.to_owned()),
        whole_words: true,
        bos_id: family.bos.and_then(id_of),
        eos_id: id_of(family.eos),
        add_bos: Some(family.pre == "llama3"),
        tokens,
        token_types,
        merges,
        ..Vocabulary::default()
    })
}

/// The tokens in the order of their ranks.
fn words(file: &[u8]) -> Result<Vec<Vec<u8>>, VocabularyError> {
    let text = std::str::from_utf8(file).map_err(|_| malformed("a tiktoken file is no text"))?;
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let bad = |what: &str| malformed(format!("line {} of a tiktoken file {what}", index + 1));
        let (bytes, rank) = word(line).ok_or_else(|| bad("is no token and its rank"))?;
        if rank != words.len() {
            return Err(bad(&format!("has the rank {rank}, expected {}", words.len())));
        }
        words.push(bytes);
    }
    Ok(words)
}

/// `aGk= 7` is `hi` and 7.
fn word(line: &str) -> Option<(Vec<u8>, usize)> {
    let (bytes, rank) = line.trim_end().split_once(' ')?;
    let bytes = STANDARD.decode(bytes).ok().filter(|bytes| !bytes.is_empty())?;
    Some((bytes, rank.parse().ok()?))
}

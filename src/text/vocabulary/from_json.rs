//! The vocabulary of a `tokenizer.json`, as far as a GGUF file can say what it is: tokens, merges and what is
//! special. How text is cut into words isn't read here: only a name stands for it in GGUF, which is found by
//! trying.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::contents::{SPACE, Vocabulary};
use super::error::{VocabularyError, malformed};

/// Most tokens that ids may leave room for beyond those that there are.
const MOST_GAPS: usize = 1 << 20;

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Value,
    #[serde(default)]
    merges: Vec<Merge>,
    unk_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

#[derive(Deserialize)]
struct Added {
    id: usize,
    content: String,
    #[serde(default)]
    special: bool,
}

/// What the file says, and the patterns that it cuts text with.
///
/// # Errors
/// When it is none, or of a kind that GGUF files don't have.
pub fn vocabulary(file: &[u8]) -> Result<(Vocabulary, Vec<String>), VocabularyError> {
    let File { model, added_tokens, normalizer, pre_tokenizer } = serde_json::from_slice(file)
        .map_err(|error| malformed(format!("tokenizer.json: {error}")))?;
    let ids = match (&model.kind, &model.vocab) {
        (Some(kind), _) if kind != "BPE" => {
            return Err(malformed(format!(
                "tokenizer.json is of kind {kind}; GGUF files are made of BPE, or of a tokenizer.model"
            )));
        }
        (_, Value::Object(ids)) => ids,
        _ => return Err(malformed("tokenizer.json has no vocabulary")),
    };
    let mut vocabulary = Vocabulary { unk_id: None, ..Vocabulary::default() };
    let given = ids.len() + added_tokens.len();
    let place = |vocabulary: &mut Vocabulary, id: usize, text: &str, kind: i32| {
        if id >= given + MOST_GAPS {
            return Err(malformed(format!("the id {id} of {text:?} is beyond {given} tokens")));
        }
        if id >= vocabulary.tokens.len() {
            vocabulary.tokens.resize(id + 1, String::new());
            // 5: unused, unless a token comes.
            vocabulary.token_types.resize(id + 1, 5);
        }
        text.clone_into(&mut vocabulary.tokens[id]);
        vocabulary.token_types[id] = kind;
        Ok(())
    };
    for (text, id) in ids {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let id = id.ok_or_else(|| malformed(format!("{text:?} has no id in tokenizer.json")))?;
        let unknown = model.unk_token.as_deref() == Some(text);
        place(&mut vocabulary, id, text, if unknown { 2 } else { 1 })?;
        if unknown {
            vocabulary.unk_id = u32::try_from(id).ok();
        }
    }
    for Added { id, content, special } in &added_tokens {
        let unknown = model.unk_token.as_deref() == Some(content);
        let kind = if unknown {
            2
        } else if *special {
            3
        } else {
            4
        };
        place(&mut vocabulary, *id, content, kind)?;
    }
    let pairs = model.merges.into_iter().map(|merge| match merge {
        Merge::Text(text) => text,
        Merge::Pair([left, right]) => format!("{left} {right}"),
    });
    vocabulary.merges = pairs.collect();
    if byte_level(&pre_tokenizer) {
        "gpt2".clone_into(&mut vocabulary.kind);
    } else {
        "llama".clone_into(&mut vocabulary.kind);
        set_pieces(&mut vocabulary, &normalizer, &pre_tokenizer);
    }
    let mut patterns = Vec::new();
    collect_patterns(&pre_tokenizer, &mut patterns);
    Ok((vocabulary, patterns))
}

/// Names of pre-tokenizers, one for all that cut text alike; those with just these patterns come first.
pub fn pre_tokenizer_names(patterns: &[String]) -> Vec<&'static str> {
    crate::pre_tokenizers::distinct(patterns)
}

/// Makes pieces of SentencePiece of the tokens: scores of merges, tokens of bytes.
fn set_pieces(vocabulary: &mut Vocabulary, normalizer: &Value, pre_tokenizer: &Value) {
    let ids: HashMap<&str, usize> = vocabulary.tokens.iter().map(String::as_str).zip(0..).collect();
    // A token that no merge makes is less likely than any other.
    #[expect(clippy::cast_precision_loss, reason = "numbers of merges are far below 2^24")]
    let score = |rank: usize| -(rank as f32);
    let mut scores = vec![score(vocabulary.merges.len()); vocabulary.tokens.len()];
    for (rank, merge) in vocabulary.merges.iter().enumerate().rev() {
        // Pieces have no spaces but the one between them.
        let made = merge.split_once(' ').map(|(left, right)| format!("{left}{right}"));
        if let Some(id) = made.and_then(|made| ids.get(made.as_str()).copied()) {
            scores[id] = score(rank);
        }
    }
    for (text, kind) in vocabulary.tokens.iter().zip(&mut vocabulary.token_types) {
        let hex = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if *kind == 1 && hex.is_some_and(|hex| u8::from_str_radix(hex, 16).is_ok()) {
            *kind = 6;
        }
    }
    vocabulary.scores = scores;
    let prepends = any(normalizer, &|step| {
        step.get("type").is_some_and(|kind| kind == "Prepend")
            && step.get("prepend").is_some_and(|text| text == SPACE)
    });
    let meta = any(pre_tokenizer, &|step| {
        step.get("type").is_some_and(|kind| kind == "Metaspace")
            && step.get("prepend_scheme").is_none_or(|scheme| scheme != "never")
    });
    vocabulary.add_space_prefix = Some(prepends || meta);
}

fn byte_level(pre_tokenizer: &Value) -> bool {
    any(pre_tokenizer, &|step| step.get("type").is_some_and(|kind| kind == "ByteLevel"))
}

/// Whether this step, or one inside of it, is so.
fn any(step: &Value, is: &dyn Fn(&Value) -> bool) -> bool {
    let inner =
        ["normalizers", "pretokenizers"].iter().filter_map(|name| step.get(name)?.as_array());
    is(step) || inner.flatten().any(|step| any(step, is))
}

/// The regular expressions of a step and those inside of it, in their order.
fn collect_patterns(step: &Value, patterns: &mut Vec<String>) {
    if let Some(pattern) = step.get("pattern").and_then(|pattern| pattern.get("Regex")?.as_str()) {
        patterns.push(pattern.to_owned());
    }
    for step in step.get("pretokenizers").and_then(Value::as_array).into_iter().flatten() {
        collect_patterns(step, patterns);
    }
}

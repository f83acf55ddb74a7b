//! The tokenizer of a model: from whichever of its files holds one, with the tokens that the others
//! add, and the tokens that end a text.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::text::special_tokens::SpecialTokens;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer_config::TokenizerConfig;
use crate::text::vocabulary::{Vocabulary, sentencepiece, tekken, tiktoken};
use crate::weights::gguf::vocabulary::GgufVocabulary;
use crate::weights::source::ModelSource;

/// Builds the tokenizer of `source`; `vocabulary` is that of a GGUF file.
pub(super) fn tokenizer(
    source: &ModelSource,
    vocabulary: Option<GgufVocabulary>,
) -> anyhow::Result<Tokenizer> {
    let config = tokenizer_config(source);
    if let Some(json) = &source.tokenizer_json {
        let tokenizer = Tokenizer::from_json(json, &config)?;
        return Ok(if lowers(source) { tokenizer.lowercased()? } else { tokenizer });
    }
    if let Some(vocabulary) = vocabulary {
        return Ok(vocabulary_of(vocabulary).tokenizer()?);
    }
    Ok(stored_vocabulary(source)?.tokenizer_with(&config)?)
}

/// The vocabulary of a folder that has no `tokenizer.json`.
pub(super) fn stored_vocabulary(source: &ModelSource) -> anyhow::Result<Vocabulary> {
    let class = source.tokenizer_config.as_ref();
    let class = class.and_then(|config| config.get("tokenizer_class")?.as_str());
    let vocabulary = if let Some(file) = &source.tokenizer_model {
        // Some releases call a tiktoken file so.
        if tiktoken::is_one(file) {
            tiktoken::vocabulary(file, class)?
        } else {
            sentencepiece::vocabulary(file)?
        }
    } else if let Some(file) = &source.tekken_json {
        tekken::vocabulary(file)?
    } else if let Some(file) = &source.tiktoken_file {
        tiktoken::vocabulary(file, class)?
    } else {
        anyhow::bail!(
            "{} has no tokenizer.json, tokenizer.model, tekken.json or tiktoken file, one of which \
             is needed for text",
            source.name
        );
    };
    with_added_tokens(vocabulary, source)
}

/// The tokens that `added_tokens_decoder` and `added_tokens.json` give ids to, in their order.
fn with_added_tokens(
    mut vocabulary: Vocabulary,
    source: &ModelSource,
) -> anyhow::Result<Vocabulary> {
    let mut added: BTreeMap<usize, (&str, bool)> = BTreeMap::new();
    let file = source.added_tokens.as_ref().and_then(Value::as_object);
    for (text, id) in file.into_iter().flatten() {
        if let Some(id) = id.as_u64().and_then(|id| usize::try_from(id).ok()) {
            added.insert(id, (text, true));
        }
    }
    let config = source.tokenizer_config.as_ref();
    let decoder = config.and_then(|config| config.get("added_tokens_decoder")?.as_object());
    for (id, token) in decoder.into_iter().flatten() {
        let text = token.get("content").and_then(Value::as_str);
        if let (Ok(id), Some(text)) = (id.parse(), text) {
            let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
            added.insert(id, (text, special));
        }
    }
    for (id, (text, special)) in added {
        vocabulary.add(id, text, special)?;
    }
    Ok(vocabulary)
}

/// Whether sentence-transformers makes all letters small, whatever the tokenizer does.
fn lowers(source: &ModelSource) -> bool {
    let modules = source.sentence_modules.as_ref();
    modules.is_some_and(|modules| modules.text_config.flag("do_lower_case") == Some(true))
}

pub(super) fn tokenizer_config(source: &ModelSource) -> TokenizerConfig {
    let config = source.tokenizer_config.as_ref();
    let mut config = config.map(TokenizerConfig::from_json).unwrap_or_default();
    if let Some(map) = &source.special_tokens_map {
        config.special_tokens.fill_from(&SpecialTokens::from_json(map));
    }
    config
}

/// What a GGUF file says of its vocabulary, in the words of `text`.
pub(super) fn vocabulary_of(vocabulary: GgufVocabulary) -> Vocabulary {
    // Word pieces begin and end with tokens of other names.
    let word_pieces = vocabulary.model == "bert";
    let cls = vocabulary.classifier_token_id.filter(|_| word_pieces);
    let sep = vocabulary.separator_token_id.filter(|_| word_pieces);
    Vocabulary {
        kind: vocabulary.model,
        whole_words: false,
        split: None,
        pre: vocabulary.pre_tokenizer,
        tokens: vocabulary.tokens,
        scores: vocabulary.scores,
        token_types: vocabulary.token_types,
        merges: vocabulary.merges,
        bos_id: vocabulary.bos_token_id.or(cls),
        eos_id: vocabulary.eos_token_id.or(sep),
        unk_id: vocabulary.unknown_token_id,
        sep_id: vocabulary.separator_token_id,
        pad_id: vocabulary.padding_token_id,
        add_bos: vocabulary.add_bos_token,
        add_eos: vocabulary.add_eos_token,
        add_space_prefix: vocabulary.add_space_prefix,
        remove_extra_whitespaces: vocabulary.remove_extra_whitespaces,
        sentence_pieces: false,
        precompiled_charsmap: vocabulary.precompiled_charsmap,
        lowercase: vocabulary.lowercase,
    }
}

/// All ids that any of the model's files calls end-of-sequence.
pub(super) fn eos_token_ids(source: &ModelSource, tokenizer: &Tokenizer) -> Arc<[u32]> {
    let listed = |config: &Value| -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match config.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let from_generation = source.generation_config.as_ref().map(listed).unwrap_or_default();
    let mut ids = if from_generation.is_empty() { listed(&source.config) } else { from_generation };
    ids.extend(tokenizer.eos_id());
    ids.sort_unstable();
    ids.dedup();
    ids.into()
}

//! The draft model that a user chose: its files, and whether it knows the model's tokens.

use anyhow::{bail, ensure};

use super::tokenizer::tokenizer;
use crate::text::tokenizer::Tokenizer;
use crate::weights::source::ModelSource;

/// Refuses a draft model whose tokens are not those of the model.
///
/// Tokens that only one of the two names are no contradiction: GGUF files name the padding at a
/// vocabulary's end, and fine-tuned models have more special tokens.
///
/// # Errors
///
/// The first token that differs, or why the draft model has no tokenizer.
pub(super) fn check_tokens(draft: &mut ModelSource, model: &Tokenizer) -> anyhow::Result<()> {
    let vocabulary = draft.gguf_vocabulary.take();
    let name = &draft.name;
    let own = tokenizer(draft, vocabulary)?;
    for id in 0..model.vocab_size().max(own.vocab_size()) {
        let id = u32::try_from(id)?;
        if let (Some(draft), Some(model)) = (own.token(id), model.token(id))
            && draft != model
        {
            bail!(
                "--draft-model {name} has another tokenizer than the model: its token {id} is \
                 {draft:?}, the model's is {model:?}"
            );
        }
    }
    Ok(())
}

/// Refuses a draft model that has no embeddings for all of the tokenizer's tokens; `vocab_size` is the
/// number of those that it has.
pub(super) fn check_size(name: &str, vocab_size: usize, model: &Tokenizer) -> anyhow::Result<()> {
    let tokens = model.vocab_size();
    let first = u32::try_from(vocab_size)?;
    ensure!(
        tokens <= vocab_size,
        "--draft-model {name} has {vocab_size} tokens, the model's tokenizer {tokens}: the first \
         that it lacks is {:?}",
        model.token(first).unwrap_or_default()
    );
    Ok(())
}

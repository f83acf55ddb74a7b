//! The draft model that a user chose: its files, and whether it knows the model's tokens.

use anyhow::{anyhow, bail, ensure};

use super::choice::ModelChoice;
use super::tokenizer::tokenizer;
use crate::config::EngineConfig;
use crate::engine::startup::goes_on_from_layers;
use crate::text::tokenizer::Tokenizer;
use crate::weights::source::ModelSource;

/// What drafts besides what the model's own files have.
pub(super) enum DraftChoice {
    /// Nothing.
    None,
    /// A draft model.
    Model(Box<ModelSource>),
    /// A head from the file of this name, which the model's source has now.
    Head(String),
}

/// Opens what `--draft-model` names, if it is given, for the model of `source`. Blocks.
///
/// # Errors
///
/// Files that can't be used; a head that is another model's, or that may not draft.
pub(super) fn open(
    choice: &ModelChoice,
    source: &mut ModelSource,
    config: &EngineConfig,
) -> anyhow::Result<DraftChoice> {
    let Some(draft) = choice.open_draft()? else { return Ok(DraftChoice::None) };
    if !draft.is_draft_head {
        return Ok(DraftChoice::Model(Box::new(draft)));
    }
    let name = draft.name.clone();
    ensure!(config.draft_max > 0, "--draft-model {name}: --draft-max 0 turns drafts off");
    let taken = source.take_draft_head(&draft);
    taken.map_err(|why| anyhow!("--draft-model {name} is no head of this model: {why}"))?;
    Ok(DraftChoice::Head(name))
}

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
    if goes_on_from_layers(draft)? && vocabulary.is_none() && !draft.has_tokenizer() {
        // It was made for the model's tokens; that there are as many is checked when it is loaded.
        return Ok(());
    }
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

//! The sounds of a conversation: from what a request brings to what the engine hears.

pub(crate) mod source;

use std::sync::Arc;

use bytes::Bytes;

use super::chat_request::{Audio, Part};
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::state::speech::ROUTE;
use crate::sounds::place::{expand, place};
use crate::sounds::processor::{Bounds, Processor};
use crate::sounds::sound::{PlacedSound, Sound};
use crate::text::tokenizer::Tokenizer;

/// The sounds of a prompt, ready for the engine.
pub(super) struct Heard {
    processor: Arc<Processor>,
    sounds: Vec<Arc<Sound>>,
}

impl Heard {
    /// Sounds in the prompt.
    pub(super) fn count(&self) -> usize {
        self.sounds.len()
    }

    /// The token that a template leaves for a sound, and what stands around it where a template doesn't know
    /// sounds.
    pub(super) fn placeholder(&self, tokenizer: &Tokenizer) -> (String, [&'static str; 2]) {
        let token = tokenizer.token(self.processor.sound_token_id).unwrap_or_default();
        (token, self.processor.around)
    }

    /// The text with the tokens of all sounds. Fails with the number of places there are, if it is not that of
    /// the sounds.
    pub(super) fn expand(&self, text: &str, tokenizer: &Tokenizer) -> Result<String, usize> {
        expand(text, &self.sounds, &self.placeholder(tokenizer).0)
    }

    /// Where the sounds are among the ids of an expanded text.
    pub(super) fn place(&self, ids: &[u32]) -> Option<Vec<PlacedSound>> {
        place(ids, self.processor.sound_token_id, &self.sounds)
    }
}

/// The sounds among the parts of a message.
pub(super) fn in_parts(parts: &[Part]) -> impl Iterator<Item = &Audio> {
    parts.iter().filter_map(|part| match part {
        Part::Audio(audio) => Some(audio),
        _ => None,
    })
}

/// Refuses sounds that the model can't hear, and more of them in a prompt than the server takes.
pub(super) fn check<'a>(
    state: &AppState,
    sounds: impl Iterator<Item = &'a Audio>,
) -> Result<Vec<Audio>, ApiError> {
    let sounds: Vec<Audio> = sounds.cloned().collect();
    if let Some(Audio { path, kind, .. }) = sounds.first().filter(|_| !state.hears()) {
        let model = state.model_name();
        let message = format!(
            "{path}: parts of the type {kind:?} are not supported, {model:?} doesn't hear; {ROUTE} makes \
             text of sound"
        );
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let (count, most) = (sounds.len(), state.config.media.max_sounds);
    if count > most {
        let message = format!("the conversation has {count} sounds, at most {most} are taken");
        return Err(ApiError::Invalid { message, param: None, code: Some("too_many_sounds") });
    }
    Ok(sounds)
}

/// Decodes sounds and makes their features, one after the other; `None` if there are none.
pub(super) async fn read(state: &AppState, sounds: Vec<Audio>) -> Result<Option<Heard>, ApiError> {
    let Some(processor) = state.sound_processor.as_ref().filter(|_| !sounds.is_empty()) else {
        return Ok(None);
    };
    let media = &state.config.media;
    let (seconds, most) = (media.max_sound_seconds, media.max_sound_bytes);
    let mut tokens = state.engine.limits().max_model_len;
    let mut heard = Vec::with_capacity(sounds.len());
    for Audio { path, source, .. } in sounds {
        let processor = Arc::clone(processor);
        let sound = off_thread(move || {
            let file = source.bytes(most);
            let sound = file.and_then(|file| {
                let bounds = Bounds { seconds, tokens };
                processor.read(Bytes::from(file), bounds).map_err(|error| error.to_string())
            });
            sound.map_err(|reason| ApiError::Invalid {
                message: format!("{path}: {reason}"),
                param: Some(path),
                code: Some("invalid_audio"),
            })
        });
        let sound = sound.await?;
        tokens -= sound.num_tokens();
        heard.push(Arc::new(sound));
    }
    Ok(Some(Heard { processor: Arc::clone(processor), sounds: heard }))
}

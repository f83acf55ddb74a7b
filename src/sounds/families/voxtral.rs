//! Voxtral: Whisper's windows of half a minute, one after the other, as many as there are; the states of
//! several positions together are a token.

use serde_json::Value;

use crate::sounds::fields::{Heard, refused, window};
use crate::sounds::processor::{ProcessorError, Rule};

pub(super) fn heard(config: &Value) -> Result<Heard, ProcessorError> {
    let audio = &config["audio_config"];
    let frames = window(config)?;
    let whole = |names: [&str; 2], default: u64| {
        names.iter().find_map(|name| audio[*name].as_u64()).unwrap_or(default)
    };
    let hidden = whole(["hidden_size", "d_model"], 1280);
    let joined = whole(["intermediate_size", "encoder_ffn_dim"], 5120);
    let positions = (frames / 2) as u64;
    let tokens = (positions * hidden).checked_div(joined).unwrap_or(0);
    let tokens = usize::try_from(tokens).unwrap_or(0);
    if tokens == 0 || tokens as u64 * joined != positions * hidden {
        let bound = format!("must divide the {positions} states of {hidden} of a window");
        return Err(refused("intermediate_size", &joined.into(), &bound));
    }
    Ok(Heard { token: 24, around: ["[BEGIN_AUDIO]", ""], rule: Rule::Windows { frames, tokens } })
}

//! Gemma 4: as many tokens as fit a budget, whatever the picture's size; some models see them both ways.

use crate::pictures::fields::Fields;
use crate::pictures::picture::Normalization;
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// The fewest tokens of a picture that the models were trained on.
const FEWEST: usize = 70;
/// The most.
const MOST: u64 = 1120;

/// The processor of Gemma 4 Unified, which makes one patch of those of a token and leaves 0 to 1 as it is.
pub(super) fn unified(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let own = processor(files, image)?;
    let normalization = files.normalization([[0.0; 3], [1.0; 3]])?;
    let absent = files.config["text_config"].get("use_bidirectional_attention").is_none();
    let (patch, two_way) = (own.patch * own.merge, own.two_way || absent);
    Ok(Processor { patch, merge: 1, two_way, normalization, ..own })
}

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let given = files.fields["max_soft_tokens"].as_u64().unwrap_or(280);
    let tokens = usize::try_from(given).ok().filter(|tokens| *tokens > 0 && given <= MOST);
    let tokens = tokens.ok_or_else(|| ProcessorError {
        field: "max_soft_tokens",
        value: given.to_string(),
        bound: "1 to 1120 is possible",
    })?;
    let mark = |names, default: u32| files.token(names).map(|id| id.unwrap_or(default));
    let begin = mark(["boi_token_id", "boi_token_index"], 255_999)?;
    let end = mark(["eoi_token_id", "eoi_token_index"], 258_882)?;
    // The model itself makes -1 to 1 of 0 to 1.
    let Normalization { mean, std, narrow } = files.normalization([[0.0; 3], [1.0; 3]])?;
    let mean = [0, 1, 2].map(|channel| mean[channel] + 0.5 * std[channel]);
    let way = files.config["text_config"]["use_bidirectional_attention"].as_str();
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch: files.size("patch_size", 16)?,
        merge: files.size("pooling_kernel_size", 3)?,
        resampled: None,
        rule: Rule::Filled { tokens, low: FEWEST },
        wording: Wording {
            begin: vec![Word::Token(begin)],
            end: vec![Word::Token(end)],
            ..Wording::default()
        },
        two_way: way == Some("vision"),
        normalization: Normalization { mean, std: std.map(|std| 0.5 * std), narrow },
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

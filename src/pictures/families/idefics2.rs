//! Idefics 2: a picture of any size, within bounds, and its quarters; as many tokens of each.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// What stands before, between and behind views, of neighbours once.
const AROUND: Word = Word::Once("<fake_token_around_image>");

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let patch = files.of_tower("patch_size", 32)?;
    let lengths =
        [files.side("size", "shortest_edge", 378)?, files.side("size", "longest_edge", 980)?];
    if lengths[0] > lengths[1] || lengths[0] < patch {
        let bound = "must be a patch at least, and the most at least the least";
        return Err(ProcessorError { field: "size", value: format!("{lengths:?}"), bound });
    }
    let name = "resampler_n_latents";
    let given = files.config["perceiver_config"][name].as_u64().unwrap_or(64);
    let tokens = usize::try_from(given).ok().filter(|tokens| (1..=1 << 12).contains(tokens));
    let tokens = tokens.ok_or_else(|| ProcessorError {
        field: name,
        value: given.to_string(),
        bound: "1 to 4096 is possible",
    })?;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge: 1,
        resampled: Some(tokens),
        rule: Rule::Bounded {
            lengths,
            quarters: files.fields["do_image_splitting"].as_bool().unwrap_or(false),
        },
        wording: Wording {
            before_tile: vec![AROUND],
            before_whole: vec![AROUND],
            before_alone: vec![AROUND],
            end: vec![Word::Text("<fake_token_around_image>"), Word::Gap],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bilinear)?,
    })
}

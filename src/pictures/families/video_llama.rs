//! VideoLLaMA 3: Qwen's rule, a token for each patch of a still picture.

use super::qwen;
use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::wording::Wording;

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let merge = files.size("merge_size", 1)?;
    if merge != 1 {
        let bound = "supported is 1, a token for each patch";
        return Err(ProcessorError { field: "merge_size", value: merge.to_string(), bound });
    }
    Ok(Processor {
        patch: files.size("patch_size", 16)?,
        merge,
        wording: Wording::default(),
        normalization: files.normalization(STANDARD)?,
        ..qwen::processor(files, image)?
    })
}

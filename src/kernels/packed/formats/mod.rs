//! How quantized weights lie in a panel of 64 columns, and how a kernel reads them.
//!
//! A panel is a run of cells along K. A cell holds one GGUF block of each column: first what the
//! whole block shares, then one sub-block per 32 elements of K with its scales and its values.
//! Nothing is requantized: a cell holds the numbers of the file in another order, so a weight
//! read back equals the dequantized one to the bit.
//!
//! Values are unsigned, `offset` above what they stand for, in eight groups of four consecutive K
//! elements: the four bytes of a column lie together, the columns side by side. Where a value has
//! less than eight bits, group `g` takes the low half of a byte and group `g + 4` the high half.

mod format;
mod k_quants;
mod simple;

pub(crate) use format::{Format, PANEL, SUB_BLOCK, Values};
pub(crate) use k_quants::{Q4K, Q5K, Q6K};
pub(crate) use simple::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

/// Calls `$run` with the [`Format`] of a packed quantized kind, `$otherwise` for all other kinds.
macro_rules! with_format {
    ($kind:expr, $format:ident => $run:expr, $otherwise:expr) => {
        match $kind {
            GgmlDType::Q8_0 => {
                type $format = $crate::packed::formats::Q8_0;
                $run
            }
            GgmlDType::Q4_0 => {
                type $format = $crate::packed::formats::Q4_0;
                $run
            }
            GgmlDType::Q4_1 => {
                type $format = $crate::packed::formats::Q4_1;
                $run
            }
            GgmlDType::Q5_0 => {
                type $format = $crate::packed::formats::Q5_0;
                $run
            }
            GgmlDType::Q5_1 => {
                type $format = $crate::packed::formats::Q5_1;
                $run
            }
            GgmlDType::Q4K => {
                type $format = $crate::packed::formats::Q4K;
                $run
            }
            GgmlDType::Q5K => {
                type $format = $crate::packed::formats::Q5K;
                $run
            }
            GgmlDType::Q6K => {
                type $format = $crate::packed::formats::Q6K;
                $run
            }
            _ => $otherwise,
        }
    };
}
pub(crate) use with_format;

//! How quantized weights lie in a panel of 64 columns, and how a kernel reads them.
//!
//! A panel is a run of cells along K. A cell holds one GGUF block of each column: first what the
//! whole block shares, then one sub-block per 32 elements of K with its scales and its values.
//! Nothing is requantized: a cell holds the numbers of the file in another order, so a weight
//! read back equals the dequantized one to the bit.
//!
//! Values are unsigned, `offset` above what they stand for, in eight groups of four consecutive K
//! elements: the four bytes of a column lie together, the columns side by side. Where a value has
//! less than eight bits, group `g` takes the low half of a byte and group `g + 4` the high half. Codes
//! stay codes in a cell and become values as they are loaded.

mod coded;
mod format;
mod k_quants;
mod points;
mod simple;
mod tables;

pub(crate) use format::{Eight, Format, PANEL, SUB_BLOCK, Values, pair_groups};
pub(crate) use k_quants::{Q4K, Q5K, Q6K};
pub(crate) use points::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
pub(crate) use simple::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub(crate) use tables::{Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, Ternary};

/// Calls `$run` with the [`Format`] of a packed quantized kind, `$otherwise` for all other kinds.
macro_rules! with_format {
    ($kind:expr, $format:ident => $run:expr, $otherwise:expr) => {
        match $kind {
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q8_0)
            | sconce_blocks::Kind::W8A8 => {
                type $format = $crate::packed::formats::Q8_0;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q4_0) => {
                type $format = $crate::packed::formats::Q4_0;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q4_1) => {
                type $format = $crate::packed::formats::Q4_1;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q5_0) => {
                type $format = $crate::packed::formats::Q5_0;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q5_1) => {
                type $format = $crate::packed::formats::Q5_1;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q4K) => {
                type $format = $crate::packed::formats::Q4K;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q5K) => {
                type $format = $crate::packed::formats::Q5K;
                $run
            }
            sconce_blocks::Kind::Ggml(candle_core::quantized::GgmlDType::Q6K) => {
                type $format = $crate::packed::formats::Q6K;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq2Xxs) => {
                type $format = $crate::packed::formats::Iq2Xxs;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq2Xs) => {
                type $format = $crate::packed::formats::Iq2Xs;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq2S) => {
                type $format = $crate::packed::formats::Iq2S;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq3Xxs) => {
                type $format = $crate::packed::formats::Iq3Xxs;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq3S) => {
                type $format = $crate::packed::formats::Iq3S;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq1S) => {
                type $format = $crate::packed::formats::Iq1S;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq1M) => {
                type $format = $crate::packed::formats::Iq1M;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq4Nl) => {
                type $format = $crate::packed::formats::Iq4Nl;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Iq4Xs) => {
                type $format = $crate::packed::formats::Iq4Xs;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Tq1_0) => {
                type $format = $crate::packed::formats::Ternary<true>;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Tq2_0) => {
                type $format = $crate::packed::formats::Ternary<false>;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Nvfp4) => {
                type $format = $crate::packed::formats::Nvfp4;
                $run
            }
            sconce_blocks::Kind::Coded(sconce_blocks::Coded::Mxfp4) => {
                type $format = $crate::packed::formats::Mxfp4;
                $run
            }
            _ => $otherwise,
        }
    };
}
pub(crate) use with_format;

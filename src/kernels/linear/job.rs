//! What a region of the thread team computes: layers, what is done with their products, and where
//! results go.

use std::mem::MaybeUninit;

use half::bf16;

use super::args::Layer;
use crate::cpu::LANES;
use crate::fresh::{Parts, ResultParts};
use crate::packed::formats::PANEL;
use crate::pointwise::Gating;

/// Products of one row and one panel, before a [`Finish`].
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [[f32; LANES]; PANEL / LANES]);

/// What is done with a product before it is written.
#[derive(Clone, Copy)]
pub(super) enum Finish<'a> {
    Plain,
    /// `rows + factor * product` for rows `[m, n]`.
    Add {
        rows: &'a [f32],
        factor: f32,
    },
    /// The product as a gate, and `up(x)` beside it.
    Gated {
        gating: Gating,
        up: Layer<'a>,
    },
}

impl<'a> Finish<'a> {
    /// The layer whose product is wanted beside the first.
    pub(super) fn partner(&self) -> Option<Layer<'a>> {
        match self {
            Self::Gated { up, .. } => Some(*up),
            Self::Plain | Self::Add { .. } => None,
        }
    }
}

/// Where the rows of a result go.
pub(super) enum Output<'a> {
    /// `[m, n]`
    Rows(ResultParts<'a>),
    /// Rounded, as tiles take the rows of their left side: `[m / 16][n / 32][rows of the
    /// block][32]`. `n` divides by 32.
    Tiles { all: &'a Parts<'a, MaybeUninit<bf16>>, m: usize },
}

/// One layer of a region, and where its result goes.
pub(super) struct Job<'a> {
    pub(super) layer: Layer<'a>,
    pub(super) finish: Finish<'a>,
    pub(super) out: Output<'a>,
}

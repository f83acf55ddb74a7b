//! What a region of the thread team computes: layers, what is done with their products, and where
//! results go.

use super::args::Layer;
use crate::cpu::LANES;
use crate::fresh::{ResultParts, Results};
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

/// One layer of a region, and where its result goes.
pub(super) struct Job<'a> {
    pub(super) layer: Layer<'a>,
    pub(super) finish: Finish<'a>,
    /// `[m, n]`
    pub(super) out: ResultParts<'a>,
}

impl<'a> Job<'a> {
    /// A job whose output has room for all rows.
    pub(super) fn new(layer: Layer<'a>, finish: Finish<'a>, output: &'a mut Results) -> Self {
        Self { layer, finish, out: output.parts() }
    }
}

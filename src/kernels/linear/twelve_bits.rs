//! Panels of bf16 in twelve bits each times activation rows: a part is decoded once, and then met by all rows as any
//! bf16 are.

use half::bf16;

use super::ahead::{Ahead, PART};
use super::dense::{Part, Step, WIDEN_FROM, WIDENED};
use super::job::Sums;
use crate::cpu::{Kernel, Products};
use crate::packed::formats::PANEL;
use crate::packed::twelve_bits::{ROW_BYTES, Row, TwelveBitPanel};

/// Rows of a part.
const ROWS: usize = PART / size_of::<Row>();

/// One panel times all rows of `x [m][steps]`, to `sums`.
pub(super) struct DecodedPanel<'a, S: Step> {
    pub(super) x: &'a [S::Activation],
    pub(super) panel: TwelveBitPanel<'a>,
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
    /// Room for what is decoded.
    pub(super) room: &'a mut Vec<Row>,
}

impl<S: Step<Weight = [bf16; 2]>> Kernel for DecodedPanel<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { x, panel, next, sums, room } = self;
        let (m, steps) = (sums.len(), panel.rows());
        assert_eq!(x.len(), m * steps);
        let widens = S::WIDENS && m >= WIDEN_FROM;
        let (part, step) = if widens {
            (WIDENED / S::ELEMENTS, ROW_BYTES / S::ELEMENTS)
        } else {
            (ROWS, ROW_BYTES)
        };
        let mut wide = [[0.0; PANEL]; WIDENED];
        for first in (0..steps).step_by(part) {
            let end = steps.min(first + part);
            let weights = panel.decode_to(l, first..end, room);
            let next = if end < steps { panel.bytes_from(end) } else { next };
            let ahead = Ahead::of_part(next, part * ROW_BYTES, m, step);
            let part = Part::<S> { x, steps, first, weights, ahead };
            if widens {
                part.widened(l, &mut wide).run(l, sums);
            } else {
                part.run(l, sums);
            }
        }
    }
}

//! Inputs of layers that are wanted besides the results.

use candle_core::{Device, Result, Tensor, bail};

use crate::layers::forward::Taps;

/// What was seen so far.
pub(super) struct Tapped<'a> {
    taps: &'a Taps,
    /// The rows that are wanted; `None`: nothing is.
    rows: Option<Tensor>,
    seen: Vec<Tensor>,
}

impl<'a> Tapped<'a> {
    /// Nothing seen.
    pub(super) fn new(taps: &'a Taps, device: &Device) -> Result<Self> {
        let any = !taps.rows.is_empty() && !taps.layers.is_empty();
        let rows = any.then(|| Tensor::new(taps.rows.as_slice(), device)).transpose()?;
        Ok(Self { taps, rows, seen: Vec::new() })
    }

    /// Sees the input `x [num_tokens, hidden]` of a layer.
    pub(super) fn look(&mut self, layer: usize, x: &Tensor) -> Result<()> {
        if let Some(rows) = self.rows.as_ref().filter(|_| self.taps.layers.contains(&layer)) {
            self.seen.push(x.index_select(rows, 0)?);
        }
        Ok(())
    }

    /// All that was wanted, `[rows, layers * hidden]`.
    pub(super) fn joined(self) -> Result<Option<Tensor>> {
        let Some(rows) = self.rows else { return Ok(None) };
        if self.seen.len() != self.taps.layers.len() {
            bail!("of {} rows layers {:?} are wanted", rows.elem_count(), self.taps.layers);
        }
        Tensor::cat(&self.seen, 1).map(Some)
    }
}

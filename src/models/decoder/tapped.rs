//! Inputs of layers that are wanted besides the results.

use candle_core::{Device, Result, Tensor, bail};

use crate::layers::forward::Taps;

/// What was seen so far.
pub(super) struct Tapped<'a> {
    taps: &'a Taps,
    rows: Rows,
    seen: Vec<Tensor>,
}

/// The rows that are wanted.
enum Rows {
    Nothing,
    Some(Tensor),
    /// As captured steps want them, which move nothing to the device.
    All,
}

impl<'a> Tapped<'a> {
    /// Nothing seen of a step of so many tokens.
    pub(super) fn new(taps: &'a Taps, tokens: usize, device: &Device) -> Result<Self> {
        let rows = match taps.rows.len() {
            0 => Rows::Nothing,
            _ if taps.layers.is_empty() => Rows::Nothing,
            all if all == tokens => Rows::All,
            _ => Rows::Some(Tensor::new(taps.rows.as_slice(), device)?),
        };
        Ok(Self { taps, rows, seen: Vec::new() })
    }

    /// Sees the input of a layer, `[num_tokens, hidden]`, if it is wanted.
    pub(super) fn look(
        &mut self,
        layer: usize,
        input: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        if self.taps.layers.contains(&layer) && !matches!(self.rows, Rows::Nothing) {
            let x = input()?;
            match &self.rows {
                Rows::Nothing => {}
                Rows::Some(rows) => self.seen.push(x.index_select(rows, 0)?),
                // What a layer does to its input is not to be seen.
                Rows::All => self.seen.push(x.copy()?),
            }
        }
        Ok(())
    }

    /// All that was wanted, `[rows, layers * hidden]`.
    pub(super) fn joined(self) -> Result<Option<Tensor>> {
        let Taps { layers, rows } = self.taps;
        if matches!(self.rows, Rows::Nothing) {
            return Ok(None);
        }
        if self.seen.len() != layers.len() {
            bail!("of {} rows layers {layers:?} are wanted", rows.len());
        }
        Tensor::cat(&self.seen, 1).map(Some)
    }
}

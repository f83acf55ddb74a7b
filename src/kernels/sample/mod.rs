//! Draws where logits are, on a GPU: what comes back to the host is a token for each row, and what
//! its log-probabilities are made of.
//!
//! The results are those of the sampler on the host, to the bit.

use candle_core::{DType, Device, Result, Tensor, bail};

pub use self::args::{CountChange, Counts, Draw, Drawn, DrawnLogprobs, KeptCounts};
use super::backend::Backend;

mod args;
mod cuda;
pub mod logits;

/// Logits `[rows, vocab]` in f32 on a GPU; a draw overwrites its row.
#[derive(Debug)]
pub struct DeviceLogits(Tensor);

impl DeviceLogits {
    /// Takes logits that are on a GPU whose kernels can draw.
    ///
    /// # Errors
    ///
    /// The logits themselves, if they are elsewhere.
    pub fn new(logits: Tensor) -> std::result::Result<Self, Tensor> {
        let drawn_there = Backend::of(logits.device()).is_cuda() && logits.dtype() == DType::F32;
        if drawn_there && logits.dims().len() == 2 { Ok(Self(logits)) } else { Err(logits) }
    }

    /// A copy of these rows, `[rows.len(), vocab]`, on the host.
    pub fn rows(&self, rows: &[u32]) -> Result<Tensor> {
        if rows.is_empty() {
            return Tensor::zeros((0, self.0.dim(1)?), DType::F32, &Device::Cpu);
        }
        let rows = self.0.index_select(&Tensor::new(rows, self.0.device())?, 0)?;
        rows.to_device(&Device::Cpu)
    }

    /// Room for so many entries of a sequence, where these logits are.
    pub fn room_for_counts(&self, capacity: usize) -> Result<KeptCounts> {
        cuda::room_for_counts(capacity, self.0.device())
    }

    /// Starts draws, of which no two are from the same row.
    pub fn start(&self, draws: Vec<Draw>) -> Result<StartedDraws> {
        let rows = self.0.dim(0)?;
        let mut own: Vec<u32> = draws.iter().map(|draw| draw.row).collect();
        own.sort_unstable();
        let twice = own.windows(2).any(|two| two[0] == two[1]);
        if twice || own.last().is_some_and(|last| *last as usize >= rows) {
            bail!("draws from rows {own:?} of {rows}");
        }
        cuda::start(&self.0, draws).map(StartedDraws)
    }
}

/// Draws under way: what is started behind them need not wait for their tokens.
pub struct StartedDraws(cuda::Started);

impl StartedDraws {
    /// The rows of the logits that are drawn from.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.0.rows()
    }

    /// Puts the tokens where `ids` (u32 on the device) begin, in the order of the draws.
    pub fn put_tokens(&self, ids: &Tensor) -> Result<()> {
        self.0.put_tokens(ids)
    }

    /// Waits for the tokens, in the order of the draws.
    pub fn wait(self) -> Result<Vec<Drawn>> {
        self.0.wait()
    }
}

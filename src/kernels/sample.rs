//! Draws where logits are, on a GPU: what comes back to the host is a token for each row, and what
//! its log-probabilities are made of.
//!
//! The results are those of the sampler on the host, to the bit.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::cuda;

/// Logits `[rows, vocab]` in f32 on a GPU; a draw overwrites its row.
#[derive(Debug)]
pub struct DeviceLogits(Tensor);

/// What is asked of one row.
#[derive(Clone, Debug, Default)]
pub struct Draw {
    /// Of the logits.
    pub row: u32,
    /// Where to draw, in `[0, 1)`, if the temperature isn't that of the most likely token.
    pub position: f64,
    /// Divisor of logits.
    pub temperature: f32,
    /// Share of the nucleus.
    pub top_p: f32,
    /// Least weight relative to the heaviest.
    pub min_p: f32,
    /// Most tokens; 0 is off.
    pub top_k: u32,
    /// Penalty by division or multiplication.
    pub repetition_penalty: f32,
    /// Penalty for each occurrence.
    pub frequency_penalty: f32,
    /// Penalty for any occurrence.
    pub presence_penalty: f32,
    /// Token ids with what is added to their logits, in this order.
    pub biases: Vec<(u32, f32)>,
    /// Token ids with their occurrences in the output, each once.
    pub counts: Vec<(u32, f32)>,
    /// A bit for each token, set where it is allowed; what is behind is not.
    pub mask: Option<Vec<u32>>,
    /// The only token that may come.
    pub required: Option<u32>,
    /// Most likely tokens to report, if log-probabilities are wanted.
    pub top: Option<u32>,
}

/// What became of a draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawn {
    /// A token.
    Token {
        /// Its id.
        token_id: u32,
        /// If they were wanted.
        logprobs: Option<DrawnLogprobs>,
    },
    /// This logit is NaN.
    Nan(u32),
    /// The largest logit isn't finite.
    NotFinite,
    /// No token is left.
    NoneLeft,
}

/// Log-probabilities by the model's own logits.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnLogprobs {
    /// Of the token.
    pub logprob: f32,
    /// Its place among all, from 1.
    pub rank: u32,
    /// The most likely tokens, best first.
    pub top: Vec<(u32, f32)>,
}

impl DeviceLogits {
    /// Takes logits that are on a GPU whose kernels can draw.
    ///
    /// # Errors
    ///
    /// Gives back those that are elsewhere.
    pub fn new(logits: Tensor) -> std::result::Result<Self, Tensor> {
        let drawn_there = cuda::on(logits.device()) && logits.dtype() == DType::F32;
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

    /// Starts draws, of which no two are from the same row.
    pub fn start(&self, draws: Vec<Draw>) -> Result<StartedDraws> {
        let rows = self.0.dim(0)?;
        let mut own: Vec<u32> = draws.iter().map(|draw| draw.row).collect();
        own.sort_unstable();
        let twice = own.windows(2).any(|two| two[0] == two[1]);
        if twice || own.last().is_some_and(|last| *last as usize >= rows) {
            bail!("draws from rows {own:?} of {rows}");
        }
        cuda::sample::start(&self.0, draws).map(StartedDraws)
    }
}

/// Draws under way: what is started behind them need not wait for their tokens.
pub struct StartedDraws(cuda::sample::Started);

impl StartedDraws {
    /// The rows that are drawn from.
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

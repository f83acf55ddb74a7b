//! A step's hidden states on the host, row by row, and what a head that drafts is told of them.

use candle_core::{DType, Device, Result, Tensor};

use crate::layers::forward::{ForwardBatch, Taps};
use crate::models::CausalLm;

/// What a head that drafts goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeadInput {
    /// There is no head.
    #[default]
    Nothing,
    /// The model's last hidden states.
    Hidden,
    /// The inputs of these layers of the model, one behind the other.
    Layers(Vec<usize>),
}

impl HeadInput {
    /// What `drafter` needs of the model.
    pub fn of(drafter: &dyn CausalLm) -> Self {
        match (drafter.needs_hidden(), drafter.taps()) {
            (false, _) => Self::Nothing,
            (true, []) => Self::Hidden,
            (true, taps) => Self::Layers(taps.to_vec()),
        }
    }

    /// Elements for each token of a model with hidden states of `hidden_size`; none: there is no head.
    pub(super) fn width(&self, hidden_size: usize) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::Hidden => Some(hidden_size),
            Self::Layers(layers) => Some(layers.len() * hidden_size),
        }
    }

    /// The layers whose inputs are needed.
    pub(super) fn layers(&self) -> &[usize] {
        if let Self::Layers(layers) = self { layers } else { &[] }
    }

    /// Whether this is all that a batch wants besides logits.
    pub(super) fn covers(&self, batch: &ForwardBatch) -> bool {
        let (hidden, tapped) = (!batch.hidden_rows.is_empty(), !batch.taps.rows.is_empty());
        match self {
            Self::Nothing => !hidden && !tapped,
            Self::Hidden => !tapped,
            Self::Layers(_) => !hidden,
        }
    }

    /// The batch, telling of the first `tokens` rows.
    pub(super) fn of_all(&self, batch: ForwardBatch, tokens: u32) -> ForwardBatch {
        let rows: Vec<u32> = (0..tokens).collect();
        match self {
            Self::Nothing => batch,
            Self::Hidden => ForwardBatch { hidden_rows: rows, ..batch },
            Self::Layers(layers) => {
                ForwardBatch { taps: Taps { layers: layers.clone(), rows }, ..batch }
            }
        }
    }
}

/// Hidden states on the host, `[num_rows, hidden_size]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HiddenStates {
    values: Vec<f32>,
    hidden_size: usize,
}

impl HiddenStates {
    /// A copy of the hidden states that a model returned, `[num_rows, hidden_size]`, if any.
    pub(super) fn from_tensor(hidden: Option<Tensor>) -> Result<Self> {
        let Some(hidden) = hidden else { return Ok(Self::default()) };
        let (_, hidden_size) = hidden.dims2()?;
        let on_host = hidden.to_dtype(DType::F32)?.to_device(&Device::Cpu)?;
        Ok(Self { values: on_host.flatten_all()?.to_vec1()?, hidden_size })
    }

    /// The rows in order, each `[hidden_size]`.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.hidden_size.max(1))
    }
}

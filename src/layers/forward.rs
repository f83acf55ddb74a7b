//! What one forward pass is given: the flattened tokens of a step and where their KV lives.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};
use serde::{Deserialize, Serialize};

pub use super::adapter::{AdaptedRows, Adapter};
pub use crate::kernels::cache::kv_format::KvFormat;
pub use crate::kernels::cuda::graph::CudaGraph;
use crate::kernels::paged_attention::Ragged;
use crate::kernels::recurrence::Runs;
pub use crate::kernels::sample::{DeviceLogits, StartedDraws};
use crate::kernels::step_tensors;
pub use crate::kernels::step_tensors::{NO_SLOT, Numbers, StepPlan, StepSizes, StepTensors};

/// KV blocks hold this many tokens, on every device.
pub const BLOCK_SIZE: usize = 32;

/// One step's tokens, flattened over sequences: no padding, prefill chunks and decodes alike.
///
/// Sequence `s` owns rows `cu_seqlens_q[s]..cu_seqlens_q[s + 1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBatch {
    /// `[num_tokens]`
    pub input_ids: Vec<u32>,
    /// `[num_tokens]`: absolute position of each token in its sequence.
    pub positions: Vec<u32>,
    /// `[num_tokens]`: where each token's K and V go, `block * BLOCK_SIZE + offset`.
    pub slot_mapping: Vec<u32>,
    /// `[num_seqs]` rows: the blocks of each sequence in order of position.
    pub block_tables: Vec<Vec<u32>>,
    /// `[num_seqs + 1]`: row ranges, ascending from 0 to `num_tokens`.
    pub cu_seqlens_q: Vec<u32>,
    /// `[num_seqs]`: tokens in the KV cache once this step has written its own.
    pub context_lens: Vec<u32>,
    /// `[num_seqs]`: tokens of each sequence that are known, computed or not.
    pub sequence_lens: Vec<u32>,
    /// `[num_seqs]`: the row of each state that is the sequence's own, none of them twice.
    pub state_slots: Vec<u32>,
    /// `[num_seqs]`: where the token behind this step's would go, `NO_SLOT` if there is no room yet.
    /// Told by nobody who never computes ahead.
    #[serde(skip)]
    pub next_slots: Vec<u32>,
    /// Rows (of `num_tokens`) whose logits are wanted, ascending.
    pub logits_rows: Vec<u32>,
    /// Rows whose last hidden states are wanted, ascending; they may be among those with logits.
    pub hidden_rows: Vec<u32>,
    /// The rows of each adapter; those of none are in no entry. Not told to other ranks, which have
    /// none.
    #[serde(skip)]
    pub adapters: Vec<AdaptedRows>,
    /// What of all this is on the device already.
    #[serde(skip)]
    pub on_device: OnDevice,
}

/// A batch's plan on the device, where kernels read it there. Batches are compared without.
#[derive(Clone, Debug, Default)]
pub struct OnDevice(pub Option<Arc<StepTensors>>);

impl PartialEq for OnDevice {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for OnDevice {}

impl ForwardBatch {
    /// Its token ids.
    pub fn ids(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.input_ids);
        Numbers { host: &self.input_ids, on_device }
    }

    /// Its tokens' positions.
    pub fn token_positions(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.positions);
        Numbers { host: &self.positions, on_device }
    }

    /// Where its keys and values go.
    pub(super) fn slots(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.slots);
        Numbers { host: &self.slot_mapping, on_device }
    }

    /// Where its sequences are.
    pub(super) fn ragged(&self) -> Ragged<'_> {
        Ragged {
            positions: &self.positions,
            block_tables: &self.block_tables,
            cu_seqlens_q: &self.cu_seqlens_q,
            context_lens: &self.context_lens,
            on_device: self.on_device.0.as_deref(),
        }
    }

    /// The batch with its plan where the kernels of `device` read it.
    pub fn moved_to(&self, device: &Device) -> Result<Cow<'_, Self>> {
        if !step_tensors::wanted(device) {
            return Ok(Cow::Borrowed(self));
        }
        let on_device = OnDevice(Some(Arc::new(self.plan().to_device(device)?)));
        Ok(Cow::Owned(Self { on_device, ..self.clone() }))
    }

    /// What kernels on a GPU read of it.
    pub fn plan(&self) -> StepPlan<'_> {
        StepPlan {
            input_ids: &self.input_ids,
            positions: &self.positions,
            slots: &self.slot_mapping,
            cu_seqlens_q: &self.cu_seqlens_q,
            context_lens: &self.context_lens,
            sequence_lens: &self.sequence_lens,
            state_slots: &self.state_slots,
            block_tables: &self.block_tables,
        }
    }

    /// The sequences' rows and states, for operations that read token by token.
    pub(super) fn runs(&self) -> Runs<'_> {
        Runs {
            cu_seqlens_q: &self.cu_seqlens_q,
            positions: &self.positions,
            slots: &self.state_slots,
            on_device: self.on_device.0.as_deref(),
        }
    }
}

/// K and V of one layer, with the shapes of [`KvFormat::key_dims`] and [`KvFormat::value_dims`].
#[derive(Clone, Debug)]
pub struct KvLayer {
    /// Keys, after rope.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
}

/// What one model keeps of its sequences: what startup needs to plan memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvShape {
    /// One per layer that keeps K and V.
    pub layers: Vec<KvHeads>,
    /// Elements of each state that a sequence has besides, however long it is.
    pub states: Vec<usize>,
}

/// What one layer keeps of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHeads {
    /// KV heads.
    pub count: usize,
    /// Elements of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
}

impl KvShape {
    /// Bytes of one block over all layers, K and V together.
    pub fn block_bytes(&self, format: KvFormat) -> usize {
        let bytes = |heads: &KvHeads| {
            heads.count * (format.head_bytes(heads.key_dim) + format.head_bytes(heads.value_dim))
        };
        BLOCK_SIZE * self.layers.iter().map(bytes).sum::<usize>()
    }

    /// Bytes of the states of one sequence.
    pub fn state_bytes(&self) -> usize {
        self.states.iter().sum::<usize>() * DType::F32.size_in_bytes()
    }

    /// A tensor for each state, `[slots, elements]` of zeros in f32.
    pub fn states(&self, slots: usize, device: &Device) -> Result<Vec<Tensor>> {
        let state = |elements: &usize| Tensor::zeros((slots, *elements), DType::F32, device);
        self.states.iter().map(state).collect()
    }
}

impl KvHeads {
    /// Heads whose keys and values have `dim` elements.
    pub fn new(count: usize, dim: usize) -> Self {
        Self { count, key_dim: dim, value_dim: dim }
    }

    /// The tensors of a layer, `[num_blocks, ..]`, each made by `tensor` of its shape.
    pub fn layer<E>(
        self,
        num_blocks: usize,
        format: KvFormat,
        tensor: impl Fn([usize; 4]) -> std::result::Result<Tensor, E>,
    ) -> std::result::Result<KvLayer, E> {
        let Self { count, key_dim, value_dim } = self;
        Ok(KvLayer {
            k: tensor(format.key_dims(num_blocks, count, key_dim))?,
            v: tensor(format.value_dims(num_blocks, count, value_dim))?,
        })
    }
}

/// What a forward pass reads and writes besides its batch.
#[derive(Debug)]
pub struct ForwardContext<'a> {
    /// Where activations live.
    pub device: &'a Device,
    /// One entry per layer that keeps K and V.
    pub kv: &'a [KvLayer],
    /// One per state of the model's, `[slots, elements]` in f32.
    pub states: &'a [Tensor],
}

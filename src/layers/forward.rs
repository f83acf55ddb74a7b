//! The inputs of a forward pass: the flattened tokens of a step, and where their KV cache is.

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
    /// `[num_seqs]`: the row of states that belongs to the sequence, different for each.
    pub state_slots: Vec<u32>,
    /// `[num_seqs]`: the slot of the token after this step's, `NO_SLOT` if none is allocated yet.
    /// Empty if no step is computed ahead.
    #[serde(skip)]
    pub next_slots: Vec<u32>,
    /// Rows (of `num_tokens`) whose logits are wanted, ascending.
    pub logits_rows: Vec<u32>,
    /// Rows whose last hidden states are wanted, ascending; they may be among those with logits.
    pub hidden_rows: Vec<u32>,
    /// The rows of each adapter. Other ranks don't get them, since adapters are not split.
    #[serde(skip)]
    pub adapters: Vec<AdaptedRows>,
    /// The parts of the batch that are on the device already.
    #[serde(skip)]
    pub on_device: OnDevice,
}

/// A batch's plan on the device, if kernels read it there. Equality of batches ignores it.
#[derive(Clone, Debug, Default)]
pub struct OnDevice(pub Option<Arc<StepTensors>>);

impl PartialEq for OnDevice {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for OnDevice {}

impl ForwardBatch {
    /// Token ids.
    pub fn ids(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.input_ids);
        Numbers { host: &self.input_ids, on_device }
    }

    /// Positions of tokens in their sequences.
    pub fn token_positions(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.positions);
        Numbers { host: &self.positions, on_device }
    }

    /// Slots of keys and values.
    pub(super) fn slots(&self) -> Numbers<'_> {
        let on_device = self.on_device.0.as_deref().map(|tensors| &tensors.slots);
        Numbers { host: &self.slot_mapping, on_device }
    }

    /// The sequences, as attention takes them.
    pub(super) fn ragged(&self) -> Ragged<'_> {
        Ragged {
            positions: &self.positions,
            block_tables: &self.block_tables,
            cu_seqlens_q: &self.cu_seqlens_q,
            context_lens: &self.context_lens,
            on_device: self.on_device.0.as_deref(),
        }
    }

    /// The batch with its plan moved to `device`, if kernels there read it.
    pub fn moved_to(&self, device: &Device) -> Result<Cow<'_, Self>> {
        if !step_tensors::wanted(device) {
            return Ok(Cow::Borrowed(self));
        }
        let on_device = OnDevice(Some(Arc::new(self.plan().to_device(device)?)));
        Ok(Cow::Owned(Self { on_device, ..self.clone() }))
    }

    /// The parts of the batch that kernels on a GPU read.
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

    /// The sequences, as recurrences take them.
    pub(super) fn runs(&self) -> Runs<'_> {
        Runs {
            cu_seqlens_q: &self.cu_seqlens_q,
            positions: &self.positions,
            slots: &self.state_slots,
            on_device: self.on_device.0.as_deref(),
        }
    }
}

/// The KV cache of one layer, with the shapes of [`KvFormat::key_dims`] and
/// [`KvFormat::value_dims`].
#[derive(Clone, Debug)]
pub struct KvLayer {
    /// Keys, after the rotation.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
}

/// The shape of the KV cache and of recurrent states of a model, from which startup plans memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvShape {
    /// The heads of each layer that has a KV cache.
    pub layers: Vec<KvHeads>,
    /// Number of elements of each recurrent state of a sequence.
    pub states: Vec<usize>,
}

/// Number and sizes of the heads in one layer's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHeads {
    /// Number of KV heads.
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

    /// Tensors of the states, `[slots, elements]` of zeros in f32.
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

    /// The KV cache of a layer, `[num_blocks, ..]`, whose tensors `tensor` allocates by shape.
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

/// The memory that a forward pass reads and writes besides its batch.
#[derive(Debug)]
pub struct ForwardContext<'a> {
    /// Device of activations.
    pub device: &'a Device,
    /// The KV cache of each layer that has one.
    pub kv: &'a [KvLayer],
    /// The recurrent states, `[slots, elements]` in f32 each.
    pub states: &'a [Tensor],
}

//! The inputs of a forward pass: the flattened tokens of a step, and where their KV cache is.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Device, Result, Tensor, bail};
use serde::{Deserialize, Serialize};

pub use super::adapter::{AdaptedRows, Adapter};
pub use crate::kernels::cache::kv_format::KvFormat;
pub use crate::kernels::cuda::graph::{CudaGraph, check_device};
pub use crate::kernels::sample::{DeviceLogits, StartedDraws};
use crate::kernels::step::is_read_on;
pub use crate::kernels::step::{Indices, NO_SLOT, Step, StepSizes, StepTensors};

/// KV blocks hold this many tokens, on every device.
pub const BLOCK_SIZE: usize = 32;

/// A step, and what is wanted of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardBatch {
    /// The tokens.
    pub step: Step,
    /// `[num_seqs]`: the slot of the token after this step's, `NO_SLOT` if none is allocated yet.
    /// Empty if no step is computed ahead.
    #[serde(skip)]
    pub next_slots: Vec<u32>,
    /// Rows (of `num_tokens`) whose logits are wanted, ascending.
    pub logits_rows: Vec<u32>,
    /// Rows whose last hidden states are wanted, ascending; they may be among those with logits.
    pub hidden_rows: Vec<u32>,
    /// Inputs of layers that are wanted. Other ranks don't get them, since nothing drafts there.
    #[serde(skip)]
    pub taps: Taps,
    /// The rows of each adapter. Other ranks don't get them, since adapters are not split.
    #[serde(skip)]
    pub adapters: Vec<AdaptedRows>,
    /// The rows at which pictures are seen, in order.
    pub pictures: Vec<PictureRows>,
    /// What a head that drafts joins with the tokens' embeddings, or what a stage of layers goes on from,
    /// instead of the tokens; no other model has any. Other ranks don't get them with the batch: heads
    /// are not split, and stages get them from the stage before.
    #[serde(skip)]
    pub previous_hidden: Option<PreviousHidden>,
}

/// Layers whose inputs are wanted, and of which rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taps {
    /// The layers, ascending.
    pub layers: Vec<usize>,
    /// The rows, ascending.
    pub rows: Vec<u32>,
}

/// Hidden states, `[num_tokens, hidden]` in f32: those from which the tokens of a step were predicted, or
/// of each the inputs of layers that a head needs instead; or those after the layers of earlier stages.
#[derive(Clone, Debug)]
pub struct PreviousHidden(pub Tensor);

/// Equal is the same tensor, not one with equal elements.
impl PartialEq for PreviousHidden {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for PreviousHidden {}

/// Consecutive rows of a step at which a picture is seen, or a part of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PictureRows {
    /// The first of the rows.
    pub first: usize,
    /// `[rows, width]` in f32: what a vision tower gives for each of them; the width is the hidden
    /// size, times one more than the number of layers after which features are added.
    #[serde(with = "features")]
    pub features: Tensor,
}

/// Features on their way to another rank, which gets them on its host.
mod features {
    use candle_core::{Device, Tensor};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de, ser};

    pub(super) fn serialize<S: Serializer>(features: &Tensor, to: S) -> Result<S::Ok, S::Error> {
        let numbers = features.flatten_all().and_then(|all| all.to_vec1::<f32>());
        let numbers = numbers.map_err(ser::Error::custom)?;
        (features.dims2().map_err(ser::Error::custom)?, numbers).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tensor, D::Error> {
        let (shape, numbers) = <((usize, usize), Vec<f32>)>::deserialize(from)?;
        Tensor::from_vec(numbers, shape, &Device::Cpu).map_err(de::Error::custom)
    }
}

impl PictureRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.features.dims()[0]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equal are rows with the same features, not with equal ones.
impl PartialEq for PictureRows {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && self.features.id() == other.features.id()
    }
}

impl Eq for PictureRows {}

impl ForwardBatch {
    /// The rows whose logits or hidden states are wanted, ascending.
    pub fn wanted_rows(&self) -> Vec<u32> {
        if self.hidden_rows.is_empty() {
            return self.logits_rows.clone();
        }
        let mut rows = [&self.logits_rows[..], &self.hidden_rows[..]].concat();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The batch with its step copied to `device`, if kernels there read it.
    pub fn on(&self, device: &Device) -> Result<Cow<'_, Self>> {
        if !is_read_on(device) {
            return Ok(Cow::Borrowed(self));
        }
        let mut copied = self.clone();
        copied.step = copied.step.with_tensors(self.step.to_device(device)?);
        Ok(Cow::Owned(copied))
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
    /// What may end the pass before its last layer. Keys and values that it has written by then are
    /// those that are written when the same tokens are computed again.
    pub interruption: Option<&'a Interruption>,
}

impl ForwardContext<'_> {
    /// # Errors
    ///
    /// The pass is to end here.
    pub fn check_interruption(&self) -> Result<()> {
        self.interruption.map_or(Ok(()), Interruption::check)
    }
}

/// Asks a forward pass to end early, from another thread.
#[derive(Debug, Default)]
pub struct Interruption {
    asked: AtomicBool,
    followed: AtomicBool,
}

impl Interruption {
    /// Asks the pass that runs, or else the next one.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Asks no longer.
    pub fn withdraw(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Whether a pass has ended early since the last call.
    pub fn take_followed(&self) -> bool {
        self.followed.swap(false, Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if self.asked.load(Ordering::Relaxed) {
            self.followed.store(true, Ordering::Relaxed);
            bail!("the step was given up for others");
        }
        Ok(())
    }
}

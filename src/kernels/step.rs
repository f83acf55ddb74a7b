//! One step: the tokens of all its sequences, flattened, and where their caches and states are.
//!
//! A step is made on the host. Kernels on a GPU read a copy, moved there once for all layers.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};
use serde::{Deserialize, Serialize};

use super::backend::Backend;
use super::cuda::launch::{overwrite, upload};

/// The slot of a token whose key and value are written nowhere, and of a sequence whose state is
/// neither read nor written.
pub const NO_SLOT: u32 = u32::MAX;

/// A step's tokens, flattened over sequences: no padding, prefill chunks and single tokens alike.
///
/// Sequence `s` owns rows `cu_seqlens_q[s]..cu_seqlens_q[s + 1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `[num_tokens]`
    pub input_ids: Vec<u32>,
    /// `[num_tokens]`: absolute position of each token in its sequence.
    pub positions: Vec<u32>,
    /// `[num_tokens]`: each token's position in time, its row and its column, for rotary embeddings that
    /// tell them apart; or empty where all three are the position in the sequence.
    pub rope_positions: Vec<[u32; 3]>,
    /// `[num_tokens]`: the position behind the last one that each token sees, if that is not its own; or
    /// empty where no token sees any behind its own. The step has all tokens up to there.
    pub attention_ends: Vec<u32>,
    /// `[num_tokens]`: the first position that each token sees where that is before its window, with
    /// `attention_ends`; or empty where windows say it.
    pub attention_starts: Vec<u32>,
    /// `[num_tokens]`: where each token's K and V go, `block * block_size + offset`.
    pub slots: Vec<u32>,
    /// `[num_seqs + 1]`: row ranges, ascending from 0 to `num_tokens`.
    pub cu_seqlens_q: Vec<u32>,
    /// `[num_seqs]`: tokens in the KV cache once this step has written its own.
    pub context_lens: Vec<u32>,
    /// `[num_seqs]`: tokens of each sequence that are known, computed or not.
    pub sequence_lens: Vec<u32>,
    /// `[num_seqs]`: the row of states that belongs to the sequence, different for each; or empty
    /// where no layer keeps states.
    pub state_slots: Vec<u32>,
    /// `[num_seqs]` rows: the blocks of each sequence in order of position.
    pub block_tables: Vec<Vec<u32>>,
    /// The copy on the device; [`Self::with_tensors`] sets it.
    #[serde(skip)]
    pub device_copy: DeviceCopy,
}

/// A step's copy on the device, if there is one. Equality of steps ignores it.
#[derive(Clone, Debug, Default)]
pub struct DeviceCopy(Option<Arc<StepTensors>>);

impl PartialEq for DeviceCopy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DeviceCopy {}

/// A step as u32 tensors on the device.
#[derive(Clone, Debug)]
pub struct StepTensors {
    /// `[num_tokens]`
    pub input_ids: Tensor,
    /// `[num_tokens]`: positions in their sequences.
    pub positions: Tensor,
    /// `[num_tokens]`: where keys and values go.
    pub slots: Tensor,
    /// `[num_tokens]`: known tokens of each one's sequence.
    pub lengths: Tensor,
    /// `[num_tokens]`: see [`Step::attention_ends`].
    pub attention_ends: Option<Tensor>,
    /// `[num_tokens]`: see [`Step::attention_starts`].
    pub attention_starts: Option<Tensor>,
    /// `[num_seqs + 1]`: ranges of rows.
    pub cu_seqlens_q: Tensor,
    /// `[num_seqs]`: positions in the cache.
    pub context_lens: Tensor,
    /// `[num_seqs]`: rows of states.
    pub state_slots: Tensor,
    /// `[num_seqs, most blocks of one]`: blocks in order of position.
    pub block_tables: Tensor,
    /// At least as long as the longest context.
    pub longest_context: usize,
}

/// Whether kernels on this device read a step there.
pub fn is_read_on(device: &Device) -> bool {
    Backend::of(device).is_cuda()
}

/// A vector of a step on the host, and its copy on the device, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Indices<'a> {
    /// The elements on the host.
    pub host: &'a [u32],
    /// The elements on the device.
    pub on_device: Option<&'a Tensor>,
}

impl<'a> From<&'a [u32]> for Indices<'a> {
    fn from(host: &'a [u32]) -> Self {
        Self { host, on_device: None }
    }
}

impl Indices<'_> {
    /// The elements on the device, copied there if need be.
    pub fn to_device(self, device: &Device) -> Result<Tensor> {
        self.on_device.map_or_else(|| Tensor::new(self.host, device), |tensor| Ok(tensor.clone()))
    }
}

/// How many tokens, sequences and blocks a step's buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepSizes {
    /// Tokens.
    pub tokens: usize,
    /// Sequences.
    pub seqs: usize,
    /// Blocks of one sequence.
    pub blocks: usize,
}

impl Step {
    /// The rows of a sequence.
    pub(crate) fn rows(&self, seq: usize) -> Range<usize> {
        self.cu_seqlens_q[seq] as usize..self.cu_seqlens_q[seq + 1] as usize
    }

    /// The copy on the device, if there is one.
    pub fn tensors(&self) -> Option<&StepTensors> {
        self.device_copy.0.as_deref()
    }

    fn indices<'a>(
        &'a self,
        host: &'a [u32],
        on_device: fn(&StepTensors) -> &Tensor,
    ) -> Indices<'a> {
        Indices { host, on_device: self.tensors().map(on_device) }
    }

    /// Token ids, `[num_tokens]`.
    pub fn ids(&self) -> Indices<'_> {
        self.indices(&self.input_ids, |tensors| &tensors.input_ids)
    }

    /// Positions of tokens in their sequences, `[num_tokens]`.
    pub fn token_positions(&self) -> Indices<'_> {
        self.indices(&self.positions, |tensors| &tensors.positions)
    }

    /// Where keys and values go, `[num_tokens]`.
    pub fn kv_slots(&self) -> Indices<'_> {
        self.indices(&self.slots, |tensors| &tensors.slots)
    }

    /// Ranges of rows, `[num_seqs + 1]`.
    pub(crate) fn row_bounds(&self) -> Indices<'_> {
        self.indices(&self.cu_seqlens_q, |tensors| &tensors.cu_seqlens_q)
    }

    /// Rows of states, `[num_seqs]`.
    pub(crate) fn states(&self) -> Indices<'_> {
        self.indices(&self.state_slots, |tensors| &tensors.state_slots)
    }

    /// The step with `tensors` as its copy.
    #[must_use]
    pub fn with_tensors(self, tensors: StepTensors) -> Self {
        Self { device_copy: DeviceCopy(Some(Arc::new(tensors))), ..self }
    }

    /// The sizes that this step needs.
    pub fn sizes(&self) -> StepSizes {
        StepSizes {
            tokens: self.positions.len(),
            seqs: self.context_lens.len(),
            blocks: self.block_tables.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// All vectors of the step one behind the other, padded to `sizes` with sequences of one token
    /// each, at their start, that write nothing.
    fn flat(&self, sizes: StepSizes) -> Result<Vec<u32>> {
        let StepSizes { tokens, seqs, blocks } = sizes;
        let own = self.sizes();
        let more = tokens.checked_sub(own.tokens);
        if own.blocks > blocks || more.is_none() || more != seqs.checked_sub(own.seqs) {
            bail!("a step of {own:?} in a buffer for {sizes:?}");
        }
        let mut flat = Vec::with_capacity(sizes.len());
        let mut add = |part: &[u32], len: usize, padding: u32| {
            flat.extend_from_slice(part);
            flat.resize(flat.len() + len - part.len(), padding);
        };
        add(&self.input_ids, tokens, 0);
        add(&self.positions, tokens, 0);
        add(&self.slots, tokens, NO_SLOT);
        let bounds = self.cu_seqlens_q.windows(2).zip(&self.sequence_lens);
        let lengths = bounds.flat_map(|(rows, length)| (rows[0]..rows[1]).map(|_| *length));
        add(&lengths.collect::<Vec<_>>(), tokens, 1);
        add(&self.cu_seqlens_q, own.seqs + 1, 0);
        for row in own.tokens + 1..=tokens {
            add(&[u32::try_from(row).map_err(candle_core::Error::wrap)?], 1, 0);
        }
        add(&self.context_lens, seqs, 1);
        add(&self.state_slots, seqs, NO_SLOT);
        for table in &self.block_tables {
            add(table, blocks, 0);
        }
        add(&[], (seqs - own.seqs) * blocks, 0);
        Ok(flat)
    }

    /// Copies the step to `device`.
    pub fn to_device(&self, device: &Device) -> Result<StepTensors> {
        let sizes = self.sizes();
        let all = upload(self.flat(sizes)?, sizes.len(), device)?;
        let longest = self.context_lens.iter().max().copied().unwrap_or(0);
        let named = |numbers: &Vec<u32>| {
            let some = (!numbers.is_empty()).then(|| numbers.clone());
            some.map(|numbers| upload(numbers, sizes.tokens, device)).transpose()
        };
        Ok(StepTensors {
            attention_ends: named(&self.attention_ends)?,
            attention_starts: named(&self.attention_starts)?,
            ..StepTensors::in_buffer(&all, sizes, longest as usize)?
        })
    }

    /// Overwrites the buffer of tensors that were made with `sizes`, which must hold the step.
    pub fn overwrite(&self, buffer: &Tensor, sizes: StepSizes) -> Result<()> {
        overwrite(buffer, self.flat(sizes)?)
    }
}

impl StepSizes {
    /// Elements of all vectors together.
    #[expect(clippy::len_without_is_empty, reason = "a step is never empty")]
    pub fn len(self) -> usize {
        4 * self.tokens + 3 * self.seqs + 1 + self.seqs * self.blocks
    }
}

impl StepTensors {
    /// Parts of `buffer`, which is as long as `sizes` say. No token sees any behind its own.
    pub fn in_buffer(buffer: &Tensor, sizes: StepSizes, longest_context: usize) -> Result<Self> {
        let StepSizes { tokens, seqs, blocks } = sizes;
        let mut start = 0;
        let mut next = |len: usize| {
            let part = buffer.narrow(0, start, len);
            start += len;
            part
        };
        Ok(Self {
            input_ids: next(tokens)?,
            positions: next(tokens)?,
            slots: next(tokens)?,
            lengths: next(tokens)?,
            attention_ends: None,
            attention_starts: None,
            cu_seqlens_q: next(seqs + 1)?,
            context_lens: next(seqs)?,
            state_slots: next(seqs)?,
            block_tables: next(seqs * blocks)?.reshape((seqs, blocks))?,
            longest_context,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Step {
        Step {
            input_ids: vec![5, 6, 7],
            positions: vec![31, 32, 2],
            slots: vec![95, 96, 34],
            cu_seqlens_q: vec![0, 2, 3],
            context_lens: vec![33, 3],
            sequence_lens: vec![40, 3],
            state_slots: vec![9, 4],
            block_tables: vec![vec![2, 3], vec![1]],
            ..Step::default()
        }
    }

    fn numbers(tensor: &Tensor) -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn parts_are_found_again_with_padding_behind_them() {
        let step = step();
        let tensors = step.to_device(&Device::Cpu).unwrap();
        assert_eq!(numbers(&tensors.slots), [95, 96, 34]);
        assert_eq!(numbers(&tensors.lengths), [40, 40, 3]);
        assert_eq!(numbers(&tensors.block_tables), [2, 3, 1, 0]);
        assert_eq!(tensors.longest_context, 33);

        let sizes = StepSizes { tokens: 4, seqs: 3, blocks: 3 };
        let buffer = Tensor::zeros(sizes.len(), candle_core::DType::U32, &Device::Cpu).unwrap();
        let tensors = StepTensors::in_buffer(&buffer, sizes, 96).unwrap();
        step.overwrite(&buffer, sizes).unwrap();
        assert_eq!(numbers(&tensors.input_ids), [5, 6, 7, 0]);
        assert_eq!(numbers(&tensors.slots), [95, 96, 34, u32::MAX]);
        assert_eq!(numbers(&tensors.lengths), [40, 40, 3, 1]);
        assert_eq!(numbers(&tensors.cu_seqlens_q), [0, 2, 3, 4]);
        assert_eq!(numbers(&tensors.context_lens), [33, 3, 1]);
        assert_eq!(numbers(&tensors.state_slots), [9, 4, u32::MAX]);
        assert_eq!(numbers(&tensors.block_tables), [2, 3, 0, 1, 0, 0, 0, 0, 0]);
        let narrow = StepSizes { blocks: 1, ..sizes };
        assert!(step.overwrite(&buffer, narrow).is_err());
    }
}

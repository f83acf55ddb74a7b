//! A step's plan where GPU kernels can read it: moved once, for all layers.

use candle_core::{Device, Result, Tensor, bail};

use super::backend::Backend;

/// The slot of a token whose key and value are written nowhere, and of a sequence whose state is
/// neither read nor written.
pub const NO_SLOT: u32 = u32::MAX;

/// A step's plan as u32 tensors on the device.
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

/// A step's plan on the host.
#[derive(Clone, Copy, Debug)]
pub struct StepPlan<'a> {
    /// `[num_tokens]`
    pub input_ids: &'a [u32],
    /// `[num_tokens]`
    pub positions: &'a [u32],
    /// `[num_tokens]`
    pub slots: &'a [u32],
    /// `[num_seqs + 1]`
    pub cu_seqlens_q: &'a [u32],
    /// `[num_seqs]`
    pub context_lens: &'a [u32],
    /// `[num_seqs]`
    pub sequence_lens: &'a [u32],
    /// `[num_seqs]`, or empty where no layer keeps states.
    pub state_slots: &'a [u32],
    /// `[num_seqs]` rows.
    pub block_tables: &'a [Vec<u32>],
}

/// Whether kernels on this device read a step's plan there.
pub fn wanted(device: &Device) -> bool {
    Backend::of(device).is_cuda()
}

/// A vector of a step's plan on the host, and its copy on the device, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// The elements on the host.
    pub host: &'a [u32],
    /// The elements on the device.
    pub on_device: Option<&'a Tensor>,
}

impl<'a> From<&'a [u32]> for Numbers<'a> {
    fn from(host: &'a [u32]) -> Self {
        Self { host, on_device: None }
    }
}

impl Numbers<'_> {
    /// The elements on the device, copied there if need be.
    pub fn to_device(self, device: &Device) -> Result<Tensor> {
        self.on_device.map_or_else(|| Tensor::new(self.host, device), |tensor| Ok(tensor.clone()))
    }
}

/// How many tokens, sequences and blocks a plan's buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepSizes {
    /// Tokens.
    pub tokens: usize,
    /// Sequences.
    pub seqs: usize,
    /// Blocks of one sequence.
    pub blocks: usize,
}

impl StepPlan<'_> {
    /// The sizes that this plan needs.
    pub fn sizes(&self) -> StepSizes {
        StepSizes {
            tokens: self.input_ids.len(),
            seqs: self.context_lens.len(),
            blocks: self.block_tables.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// All vectors of the plan one behind the other, padded to `sizes` with sequences of one token
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
        add(self.input_ids, tokens, 0);
        add(self.positions, tokens, 0);
        add(self.slots, tokens, NO_SLOT);
        let bounds = self.cu_seqlens_q.windows(2).zip(self.sequence_lens);
        let lengths = bounds.flat_map(|(rows, length)| (rows[0]..rows[1]).map(|_| *length));
        add(&lengths.collect::<Vec<_>>(), tokens, 1);
        add(self.cu_seqlens_q, own.seqs + 1, 0);
        for row in own.tokens + 1..=tokens {
            add(&[u32::try_from(row).map_err(candle_core::Error::wrap)?], 1, 0);
        }
        add(self.context_lens, seqs, 1);
        add(self.state_slots, seqs, NO_SLOT);
        for table in self.block_tables {
            add(table, blocks, 0);
        }
        add(&[], (seqs - own.seqs) * blocks, 0);
        Ok(flat)
    }

    /// Copies the plan to `device`.
    pub fn to_device(&self, device: &Device) -> Result<StepTensors> {
        let sizes = self.sizes();
        let all = Tensor::from_vec(self.flat(sizes)?, sizes.len(), device)?;
        let longest = self.context_lens.iter().max().copied().unwrap_or(0);
        StepTensors::in_buffer(&all, sizes, longest as usize)
    }

    /// Overwrites the buffer of tensors that were made with `sizes`, which must hold the plan.
    pub fn overwrite(&self, buffer: &Tensor, sizes: StepSizes) -> Result<()> {
        let flat = Tensor::from_vec(self.flat(sizes)?, sizes.len(), buffer.device())?;
        buffer.slice_set(&flat, 0, 0)
    }
}

impl StepSizes {
    /// Elements of all vectors together.
    #[expect(clippy::len_without_is_empty, reason = "a plan is never empty")]
    pub fn len(self) -> usize {
        4 * self.tokens + 3 * self.seqs + 1 + self.seqs * self.blocks
    }
}

impl StepTensors {
    /// Parts of `buffer`, which is as long as `sizes` say.
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

    const PLAN: StepPlan<'_> = StepPlan {
        input_ids: &[5, 6, 7],
        positions: &[31, 32, 2],
        slots: &[95, 96, 34],
        cu_seqlens_q: &[0, 2, 3],
        context_lens: &[33, 3],
        sequence_lens: &[40, 3],
        state_slots: &[9, 4],
        block_tables: &[],
    };

    fn numbers(tensor: &Tensor) -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn parts_are_found_again_with_padding_behind_them() {
        let tables = [vec![2, 3], vec![1]];
        let plan = StepPlan { block_tables: &tables, ..PLAN };
        let tensors = plan.to_device(&Device::Cpu).unwrap();
        assert_eq!(numbers(&tensors.slots), [95, 96, 34]);
        assert_eq!(numbers(&tensors.lengths), [40, 40, 3]);
        assert_eq!(numbers(&tensors.block_tables), [2, 3, 1, 0]);
        assert_eq!(tensors.longest_context, 33);

        let sizes = StepSizes { tokens: 4, seqs: 3, blocks: 3 };
        let buffer = Tensor::zeros(sizes.len(), candle_core::DType::U32, &Device::Cpu).unwrap();
        let tensors = StepTensors::in_buffer(&buffer, sizes, 96).unwrap();
        plan.overwrite(&buffer, sizes).unwrap();
        assert_eq!(numbers(&tensors.input_ids), [5, 6, 7, 0]);
        assert_eq!(numbers(&tensors.slots), [95, 96, 34, u32::MAX]);
        assert_eq!(numbers(&tensors.lengths), [40, 40, 3, 1]);
        assert_eq!(numbers(&tensors.cu_seqlens_q), [0, 2, 3, 4]);
        assert_eq!(numbers(&tensors.context_lens), [33, 3, 1]);
        assert_eq!(numbers(&tensors.state_slots), [9, 4, u32::MAX]);
        assert_eq!(numbers(&tensors.block_tables), [2, 3, 0, 1, 0, 0, 0, 0, 0]);
        let narrow = StepSizes { blocks: 1, ..sizes };
        assert!(plan.overwrite(&buffer, narrow).is_err());
    }
}

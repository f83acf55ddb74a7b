//! A minimal engine over `CausalLm`: sequences with block tables over one paged cache, and steps
//! that the test decides.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use sconce::layers::forward::{
    AdaptedRows, Adapter, BLOCK_SIZE, ForwardBatch, ForwardContext, KvFormat, KvHeads, KvLayer,
};
use sconce::models::{CausalLm, ForwardOutput};

use super::device;

/// Index of a sequence.
pub(super) type Seq = usize;
/// A row of logits for some of the sequences.
pub(super) type Rows = Vec<(Seq, Vec<f32>)>;

/// Places for states; 37 has no divisor in common with it.
const SLOTS: usize = 64;

struct Sequence {
    tokens: Vec<u32>,
    computed: usize,
    blocks: Vec<u32>,
    adapter: Option<Arc<Adapter>>,
}

/// Numbers that spoil every sum they get into.
fn poisoned(format: KvFormat, dims: [usize; 4]) -> Tensor {
    if format == KvFormat::Q8_0 {
        // All bits set: scales that are no number.
        return Tensor::full(u8::MAX, &dims, device()).unwrap();
    }
    // Not made where it is needed: no kernel of the tensor library rounds to 8-bit floats on a GPU.
    let spoiled = Tensor::full(f32::NAN, &dims, &Device::Cpu).unwrap();
    spoiled.to_dtype(format.dtype()).unwrap().to_device(device()).unwrap()
}

/// One model and its cache.
pub(super) struct Driver {
    model: Box<dyn CausalLm>,
    kv: Vec<KvLayer>,
    states: Vec<Tensor>,
    sequences: Vec<Sequence>,
    /// Blocks nobody has, the next one last.
    free: Vec<u32>,
}

impl Driver {
    /// A cache of `num_blocks` blocks, handed out in ascending order or, with a seed, in a
    /// shuffled one. It starts full of numbers that must never be read.
    pub(super) fn new(
        model: Box<dyn CausalLm>,
        format: KvFormat,
        num_blocks: u32,
        shuffle: Option<u64>,
    ) -> Self {
        let poisoned = |dims| Ok::<_, candle_core::Error>(poisoned(format, dims));
        let layer = |heads: &KvHeads| heads.layer(num_blocks as usize, format, poisoned).unwrap();
        let kv = model.kv_shape().layers.iter().map(layer).collect();
        let states = model.kv_shape().states(SLOTS, device()).unwrap();
        let states = states.iter().map(|state| (state.ones_like().unwrap() * f64::NAN).unwrap());
        let states = states.collect();
        let mut free: Vec<u32> = (0..num_blocks).rev().collect();
        if let Some(mut state) = shuffle {
            for i in (1..free.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let j = usize::try_from(state >> 33).unwrap() % (i + 1);
                free.swap(i, j);
            }
        }
        Self { model, kv, states, sequences: Vec::new(), free }
    }

    pub(super) fn add(&mut self, tokens: &[u32]) -> Seq {
        self.add_adapted(tokens, None)
    }

    pub(super) fn add_adapted(&mut self, tokens: &[u32], adapter: Option<Arc<Adapter>>) -> Seq {
        let (tokens, blocks) = (tokens.to_vec(), Vec::new());
        self.sequences.push(Sequence { tokens, computed: 0, blocks, adapter });
        self.sequences.len() - 1
    }

    /// Whether sequences have states, which no other sequence can go on from.
    pub(super) fn keeps_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// A sequence that begins with `shared` tokens of another one, whole blocks, whose keys and
    /// values are those of the other.
    pub(super) fn add_behind(&mut self, other: Seq, shared: usize, tokens: &[u32]) -> Seq {
        let other = &self.sequences[other];
        assert!(shared.is_multiple_of(BLOCK_SIZE) && shared <= other.computed);
        assert_eq!(tokens[..shared], other.tokens[..shared]);
        let blocks = other.blocks[..shared / BLOCK_SIZE].to_vec();
        self.sequences.push(Sequence {
            tokens: tokens.to_vec(),
            computed: shared,
            blocks,
            adapter: None,
        });
        self.sequences.len() - 1
    }

    pub(super) fn push(&mut self, seq: Seq, token: u32) {
        let longest = self.model.fixed_rope_length();
        let sequence = &mut self.sequences[seq];
        sequence.tokens.push(token);
        // All of it is computed otherwise from here on.
        if longest == Some(sequence.tokens.len() - 1) {
            sequence.computed = 0;
        }
    }

    pub(super) fn remaining(&self, seq: Seq) -> usize {
        self.sequences[seq].tokens.len() - self.sequences[seq].computed
    }

    /// Runs `(sequence, tokens)` in one batch; logits of each sequence that reached its end.
    pub(super) fn step(&mut self, plan: &[(Seq, usize)]) -> Vec<(Seq, Vec<f32>)> {
        self.run(plan, false).1
    }

    /// The same, and before it the hidden states of all tokens, sequence by sequence.
    pub(super) fn hidden(&mut self, plan: &[(Seq, usize)]) -> (Vec<Vec<Vec<f32>>>, Rows) {
        let (mut states, logits) = self.run(plan, true);
        let of_each = plan.iter().map(|(_, count)| states.drain(..*count).collect()).collect();
        (of_each, logits)
    }

    /// The inputs of these layers at the next `count` tokens of a sequence, each token's one behind the
    /// other.
    pub(super) fn tapped(&mut self, seq: Seq, count: usize, layers: &[usize]) -> Vec<Vec<f32>> {
        let mut batch = ForwardBatch::default();
        batch.step.cu_seqlens_q.push(0);
        self.plan(seq, count, &mut batch);
        batch.taps.layers = layers.to_vec();
        batch.taps.rows = (0..u32::try_from(count).unwrap()).collect();
        let context = ForwardContext {
            device: device(),
            kv: &self.kv,
            states: &self.states,
            interruption: None,
        };
        let output = self.model.forward(&context, &batch.on(device()).unwrap()).unwrap();
        output.tapped.unwrap().to_vec2().unwrap()
    }

    fn run(&mut self, plan: &[(Seq, usize)], hidden: bool) -> (Vec<Vec<f32>>, Rows) {
        let mut batch = ForwardBatch::default();
        batch.step.cu_seqlens_q.push(0);
        let mut sampled = Vec::new();
        for (seq, count) in plan {
            self.plan(*seq, *count, &mut batch);
            if self.remaining(*seq) == 0 {
                batch.logits_rows.push(u32::try_from(batch.step.input_ids.len()).unwrap() - 1);
                sampled.push(*seq);
            }
        }
        if hidden {
            batch.hidden_rows = (0..u32::try_from(batch.step.input_ids.len()).unwrap()).collect();
        }
        let context = ForwardContext {
            device: device(),
            kv: &self.kv,
            states: &self.states,
            interruption: None,
        };
        let ForwardOutput { logits, hidden, .. } =
            self.model.forward(&context, &batch.on(device()).unwrap()).unwrap();
        assert_eq!(logits.dims(), [sampled.len(), self.model.vocab_size()]);
        let rows: Vec<Vec<f32>> =
            if sampled.is_empty() { Vec::new() } else { logits.to_vec2().unwrap() };
        let states = hidden.map_or_else(Vec::new, |hidden| hidden.to_vec2().unwrap());
        (states, sampled.into_iter().zip(rows).collect())
    }

    fn plan(&mut self, seq: Seq, count: usize, batch: &mut ForwardBatch) {
        let sequence = &mut self.sequences[seq];
        let end = sequence.computed + count;
        if let Some(adapter) = &sequence.adapter {
            let first = u32::try_from(batch.step.input_ids.len()).unwrap();
            let rows = first..first + u32::try_from(count).unwrap();
            let known = batch.adapters.iter_mut().find(|own| Arc::ptr_eq(&own.adapter, adapter));
            match known {
                Some(own) => own.rows.extend(rows),
                None => batch
                    .adapters
                    .push(AdaptedRows { adapter: adapter.clone(), rows: rows.collect() }),
            }
        }
        while sequence.blocks.len() * BLOCK_SIZE < end {
            sequence.blocks.push(self.free.pop().unwrap());
        }
        for position in sequence.computed..end {
            let block = sequence.blocks[position / BLOCK_SIZE] as usize;
            let slot = block * BLOCK_SIZE + position % BLOCK_SIZE;
            batch.step.input_ids.push(sequence.tokens[position]);
            batch.step.positions.push(u32::try_from(position).unwrap());
            batch.step.slots.push(u32::try_from(slot).unwrap());
        }
        batch.step.block_tables.push(sequence.blocks.clone());
        batch.step.cu_seqlens_q.push(u32::try_from(batch.step.input_ids.len()).unwrap());
        batch.step.context_lens.push(u32::try_from(end).unwrap());
        batch.step.sequence_lens.push(u32::try_from(sequence.tokens.len()).unwrap());
        batch.step.state_slots.push(u32::try_from((seq * 37 + 5) % SLOTS).unwrap());
        sequence.computed = end;
    }

    /// Runs a sequence to its end in chunks of at most `chunk` tokens; its logits.
    pub(super) fn finish(&mut self, seq: Seq, chunk: usize) -> Vec<f32> {
        loop {
            let count = chunk.min(self.remaining(seq));
            if let Some((_, logits)) = self.step(&[(seq, count)]).pop() {
                return logits;
            }
        }
    }
}

/// The most likely token.
pub(super) fn greedy(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    u32::try_from(best.0).unwrap()
}

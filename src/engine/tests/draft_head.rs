//! Drafts by a head, which goes on from the model's hidden states or from what its layers gave: always right
//! where they tell all there is to know, and the same answers anyway.

use std::sync::Mutex;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::draft_model::{STEP, assert_drafts_are_right, greedy, hash_model, plain};
use super::speculation::{cases, compare, exact, num_requests};
use super::*;
use crate::layers::forward::PreviousHidden;
use crate::models::DraftedBlock;

/// What was mixed with `value` to `hash`.
fn unmix(hash: u64, value: u64) -> u64 {
    hash.rotate_right(29).wrapping_mul(0xF1DE_83E1_9937_733D) ^ value.wrapping_add(1)
}

/// What the head may need: the last hidden states, or the inputs of layers.
const TAPS: [&[usize]; 2] = [&[], &[2, 5, 9]];

/// Goes on from the hash that is the model's hidden state.
struct HashHead {
    repeats: bool,
    /// The layers whose inputs it needs instead.
    taps: &'static [usize],
    /// Sequences whose cache was compared with the hash, and those of them that differed.
    compared: Option<Arc<[AtomicUsize; 2]>>,
}

impl HashHead {
    /// Whether the tokens in the cache, all but the first one, are those of a hash.
    fn is_cached(context: &ForwardContext<'_>, batch: &ForwardBatch, row: u32, hash: u64) -> bool {
        let sequence = batch.step.cu_seqlens_q.partition_point(|start| *start <= row) - 1;
        let table = &batch.step.block_tables[sequence];
        let cache = context.kv[0].k.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let tokens = (0..=batch.step.positions[row as usize] as usize).map(|position| {
            let slot = table[position / BLOCK_SIZE] as usize * BLOCK_SIZE;
            cache[slot + position % BLOCK_SIZE] as u64
        });
        let before = tokens.collect::<Vec<_>>().into_iter().rev().fold(hash, unmix);
        (0..u64::from(FAILS)).any(|first| mix(START, first) == before)
    }
}

impl CausalLm for HashHead {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let Some(PreviousHidden(hidden)) = &batch.previous_hidden else {
            candle_core::bail!("there are no hidden states");
        };
        let hidden = hidden.to_vec2::<f32>()?;
        let tokens = &batch.step.input_ids;
        assert_eq!(hidden.len(), tokens.len());
        // Its own where it goes on by itself, else those of all layers.
        let widths = [4, 4 * self.taps.len().max(1)];
        assert!(hidden.iter().all(|hidden| widths.contains(&hidden.len())));
        let hidden = hidden.iter().map(|hidden| &hidden[hidden.len() - 4..]);
        let hashes = hidden.zip(tokens).map(|(h, token)| mix(hash_of(h), u64::from(*token)));
        let hashes: Vec<u64> = hashes.collect();
        let cache = context.kv[0].k.flatten_all()?;
        for (token, slot) in tokens.iter().zip(&batch.step.slots) {
            cache.slice_set(&Tensor::new(&[*token as f32], &Device::Cpu)?, 0, *slot as usize)?;
        }
        let (mut logits, mut states) = (Vec::new(), Vec::new());
        for row in &batch.logits_rows {
            let hash = hashes[*row as usize];
            logits.extend(logits_behind(hash, tokens[*row as usize], self.repeats));
            states.extend(parts(hash));
            if let Some(compared) = &self.compared {
                let differs = !Self::is_cached(context, batch, *row, hash);
                compared[0].fetch_add(1, Ordering::Relaxed);
                compared[1].fetch_add(usize::from(differs), Ordering::Relaxed);
            }
        }
        assert_eq!(batch.hidden_rows, batch.logits_rows);
        let rows = batch.logits_rows.len();
        let hidden = Tensor::from_vec(states, (rows, 4), &Device::Cpu)?;
        let logits = Tensor::from_vec(logits, (rows, VOCAB), &Device::Cpu)?;
        Ok(ForwardOutput { logits, hidden: (rows > 0).then_some(hidden), tapped: None })
    }

    fn needs_hidden(&self) -> bool {
        true
    }

    fn taps(&self) -> &[usize] {
        self.taps
    }

    fn hidden_size(&self) -> usize {
        4
    }

    fn kv_shape(&self) -> KvShape {
        KvShape { layers: vec![KvHeads::new(1, 1)], states: Vec::new() }
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn max_position_embeddings(&self) -> usize {
        512
    }
}

/// Drafts blocks of tokens from the hashes that it was told, whose numbers it remembers in its cache.
struct HashBlocks {
    repeats: bool,
    last_drafts: bool,
    told: Mutex<Vec<u64>>,
}

const MASK: u32 = 1;

impl HashBlocks {
    fn new(repeats: bool, last_drafts: bool) -> Self {
        // What its own rows spoil.
        Self { repeats, last_drafts, told: Mutex::new(vec![0]) }
    }
}

impl CausalLm for HashBlocks {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let step = &batch.step;
        let cache = context.kv[0].k.flatten_all()?;
        let write = |slot: &u32, number: usize| {
            cache.slice_set(&Tensor::new(&[number as f32], &Device::Cpu)?, 0, *slot as usize)
        };
        let mut told = self.told.lock().unwrap();
        let mut logits: Vec<f32> = Vec::new();
        if let Some(PreviousHidden(hidden)) = &batch.previous_hidden {
            assert!(batch.logits_rows.is_empty() && hidden.dim(0)? == step.input_ids.len());
            for (slot, hidden) in step.slots.iter().zip(hidden.to_vec2::<f32>()?) {
                write(slot, told.len())?;
                told.push(hash_of(&hidden[hidden.len() - 4..]));
            }
        } else {
            assert_eq!(batch.logits_rows.len(), step.input_ids.len());
            for (bounds, table) in step.cu_seqlens_q.windows(2).zip(&step.block_tables) {
                let rows = bounds[0] as usize..bounds[1] as usize;
                assert!(step.input_ids[rows.start + 1..rows.end].iter().all(|id| *id == MASK));
                let (position, mut token) =
                    (step.positions[rows.start] as usize, step.input_ids[rows.start]);
                let mut hash = START;
                if let Some(before) = position.checked_sub(1) {
                    let slot = table[before / BLOCK_SIZE] as usize * BLOCK_SIZE;
                    let number = cache.get(slot + before % BLOCK_SIZE)?.to_scalar::<f32>()?;
                    hash = told[number as usize];
                }
                if !self.last_drafts {
                    logits.extend([0.0; VOCAB]);
                }
                for _ in usize::from(!self.last_drafts)..rows.len() {
                    hash = mix(hash, u64::from(token));
                    let own: Vec<f32> = logits_behind(hash, token, self.repeats).collect();
                    token = crate::sampling::most_likely::most_likely(&own).unwrap().0;
                    logits.extend(own);
                }
                // Its own rows spoil what is there until the model comes to it.
                step.slots[rows].iter().try_for_each(|slot| write(slot, 0))?;
            }
        }
        let logits = Tensor::from_vec(logits, (batch.logits_rows.len(), VOCAB), &Device::Cpu)?;
        Ok(ForwardOutput { logits, hidden: None, tapped: None })
    }

    fn needs_hidden(&self) -> bool {
        true
    }

    fn taps(&self) -> &[usize] {
        TAPS[1]
    }

    fn block(&self) -> Option<DraftedBlock> {
        let last_drafts = self.last_drafts;
        Some(DraftedBlock { name: "dflash", mask: MASK, tokens: 5, last_drafts })
    }

    fn hidden_size(&self) -> usize {
        4
    }

    fn kv_shape(&self) -> KvShape {
        KvShape { layers: vec![KvHeads::new(1, 1)], states: Vec::new() }
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn max_position_embeddings(&self) -> usize {
        512
    }
}

fn in_blocks(memory: Memory, drafter: HashBlocks, config: &EngineConfig) -> Running {
    let model = HashModel { tells: true, ..hash_model(memory, drafter.repeats, STEP) };
    start_drafted(model, Some(Box::new(drafter)), config, Arc::new(Disk)).0
}

#[test]
fn blocks_are_drafted_behind_all_that_the_model_had() {
    for last_drafts in [false, true] {
        assert_drafts_are_right(|memory, config| {
            in_blocks(memory, HashBlocks::new(false, last_drafts), config)
        });
    }
}

#[test]
fn answers_with_drafted_blocks_are_those_of_decoding_token_by_token() {
    let mut rng = StdRng::seed_from_u64(17);
    let memories = [Memory::Blocks, Memory::State, Memory::StateAlone];
    let of_each = num_requests().div_ceil(cases(2).len() * memories.len());
    for memory in memories {
        let plain = plain(memory, true);
        for ((case, config), last_drafts) in
            cases(2).into_iter().zip([false, true].into_iter().cycle())
        {
            let running = in_blocks(memory, HashBlocks::new(true, last_drafts), &config);
            compare(&format!("{case}, {memory:?}"), &running, &plain, of_each, &mut rng);
        }
    }
}

fn headed(memory: Memory, head: HashHead, config: &EngineConfig) -> Running {
    // Comparing takes time, which is to pay all the same.
    let step_time = if head.compared.is_some() { 10 * STEP } else { STEP };
    let model = HashModel { tells: true, ..hash_model(memory, head.repeats, step_time) };
    start_drafted(model, Some(Box::new(head)), config, Arc::new(Disk)).0
}

#[test]
fn hidden_states_meet_the_tokens_behind_them() {
    for taps in TAPS {
        assert_drafts_are_right(|memory, config| {
            headed(memory, HashHead { repeats: false, taps, compared: None }, config)
        });
    }
}

#[test]
fn its_cache_has_every_token_where_nothing_is_shared() {
    for (num_blocks, tokens) in [(128, 64), (28, 64), (128, 17)] {
        let config = EngineConfig {
            prefix_cache: false,
            max_num_batched_tokens: tokens,
            ..config(num_blocks)
        };
        let compared: Arc<[AtomicUsize; 2]> = Arc::default();
        let head = HashHead { repeats: false, taps: TAPS[1], compared: Some(compared.clone()) };
        let running = headed(Memory::Blocks, head, &config);
        for round in 0..2 {
            exact(&running, &greedy(round));
        }
        let [all, different] = [0, 1].map(|index| compared[index].load(Ordering::Relaxed));
        assert!(all > 20 && different == 0, "{different} of {all} with {num_blocks} blocks");
    }
}

#[test]
fn answers_with_a_head_are_those_of_decoding_token_by_token() {
    let mut rng = StdRng::seed_from_u64(13);
    let memories = [Memory::Blocks, Memory::State, Memory::StateAlone];
    let of_each = num_requests().div_ceil(cases(2).len() * memories.len());
    for memory in memories {
        let plain = plain(memory, true);
        for ((case, config), taps) in cases(2).into_iter().zip(TAPS.into_iter().cycle()) {
            let head = HashHead { repeats: true, taps, compared: None };
            let running = headed(memory, head, &config);
            compare(&format!("{case}, {memory:?}"), &running, &plain, of_each, &mut rng);
        }
    }
}

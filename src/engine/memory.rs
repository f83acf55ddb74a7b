//! The memory plan: how many KV blocks there are, and how long sequences can be.
//!
//! Pure arithmetic over what was measured; knows no device.

mod error;
mod facts;
mod states;

use std::fmt;

use candle_core::DType;

use crate::config::{EngineConfig, KvCacheDtype, WeightKind};
use crate::kv_cache::BLOCK_SIZE;
use crate::runner::{KvFormat, KvShape};
pub use error::{PlanError, Size};
pub use facts::{DraftFacts, MemoryFacts};
use states::StatePlan;

/// How memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What the plan was made from.
    pub facts: MemoryFacts,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Most tokens of a sequence.
    pub max_model_len: usize,
    /// Most sequences in a step: as many as are allowed, or as many as there are states for.
    pub max_num_seqs: usize,
    /// Recurrent states of such sequences: one each, and some for states from before drafts.
    pub num_slots: usize,
    /// Snapshots of recurrent states in the prefix cache.
    pub num_snapshots: usize,
    /// Most sequences in a step that the configuration allows.
    pub allowed_num_seqs: usize,
}

impl MemoryPlan {
    /// Divides memory. First come recurrent states, for all allowed sequences or as many as half of
    /// the memory holds, and snapshots of them; then KV blocks, as many as these sequences need at
    /// full length or as fit; the context length is what the blocks hold.
    pub fn new(config: &EngineConfig, facts: MemoryFacts) -> Result<Self, PlanError> {
        check_bounds(config)?;
        let context = facts.model_context;
        if let Some(asked) = config.max_model_len.filter(|asked| *asked > context) {
            return Err(PlanError::BeyondModel { asked, context });
        }
        let wanted_len = config.max_model_len.unwrap_or(context);
        let share = match facts.own_bytes {
            None => facts.free_bytes / 100 * usize::from(config.memory_percent),
            // The share covers all that is in use: other processes and the weights.
            Some(all) => {
                let allowed = all / 100 * usize::from(config.gpu_memory_percent);
                allowed.saturating_sub(all.saturating_sub(facts.free_bytes))
            }
        };
        let available = config.kv_cache_bytes.unwrap_or(share);
        let StatePlan { num_seqs: max_num_seqs, num_slots, num_snapshots } =
            StatePlan::new(config, &facts, available)?;
        let available = available - (num_slots + num_snapshots) * facts.state_bytes;
        let affordable = available.checked_div(facts.block_bytes).unwrap_or(usize::MAX);
        let useful = wanted_len.div_ceil(BLOCK_SIZE).saturating_mul(max_num_seqs);
        let num_blocks = affordable.min(useful).min(u32::MAX as usize / BLOCK_SIZE);
        let held = num_blocks * BLOCK_SIZE;
        if num_blocks == 0 || config.max_model_len.is_some_and(|asked| asked > held) {
            return Err(PlanError::TooLittleMemory {
                asked: wanted_len,
                needed: wanted_len.div_ceil(BLOCK_SIZE).saturating_mul(facts.block_bytes),
                available,
            });
        }
        Ok(Self {
            facts,
            num_blocks,
            max_model_len: wanted_len.min(held),
            max_num_seqs,
            num_slots,
            num_snapshots,
            allowed_num_seqs: config.max_num_seqs,
        })
    }

    /// Divides the memory of several ranks, whose facts are those of each `pool` of it: nobody gets more than
    /// all can hold. The plan tells what this rank's `own` part is.
    pub fn of_ranks(
        config: &EngineConfig,
        own: MemoryFacts,
        pools: &[MemoryFacts],
    ) -> Result<Self, PlanError> {
        let keeps_states = pools.iter().any(|facts| facts.state_bytes > 0);
        let plan = |facts: &MemoryFacts| {
            if !keeps_states || facts.state_bytes > 0 {
                return Self::new(config, *facts);
            }
            // The layers with states are elsewhere, and bound nothing here.
            let config = EngineConfig { state_cache_bytes: None, ..config.clone() };
            let plan = Self::new(&config, *facts)?;
            Ok(Self { num_slots: usize::MAX, num_snapshots: usize::MAX, ..plan })
        };
        let plans = pools.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let least = plans.into_iter().reduce(Self::least);
        least.map_or_else(|| Self::new(config, own), |least| Ok(Self { facts: own, ..least }))
    }

    /// What both plans allow.
    fn least(self, other: Self) -> Self {
        Self {
            num_blocks: self.num_blocks.min(other.num_blocks),
            max_model_len: self.max_model_len.min(other.max_model_len),
            max_num_seqs: self.max_num_seqs.min(other.max_num_seqs),
            num_slots: self.num_slots.min(other.num_slots),
            num_snapshots: self.num_snapshots.min(other.num_snapshots),
            ..self
        }
    }

    /// Bytes of the recurrent states of all sequences of a step.
    pub fn state_bytes(&self) -> usize {
        self.num_slots * self.facts.state_bytes
    }

    /// Bytes of the snapshots of recurrent states.
    pub fn snapshot_bytes(&self) -> usize {
        self.num_snapshots * self.facts.state_bytes
    }

    /// Bytes of the whole KV cache.
    pub fn kv_bytes(&self) -> usize {
        self.num_blocks * self.facts.block_bytes
    }
}

/// What is known of a checkpoint's weights before they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct WeightsFit {
    /// Bytes of all tensors as stored.
    pub stored: usize,
    /// Element type of most tensors, where the model's configuration names it.
    pub dtype: Option<DType>,
    /// What matrices are rounded to as they are loaded.
    pub kind: Option<WeightKind>,
    /// Bits that an element of bf16 takes in memory.
    pub bf16_bits: usize,
}

impl WeightsFit {
    /// Kinds to advise, the largest first.
    const SMALLER: [WeightKind; 3] = [WeightKind::Q8_0, WeightKind::Q5_0, WeightKind::Q4_0];

    /// Refuses weights that don't fit the `free` bytes of a device, before they are read.
    ///
    /// # Errors
    ///
    /// [`PlanError::Weights`], with the largest kind of matrices that would fit.
    pub fn check(&self, free: usize, device: &str) -> Result<(), PlanError> {
        let needed = match (self.kind, self.dtype) {
            (Some(kind), _) => self.rounded(kind),
            (None, Some(DType::BF16)) => self.rounded(WeightKind::Bf16),
            (None, _) => self.stored,
        };
        if needed <= free {
            return Ok(());
        }
        // A tenth of the memory is left for everything else.
        let fits = |kind: &WeightKind| self.dtype.is_some() && self.rounded(*kind) <= free / 10 * 9;
        let advice = match Self::SMALLER.into_iter().find(fits) {
            Some(kind) => {
                let size = Size(self.rounded(kind));
                format!("--quantize {kind} takes about {size} and would fit")
            }
            None => "a smaller or more quantized model is needed".to_owned(),
        };
        let device = device.to_owned();
        Err(PlanError::Weights { needed: Size(needed), device, free: Size(free), advice })
    }

    /// Bytes of all tensors once they are rounded to `kind`.
    fn rounded(&self, kind: WeightKind) -> usize {
        let stored = self.dtype.map_or(16, |dtype| dtype.size_in_bytes() * 8);
        let tenths = match kind {
            WeightKind::Bf16 => 10 * self.bf16_bits,
            _ => kind.tenths_of_bits(),
        };
        self.stored / (stored * 10) * tenths
    }
}

/// The format of the KV cache for heads of `shape`, if nothing else is asked for the one that suits a checkpoint
/// of `dtype`.
pub fn kv_format(
    asked: KvCacheDtype,
    dtype: DType,
    shape: &KvShape,
) -> Result<KvFormat, PlanError> {
    let format = match asked {
        KvCacheDtype::Auto => KvFormat::of_dtype(dtype).unwrap_or(KvFormat::F16),
        KvCacheDtype::F32 => KvFormat::F32,
        KvCacheDtype::F16 => KvFormat::F16,
        KvCacheDtype::Bf16 => KvFormat::Bf16,
        KvCacheDtype::Fp8 => KvFormat::Fp8,
        KvCacheDtype::Q8_0 => KvFormat::Q8_0,
    };
    let mut dims = shape.layers.iter().flat_map(|heads| [heads.key_dim, heads.value_dim]);
    match dims.find(|dim| !format.fits(*dim)) {
        Some(head_dim) => Err(PlanError::HeadDim { asked, head_dim }),
        None => Ok(format),
    }
}

fn check_bounds(config: &EngineConfig) -> Result<(), PlanError> {
    let EngineConfig { max_num_seqs, max_num_batched_tokens, .. } = *config;
    let out_of_range = |name, value, bound| Err(PlanError::OutOfRange { name, value, bound });
    if max_num_seqs == 0 {
        return out_of_range("max-num-seqs", 0, "at least 1".to_owned());
    }
    if max_num_batched_tokens < max_num_seqs {
        let bound = format!("at least max-num-seqs, {max_num_seqs}");
        return out_of_range("max-num-batched-tokens", max_num_batched_tokens, bound);
    }
    if let Some(length @ 0..2) = config.max_model_len {
        return out_of_range("max-model-len", length, "at least 2".to_owned());
    }
    let percent = usize::from(config.memory_percent);
    if !(1..=95).contains(&percent) {
        return out_of_range("memory-percent", percent, "from 1 to 95".to_owned());
    }
    Ok(())
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.num_blocks * BLOCK_SIZE;
        write!(
            f,
            "weights {}, KV cache {} ({} blocks of {BLOCK_SIZE} tokens, {tokens} tokens); \
             context length {}",
            Size(self.facts.weight_bytes),
            Size(self.kv_bytes()),
            self.num_blocks,
            self.max_model_len,
        )?;
        if let Some(DraftFacts { weight_bytes, block_bytes }) = self.facts.draft {
            let blocks = Size(self.num_blocks * block_bytes);
            write!(f, "; draft model {} with {blocks} of the KV cache", Size(weight_bytes))?;
        }
        if self.max_model_len < self.facts.model_context {
            write!(f, " (the model's own is {})", self.facts.model_context)?;
        }
        let whole = tokens / self.max_model_len.next_multiple_of(BLOCK_SIZE);
        write!(
            f,
            "; up to {} sequences a step, {} of full length",
            self.max_num_seqs,
            whole.min(self.max_num_seqs)
        )?;
        if self.facts.state_bytes > 0 {
            let states = Size(self.state_bytes());
            write!(f, "; recurrent states {states}, {} a sequence", Size(self.facts.state_bytes))?;
            match self.num_snapshots {
                0 => f.write_str("; no snapshots of them, so no prefix cache")?,
                count => write!(f, "; {count} snapshots of them {}", Size(self.snapshot_bytes()))?,
            }
        }
        if self.max_num_seqs < self.allowed_num_seqs {
            write!(f, " ({} sequences were allowed)", self.allowed_num_seqs)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::KvHeads;

    const FACTS: MemoryFacts = MemoryFacts {
        block_bytes: 1000,
        state_bytes: 0,
        weight_bytes: 5 << 20,
        free_bytes: 1_000_000,
        own_bytes: None,
        model_context: 4096,
        draft: None,
    };

    #[test]
    fn takes_its_share_of_free_memory_and_shortens_the_context_to_it() {
        let plan = MemoryPlan::new(&EngineConfig::default(), FACTS).unwrap();
        assert_eq!(plan.num_blocks, 500);
        assert_eq!(plan.max_model_len, 4096);
        let facts = MemoryFacts { free_bytes: 20_000, ..FACTS };
        let plan = MemoryPlan::new(&EngineConfig::default(), facts).unwrap();
        assert_eq!((plan.num_blocks, plan.max_model_len), (10, 320));
        assert!(plan.to_string().contains("the model's own is 4096"));
    }

    #[test]
    fn several_ranks_get_what_all_can_hold() {
        let config = EngineConfig { prefix_cache: false, ..EngineConfig::default() };
        let larger = MemoryFacts { block_bytes: 2000, ..FACTS };
        let plan = MemoryPlan::of_ranks(&config, FACTS, &[FACTS, larger]).unwrap();
        assert_eq!((plan.num_blocks, plan.facts), (250, FACTS));
        assert_eq!(MemoryPlan::of_ranks(&config, FACTS, &[FACTS]), MemoryPlan::new(&config, FACTS));
        // A rank whose layers have no states doesn't bound how many there are.
        let states = MemoryFacts { state_bytes: 1000, ..FACTS };
        let config = EngineConfig { state_cache_bytes: Some(20_000), ..EngineConfig::default() };
        for pools in [[FACTS, states], [states, FACTS]] {
            let plan = MemoryPlan::of_ranks(&config, FACTS, &pools).unwrap();
            assert_eq!((plan.num_slots, plan.num_snapshots), (68, 20));
            assert_eq!(plan.num_blocks, 500 - 68 - 20);
        }
        let error = MemoryPlan::of_ranks(&config, FACTS, &[FACTS, FACTS]).unwrap_err();
        assert_eq!(error, PlanError::NoStates);
    }

    #[test]
    fn takes_no_more_than_the_sequences_need() {
        let config =
            EngineConfig { max_num_seqs: 2, max_model_len: Some(33), ..Default::default() };
        assert_eq!(MemoryPlan::new(&config, FACTS).unwrap().num_blocks, 4);
    }

    #[test]
    fn of_a_gpu_it_takes_its_share_of_all_memory_less_what_is_in_use() {
        let facts = MemoryFacts { free_bytes: 600_000, own_bytes: Some(1_000_000), ..FACTS };
        let config = EngineConfig { gpu_memory_percent: 80, ..Default::default() };
        assert_eq!(MemoryPlan::new(&config, facts).unwrap().num_blocks, 400);
        let facts = MemoryFacts { free_bytes: 100_000, ..facts };
        let error = MemoryPlan::new(&config, facts).unwrap_err().to_string();
        assert!(error.contains("0 are available"), "{error}");
    }

    #[test]
    fn weights_that_do_not_fit_are_refused_with_what_would() {
        let (stored, dtype) = (16 << 30, Some(DType::BF16));
        let weights = WeightsFit { stored, dtype, kind: None, bf16_bits: 16 };
        assert_eq!(weights.check(16 << 30, "cuda:0"), Ok(()));
        let error =
            |weights: WeightsFit, free| weights.check(free, "cuda:0").unwrap_err().to_string();
        let told = error(weights, 10 << 30);
        assert!(told.contains("about 16.0 GiB, cuda:0 has 10.0 GiB free"), "{told}");
        assert!(told.contains("--quantize q8_0 takes about 8.5 GiB and would fit"), "{told}");
        assert!(error(weights, 6 << 30).contains("--quantize q4_0 takes about 4.5 GiB"));
        assert!(error(weights, 1 << 30).contains("a smaller or more quantized model"));
        let rounded = WeightsFit { kind: Some(WeightKind::Q8_0), ..weights };
        assert_eq!(rounded.check(9 << 30, "cpu"), Ok(()));
        assert!(error(rounded, 8 << 30).contains("about 8.5 GiB"));
        let compressed = WeightsFit { bf16_bits: 12, ..weights };
        assert_eq!(compressed.check(12 << 30, "cpu"), Ok(()));
        assert!(error(compressed, 11 << 30).contains("about 12.0 GiB"));
        // What is in blocks already can't be rounded again.
        let blocks = WeightsFit { dtype: None, ..weights };
        assert!(error(blocks, 10 << 30).contains("a smaller or more quantized model"));
    }

    #[test]
    fn states_take_half_of_the_memory_at_most() {
        let without = || EngineConfig { prefix_cache: false, ..EngineConfig::default() };
        let facts = MemoryFacts { state_bytes: 1000, ..FACTS };
        let plan = MemoryPlan::new(&without(), facts).unwrap();
        assert_eq!((plan.max_num_seqs, plan.num_blocks), (64, 432));
        let facts = MemoryFacts { state_bytes: 100_000, ..facts };
        let plan = MemoryPlan::new(&without(), facts).unwrap();
        assert_eq!((plan.max_num_seqs, plan.num_blocks), (2, 256));
        assert!(plan.to_string().contains("(64 sequences were allowed)"), "{plan}");
        let facts = MemoryFacts { state_bytes: 300_000, ..facts };
        let error = MemoryPlan::new(&without(), facts).unwrap_err().to_string();
        assert!(error.contains("need 300000 bytes for a sequence, half of 500000"), "{error}");
        // Without a KV cache they may take all of it.
        let facts = MemoryFacts { block_bytes: 0, ..facts };
        let plan = MemoryPlan::new(&without(), facts).unwrap();
        assert_eq!((plan.max_num_seqs, plan.num_blocks, plan.max_model_len), (1, 128, 4096));
    }

    #[test]
    fn refuses_a_cache_format_that_can_not_store_the_heads() {
        let format = |asked, head_dim| {
            let layers = vec![KvHeads::new(1, head_dim)];
            let shape = KvShape { layers, ..KvShape::default() };
            kv_format(asked, DType::BF16, &shape)
        };
        assert_eq!(format(KvCacheDtype::Auto, 80), Ok(KvFormat::Bf16));
        assert_eq!(format(KvCacheDtype::Fp8, 80), Ok(KvFormat::Fp8));
        assert_eq!(format(KvCacheDtype::Q8_0, 96), Ok(KvFormat::Q8_0));
        let error = format(KvCacheDtype::Q8_0, 80).unwrap_err().to_string();
        assert!(error.contains("q8_0 stores heads in groups of 32"), "{error}");
        assert!(error.contains("this model's have 80"), "{error}");
    }

    #[test]
    fn refuses_what_can_not_be_met() {
        let with = |max_model_len, kv_cache_bytes| {
            let config = EngineConfig { max_model_len, kv_cache_bytes, ..Default::default() };
            MemoryPlan::new(&config, FACTS).unwrap_err().to_string()
        };
        assert!(with(Some(5000), None).contains("5000 is above the 4096"));
        assert!(with(Some(4096), Some(64_000)).contains("needs 128000 bytes"));
        assert!(with(None, Some(10)).contains("10 are available"));
        let config = EngineConfig { max_num_batched_tokens: 8, ..Default::default() };
        let error = MemoryPlan::new(&config, FACTS).unwrap_err().to_string();
        assert_eq!(error, "max-num-batched-tokens is 8, it must be at least max-num-seqs, 64");
    }
}

//! The part of the memory plan for recurrent states: those of running sequences, and snapshots of them.

use super::error::PlanError;
use super::facts::MemoryFacts;
use crate::config::EngineConfig;
use crate::kv_cache::BLOCK_SIZE;

/// Most sequences whose states are kept from before their drafts even if all sequences run that may.
const MOST_BACKUPS: usize = 4;

/// How many states there is memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "counts, as the memory plan has them")]
pub(super) struct StatePlan {
    /// Most sequences in a step.
    pub(super) num_seqs: usize,
    /// States of theirs: one each, and some for states from before drafts.
    pub(super) num_slots: usize,
    /// Snapshots, which the prefix cache keeps beside blocks.
    pub(super) num_snapshots: usize,
}

impl StatePlan {
    /// Divides `available` bytes. First come the states of all allowed sequences, or of as many as
    /// half of the memory holds; then snapshots take what was asked for, or a quarter of the rest,
    /// unless a sequence of the asked length would not fit any more. No block has more than one
    /// snapshot. Without a KV cache states may take all memory, with a quarter left for snapshots.
    pub(super) fn new(
        config: &EngineConfig,
        facts: &MemoryFacts,
        available: usize,
    ) -> Result<Self, PlanError> {
        let MemoryFacts { state_bytes, block_bytes, .. } = *facts;
        let asked = config.state_cache_bytes;
        if state_bytes == 0 {
            return match asked {
                Some(_) => Err(PlanError::NoStates),
                None => Ok(Self {
                    num_seqs: config.max_num_seqs,
                    num_slots: config.max_num_seqs,
                    num_snapshots: 0,
                }),
            };
        }
        let reserved = asked.unwrap_or(0);
        if reserved > available {
            return Err(PlanError::StateCache { asked: reserved, available });
        }
        let for_both = available - reserved;
        let for_slots = match block_bytes {
            0 if asked.is_none() && config.prefix_cache => for_both / 4 * 3,
            0 => for_both,
            _ => for_both / 2,
        };
        let num_seqs = config.max_num_seqs.min(for_slots / state_bytes);
        if num_seqs == 0 {
            return Err(PlanError::States { needed: state_bytes, available: for_both });
        }
        let backups = if config.draft_max > 0 { num_seqs.min(MOST_BACKUPS) } else { 0 };
        let num_slots = (num_seqs + backups).min(for_slots / state_bytes);
        let wanted_len = config.max_model_len.unwrap_or(facts.model_context);
        let useful = wanted_len.div_ceil(BLOCK_SIZE).saturating_mul(config.max_num_seqs);
        let rest = for_both - num_slots * state_bytes;
        let share = || {
            let needed = config.max_model_len.map_or(0, |len| len.div_ceil(BLOCK_SIZE));
            let spare = rest.saturating_sub(needed.saturating_mul(block_bytes));
            let quarter = if block_bytes == 0 { spare } else { spare.min(rest / 4) };
            quarter.min(rest / (state_bytes + block_bytes) * state_bytes)
        };
        let bytes = if config.prefix_cache { asked.unwrap_or_else(share) } else { 0 };
        Ok(Self { num_seqs, num_slots, num_snapshots: (bytes / state_bytes).min(useful) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryPlan;
    use super::*;

    const FACTS: MemoryFacts = MemoryFacts {
        block_bytes: 1000,
        state_bytes: 1000,
        weight_bytes: 0,
        free_bytes: 1_000_000,
        own_bytes: None,
        model_context: 4096,
        draft: None,
    };

    fn plan(config: &EngineConfig, facts: MemoryFacts) -> [usize; 3] {
        let plan = MemoryPlan::new(config, facts).unwrap();
        [plan.max_num_seqs, plan.num_snapshots, plan.num_blocks]
    }

    fn error(config: &EngineConfig, facts: MemoryFacts) -> String {
        MemoryPlan::new(config, facts).unwrap_err().to_string()
    }

    #[test]
    fn snapshots_take_a_quarter_of_what_slots_leave() {
        let default = EngineConfig::default;
        // 68,000 for slots, a quarter of 432,000 for snapshots.
        assert_eq!(plan(&default(), FACTS), [64, 108, 324]);
        let larger = MemoryFacts { state_bytes: 100_000, ..FACTS };
        assert_eq!(plan(&default(), larger), [2, 0, 256]);
        let text = MemoryPlan::new(&default(), larger).unwrap().to_string();
        assert!(text.contains("no snapshots of them, so no prefix cache"), "{text}");
        // No block has two.
        let smaller = MemoryFacts { state_bytes: 10, ..FACTS };
        let [_, snapshots, blocks] = plan(&default(), smaller);
        assert!(snapshots <= blocks && snapshots + 1 >= blocks, "{snapshots} {blocks}");
        let without = EngineConfig { prefix_cache: false, ..default() };
        assert_eq!(plan(&without, FACTS), [64, 0, 432]);
        let undrafted = EngineConfig { draft_max: 0, ..without };
        assert_eq!(plan(&undrafted, FACTS), [64, 0, 436]);
    }

    #[test]
    fn snapshots_take_what_was_asked_for() {
        let asked = |bytes| EngineConfig { state_cache_bytes: Some(bytes), ..Default::default() };
        assert_eq!(plan(&asked(20_500), FACTS), [64, 20, 500 - 68 - 20]);
        assert_eq!(plan(&asked(0), FACTS), [64, 0, 432]);
        assert!(error(&asked(500_001), FACTS).contains("500001 is above the 500000"));
        let without_states = MemoryFacts { state_bytes: 0, ..FACTS };
        assert!(error(&asked(1000), without_states).contains("no recurrent layers"));
    }

    #[test]
    fn a_share_leaves_room_for_a_sequence_of_the_asked_length() {
        let config = |len| EngineConfig {
            max_model_len: Some(len),
            max_num_seqs: 2,
            kv_cache_bytes: Some(140_000),
            ..Default::default()
        };
        assert_eq!(plan(&config(4096), FACTS), [2, 8, 128]);
        assert_eq!(plan(&config(3000), FACTS), [2, 34, 102]);
    }

    #[test]
    fn without_a_kv_cache_all_memory_is_for_states() {
        let facts = MemoryFacts { block_bytes: 0, state_bytes: 10_000, ..FACTS };
        assert_eq!(plan(&EngineConfig::default(), facts), [37, 13, 37 * 128]);
        let without = EngineConfig { prefix_cache: false, ..Default::default() };
        assert_eq!(plan(&without, facts)[..2], [50, 0]);
    }
}

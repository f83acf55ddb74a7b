//! What several ranks share on one machine: its cores, its memory, its GPUs.

use std::num::NonZeroUsize;

use super::encoder::reads_whole_texts;
use super::error::StartupError;
use crate::config::EngineConfig;
use crate::kernels::pool;
use crate::runner::ranks::RankMemory;
use crate::weights::source::ModelSource;

/// Refuses several ranks for an encoder, which is small and has no parts.
pub(super) fn refuse_encoder(
    source: &ModelSource,
    config: &EngineConfig,
) -> Result<(), StartupError> {
    if config.ranks() > 1 && reads_whole_texts(source) {
        return Err(StartupError::Setting {
            setting: config.ranks_flag(),
            reason: "it is small and is not split; start more servers instead".to_owned(),
        });
    }
    Ok(())
}

/// Threads of each rank for the CPU kernels: as configured, or its share of the cores.
pub(super) fn threads(config: &EngineConfig) -> Option<NonZeroUsize> {
    let share = || {
        let cores = pool::usual_threads().get();
        let ranks = config.ranks_per_node();
        (config.ranks() > 1).then(|| (cores / ranks).max(1))
    };
    config.threads.or_else(share).and_then(NonZeroUsize::new)
}

/// Ranks that share memory, as one: those of a machine, of which each has `here`, unless each has a GPU of
/// its own or `apart` says that each may take as much.
pub(super) fn pools(ranks: &[RankMemory], here: usize, apart: bool) -> Vec<RankMemory> {
    let apart = apart || ranks.iter().all(|rank| rank.own.is_some());
    let pool = |ranks: &[RankMemory]| {
        let least = |of: fn(&RankMemory) -> usize| ranks.iter().map(of).min().unwrap_or(0);
        let all = |of: fn(&RankMemory) -> usize| ranks.iter().map(of).sum();
        RankMemory {
            // Each has seen the same memory, at another time.
            free: least(|rank| rank.free),
            own: ranks.first().and_then(|rank| rank.own),
            block_bytes: all(|rank| rank.block_bytes),
            state_bytes: all(|rank| rank.state_bytes),
        }
    };
    ranks.chunks(if apart { 1 } else { here }).map(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_machine_share_its_memory_and_those_of_gpus_do_not() {
        let rank = |free, own, block_bytes, state_bytes| RankMemory {
            free,
            own,
            block_bytes,
            state_bytes,
        };
        let ranks = [rank(90, None, 3, 1), rank(80, None, 2, 0), rank(50, None, 4, 0)];
        assert_eq!(pools(&ranks[..1], 1, false), ranks[..1]);
        assert_eq!(pools(&ranks[..2], 2, false), [rank(80, None, 5, 1)]);
        // Processes of several machines don't take from the same memory, nor where a flag gives each its own.
        assert_eq!(pools(&ranks, 1, false), ranks);
        assert_eq!(pools(&ranks, 3, true), ranks);
        let gpus = [rank(70, Some(100), 3, 1), rank(50, Some(90), 3, 1)];
        assert_eq!(pools(&gpus, 2, false), gpus);
    }
}

//! What several ranks share on one machine: its cores, its memory, its GPUs.

use std::num::NonZeroUsize;

use super::device::DeviceMemory;
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
    if config.tensor_parallel > 1 && reads_whole_texts(source) {
        return Err(StartupError::Setting {
            setting: "--tensor-parallel",
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
        (config.tensor_parallel > 1).then(|| (cores / ranks).max(1))
    };
    config.threads.or_else(share).and_then(NonZeroUsize::new)
}

/// The memory that each rank can use: as much as the rank with the least has, or its share of what is free
/// on a machine that has `here` ranks.
pub(super) fn least(own: DeviceMemory, others: &[RankMemory], here: usize) -> DeviceMemory {
    let mut least = own;
    for other in others {
        least.free = least.free.min(other.free);
        least.own = least.own.zip(other.own).map(|(own, other)| own.min(other));
    }
    if least.own.is_none() {
        least.free /= here;
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_with_the_least_memory_decides() {
        let memory = |free, own| DeviceMemory { free, own };
        let other = |free, own| RankMemory { free, own };
        assert_eq!(least(memory(70, None), &[], 1), memory(70, None));
        let gpus = [other(50, Some(100)), other(60, Some(90))];
        assert_eq!(least(memory(70, Some(100)), &gpus, 3), memory(50, Some(90)));
        // Processes of one machine take from the same memory.
        assert_eq!(least(memory(90, None), &[other(80, None)], 2), memory(40, None));
        // Those of several machines don't.
        assert_eq!(least(memory(90, None), &[other(80, None)], 1), memory(80, None));
    }
}

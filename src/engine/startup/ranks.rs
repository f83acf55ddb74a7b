//! A model that several processes compute: the start of those that follow, and whose memory counts.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::device::DeviceMemory;
use super::{LoadedModel, StartupError};
use crate::config::EngineConfig;
use crate::models::encoder::is_encoder;
use crate::runner::ranks::{Follower, RankMemory};
use crate::weights::source::ModelSource;

/// Loads this rank's part of the model and computes what rank 0 asks for until it ends.
///
/// # Errors
///
/// Why the part could not be loaded, or what failed later; rank 0 is told as well.
pub fn follow(
    source: &ModelSource,
    config: &EngineConfig,
    follower: &Arc<Follower>,
) -> Result<(), StartupError> {
    let load = || {
        refuse_encoder(source, config)?;
        let loaded = LoadedModel::load_part(source, config, Arc::new(|_, _| {}), follower.clone())?;
        source.release_pages();
        let memory = loaded.device.memory()?;
        Ok((loaded, memory))
    };
    let (LoadedModel { model, device, .. }, memory) = match load() {
        Ok(loaded) => loaded,
        Err(error) => {
            let error: StartupError = error;
            // Rank 0 may have ended; then nobody is left to tell.
            let _ = follower.fail(&error.to_string());
            return Err(error);
        }
    };
    let memory = RankMemory { free: memory.free, own: memory.own };
    Ok(follower.follow(model, &device.device, memory)?)
}

/// An encoder is small: it has no parts.
pub(super) fn refuse_encoder(
    source: &ModelSource,
    config: &EngineConfig,
) -> Result<(), StartupError> {
    if config.tensor_parallel > 1 && is_encoder(&source.config) {
        return Err(StartupError::Setting {
            setting: "--tensor-parallel",
            reason: "it is small and is not split; start more servers instead".to_owned(),
        });
    }
    Ok(())
}

/// Threads of each rank for the CPU kernels: their share of the cores, if nobody says otherwise.
pub(super) fn threads(config: &EngineConfig) -> Option<NonZeroUsize> {
    let share = || {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        (config.tensor_parallel > 1).then(|| (cores / config.tensor_parallel).max(1))
    };
    config.threads.or_else(share).and_then(NonZeroUsize::new)
}

/// What a rank may count on, of its own memory and that of the others: as much as the rank with the
/// least, or its share of what all of them have together.
pub(super) fn least(own: DeviceMemory, others: &[RankMemory]) -> DeviceMemory {
    let mut least = own;
    for other in others {
        least.free = least.free.min(other.free);
        least.own = least.own.zip(other.own).map(|(own, other)| own.min(other));
    }
    if least.own.is_none() {
        least.free /= others.len() + 1;
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
        assert_eq!(least(memory(70, None), &[]), memory(70, None));
        let gpus = [other(50, Some(100)), other(60, Some(90))];
        assert_eq!(least(memory(70, Some(100)), &gpus), memory(50, Some(90)));
        // Processes of one machine take from the same memory.
        assert_eq!(least(memory(90, None), &[other(80, None)]), memory(40, None));
    }
}

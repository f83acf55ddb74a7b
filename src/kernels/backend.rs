//! Which code computes an operation, and the only reader of two environment variables. `SCONCE_KERNELS` changes it for
//! tensors on the CPU:
//!
//! - a level's name (`scalar`, `avx2`, ...): the kernels for that instruction set, not for the best one
//! - `portable`: plain candle operations, as on devices without kernels of ours
//! - `cuda-on-host:PATH`: the CUDA kernels, from a library that a C++ compiler made of them
//!
//! `SCONCE_BF16` says how matrices of bf16 lie in memory: `whole`, or in `twelve-bits` each (`packed/twelve_bits.rs`).
//!
//! Both are read once, at the first operation.

use std::sync::OnceLock;

use candle_core::Device;

use super::cpu::Level;

const VARIABLE: &str = "SCONCE_KERNELS";
const BF16: &str = "SCONCE_BF16";
const PORTABLE: &str = "portable";
const CUDA_ON_HOST: &str = "cuda-on-host:";

/// What computes the operations on tensors of a device.
#[derive(Clone, Copy, Debug)]
pub enum Backend {
    /// Our kernels for an instruction set of this CPU.
    Cpu(Level),
    /// Our CUDA kernels, on a GPU or compiled for the host.
    Cuda,
    /// Plain candle operations.
    Portable,
}

impl Backend {
    /// The backend of tensors on `device`.
    pub fn of(device: &Device) -> Self {
        match device {
            Device::Cuda(_) => Self::Cuda,
            Device::Metal(_) => Self::Portable,
            Device::Cpu => Choice::get().backend,
        }
    }

    /// Whether kernels for this CPU compute the operations.
    pub fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu(_))
    }

    /// Whether CUDA kernels compute the operations.
    pub fn is_cuda(self) -> bool {
        matches!(self, Self::Cuda)
    }
}

/// The level of kernels that work on the CPU's memory whatever the backend is, such as those of packed
/// weights: the best of this machine, or the one that the environment names.
pub fn cpu_level() -> Level {
    Choice::get().level
}

/// Whether matrices of bf16 are kept in twelve bits each: what the environment says, or what suits the level.
pub(super) fn twelve_bits_for_bf16() -> bool {
    static CHOICE: OnceLock<bool> = OnceLock::new();
    *CHOICE.get_or_init(|| {
        let usual = cpu_level().decodes_soon();
        match std::env::var(BF16).ok().as_deref() {
            Some("whole") => false,
            Some("twelve-bits") => true,
            Some(other) => {
                tracing::warn!("{BF16}={other} is neither whole nor twelve-bits; it is left out");
                usual
            }
            None => usual,
        }
    })
}

/// The library of CUDA kernels for the host that the environment names.
pub(super) fn cuda_library() -> Option<&'static str> {
    Choice::get().cuda_library.as_deref()
}

/// What the environment asks for.
struct Choice {
    /// Of tensors on the CPU.
    backend: Backend,
    level: Level,
    cuda_library: Option<String>,
}

impl Choice {
    fn get() -> &'static Self {
        static CHOICE: OnceLock<Choice> = OnceLock::new();
        CHOICE.get_or_init(|| Self::of(std::env::var(VARIABLE).ok().as_deref()))
    }

    fn of(wanted: Option<&str>) -> Self {
        let levels = Level::available();
        let best = levels[levels.len() - 1];
        let choice = |backend, level| Self { backend, level, cuda_library: None };
        let Some(wanted) = wanted else { return choice(Backend::Cpu(best), best) };
        if wanted == PORTABLE {
            return choice(Backend::Portable, best);
        }
        if let Some(path) = wanted.strip_prefix(CUDA_ON_HOST) {
            return Self { cuda_library: Some(path.to_owned()), ..choice(Backend::Cuda, best) };
        }
        let level = levels.iter().copied().find(|level| level.name() == wanted);
        let level = level.unwrap_or_else(|| {
            let names: Vec<&str> = levels.iter().map(|level| level.name()).collect();
            tracing::warn!(
                "{VARIABLE}={wanted} is not available here (one of {}); using {}",
                names.join(", "),
                best.name()
            );
            best
        });
        choice(Backend::Cpu(level), level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_picks_a_level_that_exists() {
        for level in Level::available() {
            assert_eq!(Choice::of(Some(level.name())).level.name(), level.name());
        }
        let best = Choice::of(None).level.name();
        assert_eq!(Choice::of(Some("sse9")).level.name(), best);
        assert_eq!(best, Level::available().last().unwrap().name());
    }

    #[test]
    fn the_environment_picks_plain_operations_or_cuda_kernels_for_the_cpu() {
        let portable = Choice::of(Some("portable"));
        assert!(matches!(portable.backend, Backend::Portable) && portable.cuda_library.is_none());
        let cuda = Choice::of(Some("cuda-on-host:/lib.so"));
        assert!(matches!(cuda.backend, Backend::Cuda));
        assert_eq!(cuda.cuda_library.as_deref(), Some("/lib.so"));
        assert!(matches!(Choice::of(Some("scalar")).backend, Backend::Cpu(_)));
    }
}

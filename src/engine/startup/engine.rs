//! A started engine.

use std::thread::JoinHandle;

use crate::engine::handle::EngineHandle;
use crate::engine::memory::MemoryPlan;
use crate::kernels::backend;

/// The name of the instruction set that kernels on the CPU use.
pub fn cpu_level() -> &'static str {
    backend::cpu_level().name()
}

/// A started engine. Its thread ends when the last handle and stream are gone.
pub struct Engine {
    /// The way to the engine thread.
    pub handle: EngineHandle,
    /// How memory was shared out, where there is a KV cache to share it with.
    pub plan: Option<MemoryPlan>,
    /// Joins the engine thread.
    pub thread: JoinHandle<()>,
}

impl Engine {
    /// Starts the engine thread, which does `work`.
    pub(super) fn spawn(
        handle: EngineHandle,
        plan: Option<MemoryPlan>,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(work)?;
        Ok(Self { handle, plan, thread })
    }
}

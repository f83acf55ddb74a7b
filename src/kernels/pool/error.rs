//! What can go wrong when the thread team starts.

/// Why the team can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The team runs already, with another size.
    #[error("the kernels already run on {running} threads, can't change that to {wanted}")]
    AlreadyRunning {
        /// Threads in the running team.
        running: usize,
        /// Threads asked for.
        wanted: usize,
    },
    /// The system refused a thread.
    #[error("can't start {wanted} kernel threads: {reason}")]
    Spawn {
        /// Threads asked for.
        wanted: usize,
        /// What the system said.
        reason: String,
    },
}

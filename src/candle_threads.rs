//! On which threads candle computes.

/// candle's variable for how many they are.
const THREADS: &str = "CANDLE_NUM_THREADS";

/// Lets what of candle runs on the CPU run on the thread that asks, unless the environment says otherwise. Threads of
/// its own would be as many as the machine has cores, whatever `--threads` or a container's limit say; each operation
/// waits for all of them, and they spin after it.
pub(crate) fn configure() {
    if std::env::var_os(THREADS).is_none() {
        // SAFETY: the program has one thread yet, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(THREADS, "1") };
    }
}

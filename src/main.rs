//! Parses the arguments and calls the subcommand.

use std::process::ExitCode;

// Keeps the pages of large activations instead of returning and clearing them at every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sconce::cli::main()
}

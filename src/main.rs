//! Parses the arguments and calls the subcommand.

use std::process::ExitCode;

mod allocator;
mod candle_threads;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    allocator::configure();
    candle_threads::configure();
    sconce::cli::main()
}

//! Parses the arguments and calls the subcommand.

use std::process::ExitCode;

mod allocator;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    allocator::configure();
    sconce::cli::main()
}

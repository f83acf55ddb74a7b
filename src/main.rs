//! Parses the arguments and calls the subcommand.
fn main() {}

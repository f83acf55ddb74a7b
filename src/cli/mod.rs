//! One file per subcommand.

pub mod download;

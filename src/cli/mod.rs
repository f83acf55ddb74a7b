//! One file per subcommand.

#[cfg(feature = "train")]
pub mod train_demo;

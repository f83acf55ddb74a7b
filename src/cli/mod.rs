//! One file per subcommand.

pub mod render_chat;

//! Parses the arguments and calls the subcommand.

#[cfg(feature = "train")]
mod demo_only {
    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    #[derive(clap::Parser)]
    pub(crate) enum Command {
        TrainDemo(sconce::cli::train_demo::Args),
    }
}

#[cfg(feature = "train")]
fn main() -> anyhow::Result<()> {
    let demo_only::Command::TrainDemo(args) = clap::Parser::parse();
    sconce::cli::train_demo::run(args)
}

#[cfg(not(feature = "train"))]
fn main() {}

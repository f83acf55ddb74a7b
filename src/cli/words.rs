//! `sconce completions` and `sconce man`: what shells and people are told of the flags.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// Print the completions of a shell, such as `sconce completions bash > /etc/bash_completion.d/sconce`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Write man pages into a folder: one of the program, and one of each command.
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// The folder; man looks into .../share/man/man1.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints completions.
///
/// # Errors
/// Standard output is closed.
pub fn completions(args: &CompletionsArgs, command: &Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut command.clone(), "sconce", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Writes man pages.
///
/// # Errors
/// The folder can't be written.
pub fn man(args: &ManArgs, command: &Command) -> anyhow::Result<()> {
    let at = || format!("can't write into {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(at)?;
    let mut command = command.clone();
    command.build();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let pages = std::iter::once((command.clone(), "sconce".to_owned())).chain(
        shown
            .filter(|command| command.get_name() != "help")
            .map(|command| (command.clone(), format!("sconce-{}", command.get_name()))),
    );
    for (command, name) in pages {
        write_page(command, &name, &args.folder).with_context(at)?;
    }
    Ok(())
}

fn write_page(command: Command, name: &str, folder: &Path) -> std::io::Result<()> {
    let mut page = Vec::new();
    // A page is found by its name.
    Man::new(command).title(name.to_uppercase()).render(&mut page)?;
    std::fs::write(folder.join(format!("{name}.1")), page)
}

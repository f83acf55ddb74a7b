//! `sconce quantize`: a GGUF file of smaller matrices out of another one.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::config::WeightKind;
use crate::engine::memory::Size;
use crate::weights::gguf::requantize::requantize;

/// Write a GGUF file with its matrices in another kind.
///
/// The file loads as it is, where `--quantize` rounds the matrices at every start; its answers are the same.
#[derive(Clone, Debug, clap::Args)]
pub struct QuantizeArgs {
    /// A GGUF file of f32, f16 or bf16 matrices.
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The file to write, which must not be there yet.
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// What matrices are stored as: f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1 or q4_0.
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: WeightKind,
}

fn kind(text: &str) -> Result<WeightKind, String> {
    WeightKind::named(&text.to_lowercase()).ok_or_else(|| {
        let names: Vec<&str> = WeightKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("it must be one of {}", names.join(", "))
    })
}

/// Writes the file.
///
/// # Errors
/// FROM is no GGUF file or has no dense matrices, or TO can't be written.
pub fn run(args: &QuantizeArgs) -> anyhow::Result<()> {
    let QuantizeArgs { from, to, kind } = args;
    if from.is_dir() {
        bail!(
            "{} is a folder; a GGUF file is needed, which llama.cpp's convert_hf_to_gguf.py makes of one",
            from.display()
        );
    }
    let bar = bar();
    requantize(from, to, kind.ggml(), &mut |read, all| {
        bar.set_length(all);
        bar.set_position(read);
    })?;
    bar.finish_and_clear();
    let size = |path: &PathBuf| -> std::io::Result<Size> {
        Ok(Size(usize::try_from(path.metadata()?.len()).unwrap_or(usize::MAX)))
    };
    writeln!(std::io::stdout(), "{}: {}, from {}", to.display(), size(to)?, size(from)?)?;
    Ok(())
}

fn bar() -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {bytes:>12} / {total_bytes:<12} {eta:>5}");
    let style = style.expect("a constant template");
    ProgressBar::with_draw_target(None, target).with_style(style)
}

//! `sconce quantize`: a GGUF file of smaller matrices, out of another one or of a folder.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::app::convert::convert;
use crate::config::WeightKind;
use crate::engine::memory::Size;
use crate::weights::gguf::requantize::requantize;

/// Write a GGUF file of a folder or of another GGUF file, with its matrices in another kind.
///
/// The file loads as it is, where `--quantize` rounds the matrices at every start; its answers are the same.
#[derive(Clone, Debug, clap::Args)]
pub struct QuantizeArgs {
    /// A folder with config.json, a tokenizer and safetensors, or a GGUF file; of f32, f16 or bf16 matrices.
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The file to write, which must not be there yet.
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// What matrices are stored as: f32, f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1 or q4_0.
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
/// FROM is neither a GGUF file nor a folder of a model that GGUF files can have, or has no dense matrices, or TO
/// can't be written.
pub fn run(args: &QuantizeArgs) -> anyhow::Result<()> {
    let QuantizeArgs { from, to, kind } = args;
    let bar = bar();
    let progress = &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let left_out = if from.is_dir() {
        convert(from, to, *kind, progress)?
    } else {
        requantize(from, to, kind.ggml(), progress)?;
        0
    };
    bar.finish_and_clear();
    let mut out = std::io::stdout();
    let size = Size(usize::try_from(to.metadata()?.len()).unwrap_or(usize::MAX));
    if from.is_dir() {
        writeln!(out, "{}: {size}", to.display())?;
    } else {
        let whole = Size(usize::try_from(from.metadata()?.len()).unwrap_or(usize::MAX));
        writeln!(out, "{}: {size}, from {whole}", to.display())?;
    }
    if left_out > 0 {
        writeln!(
            out,
            "the language model alone: {left_out} tensors of a tower or of a head that drafts are left out"
        )?;
    }
    Ok(())
}

fn bar() -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {bytes:>12} / {total_bytes:<12} {eta:>5}");
    let style = style.expect("a constant template");
    ProgressBar::with_draw_target(None, target).with_style(style)
}

//! `sconce ceiling`: what this machine can do at most, to judge a server's speed by.

use std::io::Write;
use std::num::NonZeroUsize;

use crate::kernels::ceiling::Ceiling;
use crate::kernels::cpu::Level;
use crate::kernels::pool;

/// Measure the machine's memory bandwidth and arithmetic, with the kernels' own instructions.
#[derive(Clone, Debug, clap::Args)]
pub struct CeilingArgs {
    /// Threads to measure with [default: all cores].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the rates of all threads together.
///
/// # Errors
/// No memory to read, or a closed standard output.
pub fn run(args: &CeilingArgs) -> anyhow::Result<()> {
    if let Some(threads) = args.threads.and_then(|count| NonZeroUsize::new(count.into())) {
        pool::start(threads)?;
    }
    let ceiling = Ceiling::measure()?;
    let (threads, level) = (pool::threads(), Level::current().name());
    let giga = |rate: f64| (rate / 1e8).round() / 10.0;
    let mut out = std::io::stdout().lock();
    if args.json {
        let figures = serde_json::json!({
            "threads": threads,
            "kernels": level,
            "read_gb_s": giga(ceiling.read_bytes),
            "f32_gflop_s": giga(ceiling.f32_operations),
            "bf16_gflop_s": giga(ceiling.bf16_operations),
            "int8_gop_s": giga(ceiling.int8_operations),
        });
        writeln!(out, "{figures}")?;
    } else {
        writeln!(out, "threads  {threads} ({level})")?;
        writeln!(out, "memory   {:.1} GB/s read", giga(ceiling.read_bytes))?;
        writeln!(out, "f32      {:.0} GFLOP/s", giga(ceiling.f32_operations))?;
        writeln!(out, "bf16     {:.0} GFLOP/s", giga(ceiling.bf16_operations))?;
        writeln!(out, "int8     {:.0} Gop/s", giga(ceiling.int8_operations))?;
    }
    Ok(())
}

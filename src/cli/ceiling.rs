//! `sconce ceiling`: what this machine can do at most, to judge a server's speed by.

use std::io::Write;
use std::num::NonZeroUsize;

use crate::config::DeviceChoice;
use crate::engine::startup::device::OpenDevice;
use crate::kernels::backend::cpu_level;
use crate::kernels::ceiling::{Ceiling, DeviceCeiling};
use crate::kernels::pool;

/// Measure the machine's memory bandwidth and arithmetic, with the kernels' own instructions.
#[derive(Clone, Debug, clap::Args)]
pub struct CeilingArgs {
    /// Threads to measure with [default: one for each fast core].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// What to measure: cpu, cuda, cuda:N or metal; auto takes a GPU if there is one.
    #[arg(long, default_value_t = DeviceChoice::Cpu, value_name = "DEVICE", env = "SCONCE_DEVICE")]
    device: DeviceChoice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the rates of the device, or those of all threads together.
///
/// # Errors
/// No such device, no memory to read, or a closed standard output.
pub fn run(args: &CeilingArgs) -> anyhow::Result<()> {
    if args.device != DeviceChoice::Cpu {
        let opened = OpenDevice::open(args.device, 0, 1)?;
        if !opened.device.is_cpu() {
            return run_on(&opened, args.json);
        }
    }
    if let Some(threads) = args.threads.and_then(|count| NonZeroUsize::new(count.into())) {
        pool::start(threads)?;
    }
    let ceiling = Ceiling::measure()?;
    let (threads, level) = (pool::threads(), cpu_level().name());
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

fn run_on(opened: &OpenDevice, json: bool) -> anyhow::Result<()> {
    let OpenDevice { device, name } = opened;
    let DeviceCeiling { copied_bytes, bf16_operations } = DeviceCeiling::measure(device)?;
    let mut out = std::io::stdout().lock();
    if json {
        let figures = serde_json::json!({
            "device": name,
            "copy_gb_s": giga(copied_bytes),
            "bf16_gflop_s": giga(bf16_operations),
        });
        writeln!(out, "{figures}")?;
    } else {
        writeln!(out, "device   {name}")?;
        writeln!(out, "memory   {:.1} GB/s copied, read and written", giga(copied_bytes))?;
        writeln!(out, "bf16     {:.0} GFLOP/s", giga(bf16_operations))?;
    }
    Ok(())
}

fn giga(rate: f64) -> f64 {
    (rate / 1e8).round() / 10.0
}

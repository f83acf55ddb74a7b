//! `sconce plan`: what a model would take and how fast it could be, before it is loaded or even fetched.

use std::io::Write;

use serde_json::{Value, json};

use super::serve::ServeArgs;
use super::table;
use crate::app::plan::ModelPlan;
use crate::config::{EngineConfig, WeightKind};
use crate::engine::memory::{MemoryPlan, Size};
use crate::engine::startup::device::OpenDevice;
use crate::engine::startup::speed::{PROMPT, Speed};
use crate::kernels::backend::cpu_level;
use crate::kernels::pool;
use crate::kv_cache::BLOCK_SIZE;

/// Kinds to try where the weights don't fit, the largest first.
const SMALLER: [WeightKind; 4] =
    [WeightKind::Q8_0, WeightKind::Q6K, WeightKind::Q5K, WeightKind::Q4K];

/// Show what a model would take and how fast it could be.
///
/// Of a model of the hub that is not in the cache only headers are fetched. Flags are those of
/// `sconce serve`, which starts with this plan.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// A folder, a GGUF file or a hub id [default: --model, or the demo model].
    #[arg(id = "planned", value_name = "MODEL")]
    planned: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Leave out the speed, for which a part of the model is loaded and timed, for a few seconds.
    #[arg(long)]
    no_speed: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Prints the plan.
///
/// # Errors
/// The model can't be found, isn't supported or doesn't fit; what would fit is printed before.
pub fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let mut choice = args.serve.model_choice();
    if args.planned.is_some() {
        choice.model.clone_from(&args.planned);
    }
    let config = args.serve.engine_config();
    let device = OpenDevice::open(config.device, 0, 1)?;
    let plan = ModelPlan::new(&choice, &config, &device)?;
    let speed = (!args.no_speed).then(|| {
        let memory = plan.memory.as_ref().ok().and_then(Option::as_ref);
        Speed::measure(&plan.source, &plan.forecast, memory, &config, &device)
    });
    let speed = speed.map(|speed| speed.map_err(|error| error.to_string()));
    let report = Report { plan: &plan, config: &config, speed };
    report.print(args.json)
}

/// Prints what `sconce serve` would start with, for `--dry-run`.
pub(super) fn print_for(args: &ServeArgs) -> anyhow::Result<()> {
    let config = args.engine_config();
    let device = OpenDevice::open(config.device, 0, 1)?;
    let plan = ModelPlan::new(&args.model_choice(), &config, &device)?;
    Report { plan: &plan, config: &config, speed: None }.print(false)
}

struct Report<'a> {
    plan: &'a ModelPlan,
    config: &'a EngineConfig,
    /// How fast the model can be, or why that can't be told; `None`: nobody asked, or it is an encoder.
    speed: Option<Result<Option<Speed>, String>>,
}

impl Report<'_> {
    fn print(&self, as_json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if as_json {
            writeln!(out, "{}", self.json())?;
        } else {
            self.write(&mut out)?;
        }
        if let Some(refusal) = self.refusal() {
            anyhow::bail!("{refusal}");
        }
        Ok(())
    }

    fn memory(&self) -> Option<&MemoryPlan> {
        self.plan.memory.as_ref().ok()?.as_ref()
    }

    /// Why the model doesn't fit.
    fn refusal(&self) -> Option<String> {
        let forecast = &self.plan.forecast;
        let (needed, free) = (forecast.weight_bytes(), forecast.free_bytes);
        if needed > free {
            let (needed, free) = (Size(needed), Size(free));
            return Some(format!("the weights take {needed}, {} has {free} free", forecast.device));
        }
        self.plan.memory.as_ref().err().map(ToString::to_string)
    }

    /// What would make the model fit.
    fn advice(&self) -> Vec<String> {
        if self.refusal().is_none() {
            return Vec::new();
        }
        let free = self.plan.forecast.free_bytes;
        let mut advice = Vec::new();
        for kind in SMALLER {
            let Some(bytes) = self.plan.forecast.rounded_bytes(kind) else { break };
            // A tenth of the memory is left for everything else.
            if bytes <= free / 10 * 9 && bytes < self.plan.forecast.weight_bytes() {
                advice.push(format!("--quantize {kind}: the weights take {}", Size(bytes)));
            }
        }
        if let Some(facts) = self.plan.forecast.facts.filter(|facts| facts.block_bytes > 0) {
            let left = free.saturating_sub(self.plan.forecast.weight_bytes());
            let share = self.config.kv_cache_bytes.unwrap_or(left / 2);
            let fits = (share / facts.block_bytes * BLOCK_SIZE).min(facts.model_context);
            if fits >= 2 {
                advice.push(format!("--max-model-len {fits}: what the KV cache would hold"));
            }
        }
        if advice.is_empty() {
            advice.push(
                "a smaller or more quantized model, or a machine with more memory".to_owned(),
            );
        }
        advice
    }

    fn speed(&self) -> Option<Speed> {
        self.speed.as_ref()?.as_ref().ok().copied().flatten()
    }

    fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let (plan, forecast) = (self.plan, &self.plan.forecast);
        let remote = if plan.remote { ", from its headers: nothing was fetched" } else { "" };
        #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
        let parameters = forecast.parameters() as f64 / 1e9;
        writeln!(out, "{}: {parameters:.2} billion parameters{remote}", plan.name)?;
        let rows = forecast.weights.iter().map(|((part, kind), share)| {
            [part.name().to_owned(), kind.clone(), Size(share.bytes).to_string()]
        });
        table::write(out, ["WEIGHTS", "KIND", "MEMORY"], rows)?;
        writeln!(out, "weights        {}", Size(forecast.weight_bytes()))?;
        if let Some(facts) = forecast.facts {
            let token = facts.block_bytes / BLOCK_SIZE;
            writeln!(out, "KV cache       {token} bytes a token, as {}", forecast.kv_dtype)?;
            if facts.state_bytes > 0 {
                writeln!(out, "states         {} a sequence", Size(facts.state_bytes))?;
            }
            writeln!(out, "a step         {} at most", Size(forecast.scratch_bytes))?;
        }
        let own = forecast.own_bytes.map_or(String::new(), |all| format!(" of {}", Size(all)));
        writeln!(out, "{:<14} {}{own} free", forecast.device, Size(forecast.free_bytes))?;
        if let Some(memory) = self.memory() {
            writeln!(out, "plan           {memory}")?;
            writeln!(out, "all of it      {}", Size(forecast.process_bytes(Some(memory))))?;
        }
        match &self.speed {
            Some(Ok(Some(speed))) => self.write_speed(out, speed)?,
            Some(Err(error)) => writeln!(out, "speed          not measured: {error}")?,
            Some(Ok(None)) | None => {}
        }
        for advice in self.advice() {
            writeln!(out, "would help     {advice}")?;
        }
        Ok(())
    }

    fn write_speed(&self, out: &mut impl Write, speed: &Speed) -> std::io::Result<()> {
        let Speed { decode, decode_full, prefill, read_bytes, at_most } = *speed;
        let about = if at_most { "at most" } else { "about" };
        let level = level(&self.plan.forecast.device);
        let rate = read_bytes / 1e9;
        writeln!(
            out,
            "decode         {about} {decode:.0} tokens/s a stream, {decode_full:.0} at full context \
             ({level}, {rate:.1} GB/s)",
        )?;
        writeln!(out, "prefill        {about} {prefill:.0} tokens/s, of a prompt of {PROMPT}")
    }

    fn json(&self) -> Value {
        let (plan, forecast) = (self.plan, &self.plan.forecast);
        let weights: Vec<Value> = forecast
            .weights
            .iter()
            .map(|((part, kind), share)| {
                json!({
                    "part": part.name(), "kind": kind,
                    "parameters": share.elements, "bytes": share.bytes,
                })
            })
            .collect();
        let memory = self.memory();
        json!({
            "model": plan.name,
            "fetched": !plan.remote,
            "parameters": forecast.parameters(),
            "weights": weights,
            "weight_bytes": forecast.weight_bytes(),
            "kv_dtype": forecast.kv_dtype,
            "kv_bytes_per_token": forecast.facts.map(|facts| facts.block_bytes / BLOCK_SIZE),
            "state_bytes_per_sequence": forecast.facts.map(|facts| facts.state_bytes),
            "scratch_bytes": forecast.scratch_bytes,
            "device": forecast.device,
            "free_bytes": forecast.free_bytes,
            "model_context": forecast.context,
            "plan": memory.map(|memory| json!({
                "kv_cache_bytes": memory.kv_bytes(),
                "kv_tokens": memory.num_blocks * BLOCK_SIZE,
                "max_model_len": memory.max_model_len,
                "max_num_seqs": memory.max_num_seqs,
                "state_bytes": memory.state_bytes(),
                "snapshot_bytes": memory.snapshot_bytes(),
            })),
            "process_bytes": forecast.process_bytes(memory),
            "speed": self.speed().map(|speed| json!({
                "decode_tokens_per_second": speed.decode,
                "decode_tokens_per_second_at_full_context": speed.decode_full,
                "prefill_tokens_per_second": speed.prefill,
                "at_most": speed.at_most,
            })),
            "speed_error": self.speed.as_ref().and_then(|speed| speed.as_ref().err()),
            "fits": self.refusal().is_none(),
            "refusal": self.refusal(),
            "advice": self.advice(),
        })
    }
}

/// What computes.
fn level(device: &str) -> String {
    if device == "cpu" {
        format!("{} threads, {}", pool::threads(), cpu_level().name())
    } else {
        device.to_owned()
    }
}

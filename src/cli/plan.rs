//! `sconce plan`: what a model would take and how fast it could be, before it is loaded or even fetched.

use std::io::Write;
use std::num::NonZeroUsize;

use serde_json::{Value, json};

use super::serve::ServeArgs;
use super::table;
use crate::app::plan::ModelPlan;
use crate::config::{EngineConfig, WeightKind};
use crate::engine::memory::{MemoryPlan, Size};
use crate::engine::startup::device::OpenDevice;
use crate::engine::startup::forecast::{Forecast, Part, Work};
use crate::kernels::backend::cpu_level;
use crate::kernels::ceiling::{DeviceCeiling, ProductRates};
use crate::kernels::pool;
use crate::kv_cache::BLOCK_SIZE;

/// Kinds to try where the weights don't fit, the largest first.
const SMALLER: [WeightKind; 4] =
    [WeightKind::Q8_0, WeightKind::Q6K, WeightKind::Q5K, WeightKind::Q4K];

/// Tokens of the prompt whose speed is told.
const PROMPT: usize = 512;
/// How speeds are told that a GPU doesn't exceed.
const AT_MOST: &str = "at most";

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
    /// Leave out the speed, which is measured for about a second.
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
    let rates =
        if args.no_speed { None } else { Some(Rates::measure(&plan.forecast, &device, &config)?) };
    let report = Report { plan: &plan, config: &config, rates };
    report.print(args.json)
}

/// Prints what `sconce serve` would start with, for `--dry-run`.
pub(super) fn print_for(args: &ServeArgs) -> anyhow::Result<()> {
    let config = args.engine_config();
    let device = OpenDevice::open(config.device, 0, 1)?;
    let plan = ModelPlan::new(&args.model_choice(), &config, &device)?;
    Report { plan: &plan, config: &config, rates: None }.print(false)
}

/// How fast the device multiplies with the weights of a model: what products with weights of each kind
/// reach on a CPU, and what a GPU can do at most.
#[derive(Clone, Debug)]
struct Rates(Vec<(Work, ProductRates)>);

impl Rates {
    fn measure(
        forecast: &Forecast,
        device: &OpenDevice,
        config: &EngineConfig,
    ) -> anyhow::Result<Self> {
        let work = forecast.work_of_token();
        if !device.device.is_cpu() {
            let DeviceCeiling { copied_bytes, bf16_operations } =
                DeviceCeiling::measure(&device.device)?;
            let rates = ProductRates { read_bytes: copied_bytes, operations: bf16_operations };
            return Ok(Self(work.into_iter().map(|one| (one, rates)).collect()));
        }
        if let Some(threads) = config.threads.and_then(NonZeroUsize::new) {
            pool::start(threads)?;
        }
        let mut measured: Vec<(Work, ProductRates)> = Vec::new();
        for one in work {
            // Of a prompt's tokens each expert has a part.
            let rows = match (one.part, forecast.experts) {
                (Part::Experts, Some((some, all))) => (PROMPT * some / all.max(1)).max(1),
                _ => PROMPT,
            };
            let known = measured.iter().find(|(other, _)| {
                let alike = (other.part == Part::Experts) == (one.part == Part::Experts);
                alike && other.kind == one.kind
            });
            let rates = match known {
                Some((_, rates)) => *rates,
                None => ProductRates::measure(one.kind, rows)?,
            };
            measured.push((one, rates));
        }
        Ok(Self(measured))
    }

    /// Bytes in a second that are read of what products are made of.
    fn read_bytes(&self) -> f64 {
        self.0.iter().map(|(_, rates)| rates.read_bytes).fold(0.0, f64::max)
    }
}

/// Tokens in a second that come of the rates.
#[derive(Clone, Copy, Debug)]
struct Speed {
    /// Of one stream, its context short.
    decode: f64,
    /// Of one stream, its context full.
    decode_full: f64,
    prefill: f64,
}

struct Report<'a> {
    plan: &'a ModelPlan,
    config: &'a EngineConfig,
    rates: Option<Rates>,
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
        let rates = self.rates.as_ref()?;
        let facts = self.plan.forecast.facts?;
        let length = self.memory().map_or(facts.model_context, |plan| plan.max_model_len);
        let context = facts.block_bytes / BLOCK_SIZE * length;
        #[expect(clippy::cast_precision_loss, reason = "rates")]
        let seconds = |read: &dyn Fn(&Work, &ProductRates) -> (usize, f64)| -> f64 {
            let each = rates.0.iter().map(|(work, rates)| read(work, rates));
            each.map(|(amount, rate)| amount as f64 / rate).sum()
        };
        let decode = seconds(&|work, rates| (work.share.bytes, rates.read_bytes));
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let behind_context = context as f64 / rates.read_bytes();
        // The output head multiplies a prompt's last token alone.
        let prefill = seconds(&|work, rates| {
            let elements = if work.part == Part::Head { 0 } else { work.share.elements };
            (2 * elements, rates.operations)
        });
        Some(Speed {
            decode: 1.0 / decode,
            decode_full: 1.0 / (decode + behind_context),
            prefill: 1.0 / prefill,
        })
    }

    /// Whether speeds are what to expect, or what can't be exceeded.
    fn about(&self) -> &'static str {
        if self.plan.forecast.device == "cpu" { "about" } else { AT_MOST }
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
        if let Some(Speed { decode, decode_full, prefill }) = self.speed() {
            let about = self.about();
            writeln!(
                out,
                "decode         {about} {decode:.0} tokens/s a stream, {decode_full:.0} at full \
                 context ({}, {:.1} GB/s)",
                level(&forecast.device),
                self.rates.as_ref().map_or(0.0, Rates::read_bytes) / 1e9,
            )?;
            writeln!(out, "prefill        {about} {prefill:.0} tokens/s, of a prompt of {PROMPT}")?;
        }
        for advice in self.advice() {
            writeln!(out, "would help     {advice}")?;
        }
        Ok(())
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
                "at_most": self.about() == AT_MOST,
            })),
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

//! `sconce serve`: what was typed becomes configuration, a model is started, requests are served.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::byte_size::ByteSize;
use super::generation_config::GenerationConfig;
use super::lora_modules::{LoraModule, LoraModules};
use super::model::{self, ModelChoice, RunningModel};
use crate::config::{
    DeviceChoice, EngineConfig, KvCacheDtype, LoraServing, Parser, Pooling, ServerConfig,
    WeightKind,
};
use crate::http::state::{AppState, ServerParts};
use crate::text::{reasoning, tool_calls};

/// Serve a model over the OpenAI API.
///
/// Without --model the small demo model that is part of this program is served: a toy that shows
/// the server at work.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// How log lines are written to standard error. RUST_LOG sets what is logged.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, help_heading = "Output")]
    log_format: LogFormat,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model")]
struct ModelArgs {
    /// A hub id (org/name), a folder with config.json and safetensors, or a .gguf file.
    #[arg(long, value_name = "MODEL", env = "SCONCE_MODEL")]
    model: Option<String>,
    /// Branch, tag or commit of a hub id.
    #[arg(long, value_name = "REVISION", requires = "model")]
    revision: Option<String>,
    /// Use the hub's cache only, ask no network.
    #[arg(long)]
    offline: bool,
    /// Name that requests use for the model; repeat for aliases [default: the model's own].
    #[arg(long, value_name = "NAME")]
    served_model_name: Vec<String>,
    /// File with a chat template (Jinja) that replaces the model's own.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<String>,
    /// Whose temperature, top_p, ... requests without them get: auto is the model's own
    /// generation_config.json, none leaves this server's defaults; else a file or folder. Tokens
    /// that end a text stay the model's.
    #[arg(long, value_name = "auto|none|FILE", default_value = "auto")]
    generation_config: String,
    /// How tool calls are written; auto asks the chat template.
    #[arg(long, value_name = "FAMILY", default_value = "auto",
        value_parser = parser(tool_calls::names()))]
    tool_call_parser: Parser,
    /// How reasoning is written; auto asks the chat template.
    #[arg(long, value_name = "FAMILY", default_value = "auto",
        value_parser = parser(reasoning::names()))]
    reasoning_parser: Parser,
    #[command(flatten)]
    lora: LoraArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct LoraArgs {
    /// LoRA adapters that requests name as their model: NAME=PATH with a folder or a hub id, or
    /// JSON objects with name, path and base_model_name.
    #[arg(long, value_name = "NAME=PATH", num_args = 1..)]
    lora_modules: Vec<LoraModules>,
    /// Most LoRA adapters at once.
    #[arg(long, default_value_t = 32, value_name = "COUNT")]
    max_loras: usize,
    /// Highest rank of a LoRA adapter.
    #[arg(long, default_value_t = 128, value_name = "RANK")]
    max_lora_rank: usize,
    /// Let requests load and unload LoRA adapters (/v1/load_lora_adapter), from any folder that
    /// the server can read.
    #[arg(long, env = "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        value_parser = clap::builder::BoolishValueParser::new())]
    allow_runtime_lora_updating: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// Address to listen on; 0.0.0.0 for all.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000, value_name = "PORT", env = "SCONCE_PORT")]
    port: u16,
    /// Key that requests must carry (Authorization: Bearer KEY); repeat for more.
    #[arg(
        long,
        value_name = "KEY",
        env = "SCONCE_API_KEY",
        hide_env_values = true,
        value_delimiter = ','
    )]
    api_key: Vec<String>,
    /// Key that may also load and unload adapters, which with any key configured no other may.
    #[arg(
        long,
        value_name = "KEY",
        env = "SCONCE_ADMIN_API_KEY",
        hide_env_values = true,
        value_delimiter = ','
    )]
    admin_api_key: Vec<String>,
    /// Sequences that may wait for a place; one more is answered 429.
    #[arg(long, default_value_t = 256, value_name = "COUNT")]
    max_queued_requests: usize,
    /// Largest request body.
    #[arg(long, default_value = "8MiB", value_name = "SIZE")]
    max_body_size: ByteSize,
    /// Seconds that running requests may go on after SIGTERM.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    drain_timeout: u64,
    /// Origin that browsers may call from; repeat for more, * for all [default: none].
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Answer 400 to unknown fields, instead of naming them in x-sconce-ignored.
    #[arg(long)]
    strict: bool,
    /// Shorten max_tokens to what fits the context, instead of answering 400.
    #[arg(long)]
    clamp_max_tokens: bool,
    /// Render conversations with the chat_template of the request, if it has one.
    #[arg(long)]
    trust_request_chat_template: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
struct EngineArgs {
    /// Where the model runs: auto, cpu, cuda, cuda:N or metal.
    #[arg(long, default_value_t, value_name = "DEVICE", env = "SCONCE_DEVICE")]
    device: DeviceChoice,
    /// Processes that compute the model together, each with its part of the weights and on a GPU of
    /// its own, if there are GPUs.
    #[arg(long, default_value_t = 1, value_name = "COUNT", alias = "tensor-parallel-size")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    tensor_parallel: usize,
    /// On a GPU, too, make results independent of what else is computed, to the bit, as they are on
    /// a CPU; prompts take longer then.
    #[arg(long)]
    deterministic: bool,
    /// On a GPU, start every kernel of a decode step by itself instead of recording decode steps.
    #[arg(long)]
    enforce_eager: bool,
    /// Most sequences computed together in one step [default: 64; for a GPU 256].
    #[arg(long, value_name = "COUNT")]
    max_num_seqs: Option<usize>,
    /// Most tokens computed in one step; long prompts are cut into chunks of this size [default:
    /// 512; for a GPU 2048].
    #[arg(long, value_name = "COUNT")]
    max_num_batched_tokens: Option<usize>,
    /// Milliseconds a step should take while answers stream: prompts are cut smaller; 0 for no
    /// such limit.
    #[arg(long, default_value_t = 175, value_name = "MILLISECONDS")]
    target_step_ms: u64,
    /// Longest sequence, prompt and answer together [default: the model's own, or what fits].
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
    /// Memory for the KV cache [default: a share of what is free].
    #[arg(long, value_name = "SIZE")]
    kv_cache_memory: Option<ByteSize>,
    /// Share of free memory that the KV cache may take, in percent.
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    memory_percent: u8,
    /// Share of all of a GPU's memory for weights, KV cache and everything else.
    #[arg(long, default_value_t = 0.9, value_name = "SHARE", value_parser = share)]
    gpu_memory_utilization: f64,
    /// Element type of the KV cache; auto is what config.json names, and f16 for GGUF files.
    #[arg(long, value_name = "DTYPE", value_parser = kv_cache_dtype(), default_value_t)]
    kv_cache_dtype: KvCacheDtype,
    /// Round weight matrices to this type as they are loaded [default: as stored].
    #[arg(long, value_parser = weight_kind(false), conflicts_with = "quantize")]
    dtype: Option<WeightKind>,
    /// Quantize the weight matrices of a bf16, f16 or f32 checkpoint as they are loaded.
    #[arg(long, value_parser = weight_kind(true))]
    quantize: Option<WeightKind>,
    /// Don't reuse the KV cache of equal prompt beginnings.
    #[arg(long)]
    no_prefix_cache: bool,
    /// How hidden states become an embedding [default: as the checkpoint says, or last, or mean for encoders].
    #[arg(long, value_name = "POOLING", value_parser = pooling())]
    pooling: Option<Pooling>,
    /// Threads for the computation [default: all cores].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Takes a number above 0 and up to 1, which is at least one percent.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.01..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no number from 0.01 to 1")),
    }
}

/// Takes the names of families, "auto" and "none".
fn parser(names: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = Parser> {
    let names: Vec<&'static str> = names.collect();
    let all = ["auto", "none"].into_iter().chain(names.iter().copied());
    PossibleValuesParser::new(all).map(move |chosen| match chosen.as_str() {
        "auto" => Parser::Detected,
        "none" => Parser::Off,
        chosen => {
            let name = names.iter().find(|name| **name == chosen);
            Parser::Named(name.expect("only these names are accepted"))
        }
    })
}

/// Takes the names that the configuration knows.
fn pooling() -> impl TypedValueParser<Value = Pooling> {
    PossibleValuesParser::new(Pooling::ALL.map(Pooling::name))
        .map(|name| Pooling::named(&name).expect("only these names are accepted"))
}

/// Takes the names that the configuration knows.
fn kv_cache_dtype() -> impl TypedValueParser<Value = KvCacheDtype> {
    PossibleValuesParser::new(KvCacheDtype::ALL.map(KvCacheDtype::name))
        .map(|name| KvCacheDtype::named(&name).expect("only these names are accepted"))
}

/// Takes the names of the kinds that are quantized, or of those that are not.
fn weight_kind(quantized: bool) -> impl TypedValueParser<Value = WeightKind> {
    let kinds = WeightKind::ALL.into_iter().filter(move |kind| kind.is_quantized() == quantized);
    PossibleValuesParser::new(kinds.map(WeightKind::name))
        .map(|name| WeightKind::named(&name).expect("only these names are accepted"))
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl ServeArgs {
    pub(super) fn model_choice(&self) -> ModelChoice {
        ModelChoice {
            model: self.model.model.clone(),
            revision: self.model.revision.clone(),
            offline: self.model.offline,
            name: self.model.served_model_name.first().cloned(),
            chat_template: self.model.chat_template.clone(),
            generation_config: GenerationConfig::parse(&self.model.generation_config),
            adapters: self.adapters(),
        }
    }

    pub(super) fn start_logging(&self) {
        start_logging(self.log_format);
    }

    fn adapters(&self) -> Vec<LoraModule> {
        self.model.lora.lora_modules.iter().flat_map(|modules| modules.0.clone()).collect()
    }

    /// Checks adapters beside the model's names.
    fn check_adapters(&self, names: &[String]) -> anyhow::Result<()> {
        let (adapters, most) = (self.adapters(), self.model.lora.max_loras);
        let count = adapters.len();
        anyhow::ensure!(
            count <= most,
            "--lora-modules has {count} adapters, --max-loras is {most}"
        );
        for LoraModule { name, base_model_name, .. } in adapters {
            anyhow::ensure!(!names.contains(&name), "--lora-modules: {name} is the model's name");
            if let Some(base) = base_model_name.filter(|base| !names.contains(base)) {
                let known = names.join(", ");
                anyhow::bail!("--lora-modules: {name} belongs to {base}, the model is {known}");
            }
        }
        Ok(())
    }

    pub(super) fn engine_config(&self) -> EngineConfig {
        let args = &self.engine;
        let default = EngineConfig::default();
        let (num_seqs, num_tokens) = if args.device.prefers_gpu() {
            (256, 2048)
        } else {
            (default.max_num_seqs, default.max_num_batched_tokens)
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 100")]
        let gpu_memory_percent = (args.gpu_memory_utilization * 100.0).round() as u8;
        EngineConfig {
            device: args.device,
            tensor_parallel: args.tensor_parallel,
            gpu_memory_percent,
            deterministic: args.deterministic,
            enforce_eager: args.enforce_eager,
            max_num_seqs: args.max_num_seqs.unwrap_or(num_seqs),
            max_num_batched_tokens: args.max_num_batched_tokens.unwrap_or(num_tokens),
            target_step_time: (args.target_step_ms > 0)
                .then(|| Duration::from_millis(args.target_step_ms)),
            max_model_len: args.max_model_len,
            kv_cache_bytes: args.kv_cache_memory.map(|size| size.0),
            memory_percent: args.memory_percent,
            kv_cache_dtype: args.kv_cache_dtype,
            weight_kind: args.quantize.or(args.dtype),
            prefix_cache: !args.no_prefix_cache,
            threads: args.threads.map(usize::from),
            pooling: args.pooling,
            max_lora_rank: self.model.lora.max_lora_rank,
        }
    }

    fn server_config(&self, model_name: &str) -> ServerConfig {
        let args = &self.network;
        let names = &self.model.served_model_name;
        ServerConfig {
            address: SocketAddr::new(args.host, args.port),
            served_model_names: if names.is_empty() {
                vec![model_name.to_owned()]
            } else {
                names.clone()
            },
            api_keys: given(&args.api_key),
            admin_api_keys: given(&args.admin_api_key),
            max_queued_requests: args.max_queued_requests,
            max_body_bytes: args.max_body_size.0,
            drain_timeout: Duration::from_secs(args.drain_timeout),
            cors_origins: args.cors_origin.clone(),
            strict: args.strict,
            clamp_max_tokens: args.clamp_max_tokens,
            trust_request_chat_template: args.trust_request_chat_template,
            tool_call_parser: self.model.tool_call_parser,
            reasoning_parser: self.model.reasoning_parser,
            lora: LoraServing {
                max_loras: self.model.lora.max_loras,
                at_run_time: self.model.lora.allow_runtime_lora_updating,
            },
        }
    }
}

/// Keys that aren't empty, as those of an unset variable in a container's configuration are.
fn given(keys: &[String]) -> Vec<String> {
    keys.iter().filter(|key| !key.is_empty()).cloned().collect()
}

/// Serves until SIGTERM or Ctrl-C, then drains.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.start_logging();
    let began = Instant::now();
    if !args.model.served_model_name.is_empty() {
        args.check_adapters(&args.model.served_model_name)?;
    }
    let address = SocketAddr::new(args.network.host, args.network.port);
    let listener = bind(address)?;
    let (choice, config) = (args.model_choice(), args.engine_config());
    let running = tokio::task::spawn_blocking(move || model::start(&choice, &config)).await??;
    if let Some(plan) = &running.engine.plan {
        tracing::info!(model = running.name, "{plan}");
    }
    let server_config = args.server_config(&running.name);
    args.check_adapters(&server_config.served_model_names)?;
    let state = AppState::new(server_parts(running, server_config));
    let listener = tokio::net::TcpListener::from_std(listener)?;
    announce(listener.local_addr()?, began.elapsed())?;
    let report = crate::http::serve(listener, state, stop_signal()).await?;
    if report.cut > 0 {
        tracing::warn!(cut = report.cut, "requests were cut at the end of the drain");
    }
    Ok(())
}

/// What `http` needs of a running model.
pub(super) fn server_parts(running: RunningModel, config: ServerConfig) -> ServerParts {
    ServerParts {
        config,
        engine: running.engine.handle,
        adapters: running.adapters,
        tokenizer: running.tokenizer,
        chat_template: running.chat_template,
        tool_chat_template: running.tool_chat_template,
        defaults: running.defaults,
        embedding_prompts: running.embedding_prompts,
        eos_token_ids: running.eos_token_ids,
        metrics: running.metrics,
        build_features: build_features(),
    }
}

/// Before the model is loaded, so that a taken port is known at once.
fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("can't listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn announce(address: SocketAddr, took: Duration) -> anyhow::Result<()> {
    writeln!(
        std::io::stdout(),
        "sconce {} is ready on http://{address} after {:.2} s",
        env!("CARGO_PKG_VERSION"),
        took.as_secs_f64()
    )?;
    Ok(std::io::stdout().flush()?)
}

fn build_features() -> Vec<String> {
    let features = [
        ("hub", cfg!(feature = "hub")),
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
    ];
    features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
}

fn start_logging(format: LogFormat) {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,hf_hub=off"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // Only a second server in one process finds a logger already there, and may use it.
    drop(installed);
}

/// Resolves at SIGTERM or Ctrl-C.
async fn stop_signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = interrupt => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM can't be caught; Ctrl-C still drains");
                let _ = interrupt.await;
            }
        }
    }
    #[cfg(not(unix))]
    let _ = interrupt.await;
}

//! The flags of `sconce serve`, and the configuration that they stand for.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::byte_size::ByteSize;
use super::kv_events::KvEventsConfig;
use super::logging::OutputArgs;
use super::lora_modules::LoraModules;
use super::models_args::ModelsArgs;
use super::speech::SpeechArgs;
use super::store::StoreArgs;
use super::values::{MostMedia, parser, percent_share, value_of};
use clap::builder::TypedValueParser;
use serde_json::{Map, Value};

use crate::app::adapters::LoraModule;
use crate::app::choice::ModelChoice;
use crate::app::generation_config::GenerationConfig;
use crate::config::{
    DeviceChoice, EngineConfig, KvCacheDtype, KvDisk, LoraServing, MediaConfig, Nodes, Parser,
    Pooling, ServerConfig, TlsFiles, WeightKind,
};
use crate::text::{reasoning, tool_calls};
use crate::weights::projector::ProjectorChoice;

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
    #[command(flatten)]
    pub(super) models: ModelsArgs,
    #[command(flatten)]
    speech: SpeechArgs,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print what would be loaded and what it would take, and end; see `sconce plan`.
    #[arg(long, help_heading = "Output")]
    pub(crate) dry_run: bool,
    /// File with further flags, as lines such as max-num-seqs = 32 [default: sconce.toml here, then
    /// /etc/sconce/sconce.toml, if there is one]. The environment sets flags, too (SCONCE_MAX_NUM_SEQS), and
    /// is stronger.
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model")]
struct ModelArgs {
    /// A hub id (org/name), a folder with config.json and safetensors, or a .gguf file.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Branch, tag or commit of a hub id.
    #[arg(long, value_name = "REVISION", requires = "model")]
    revision: Option<String>,
    /// Use the hub's cache only, ask no network.
    #[arg(long)]
    offline: bool,
    /// File with the vision tower of a model in GGUF [default: the mmproj-*.gguf beside it].
    #[arg(long, value_name = "FILE", requires = "model")]
    mmproj: Option<PathBuf>,
    /// Leave out the vision tower beside a model in GGUF: it reads texts alone.
    #[arg(long, conflicts_with = "mmproj")]
    no_mmproj: bool,
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
    /// the server can read. VLLM_ALLOW_RUNTIME_LORA_UPDATING in the environment does the same.
    #[arg(long)]
    allow_runtime_lora_updating: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// Address to listen on; 0.0.0.0 for all.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000, value_name = "PORT")]
    port: u16,
    /// Unix socket to listen on, instead of a host and a port.
    #[arg(long, value_name = "FILE")]
    uds: Option<PathBuf>,
    /// Port of the same host for /metrics and for loading adapters, which the other address hasn't then;
    /// health is on both.
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
    /// File with a chain of certificates in PEM; with it connections are encrypted. It is read again when it
    /// changes, and at SIGHUP.
    #[arg(long, value_name = "FILE")]
    ssl_certfile: Option<PathBuf>,
    /// File with the private key of --ssl-certfile, in PEM [default: that file].
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    ssl_keyfile: Option<PathBuf>,
    /// Key that requests must carry (Authorization: Bearer KEY); repeat for more.
    #[arg(long, value_name = "KEY", hide_env_values = true, value_delimiter = ',')]
    api_key: Vec<String>,
    /// Key that may also load and unload adapters, which with any key configured no other may.
    #[arg(long, value_name = "KEY", hide_env_values = true, value_delimiter = ',')]
    admin_api_key: Vec<String>,
    /// File with further keys, as digests with names, scopes and limits (TOML or JSON; sconce key new makes
    /// an entry). It is read again when it changes, and at SIGHUP.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Sequences that may wait to run; one more is answered 429.
    #[arg(long, default_value_t = 256, value_name = "COUNT")]
    max_queued_requests: usize,
    /// Tokens of prompts that may wait for their first token; one more is answered 429 [default: any
    /// number].
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    max_queued_tokens: Option<usize>,
    /// Tokens of a text to embed: one that is longer than the model takes is embedded in pieces, whose
    /// vectors are averaged by their tokens [default: what the model takes].
    #[arg(long, value_name = "COUNT")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    max_embed_len: Option<usize>,
    /// Connections that may be open at once; one more is answered 503.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    max_connections: usize,
    /// Largest request body [default: 8MiB, or 64MiB where the model sees pictures or hears sounds].
    #[arg(long, value_name = "SIZE")]
    max_body_size: Option<ByteSize>,
    /// Host that pictures may be fetched from; repeat for more. Addresses that are not public are
    /// never called [default: none].
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    allowed_media_domains: Vec<String>,
    /// Most pictures and sounds in a prompt, as image=COUNT,audio=COUNT.
    #[arg(long, default_value = "image=100,audio=16", value_name = "LIMITS")]
    limit_mm_per_prompt: MostMedia,
    /// Seconds after SIGTERM in which requests are still taken while /health/ready is 503 already, so
    /// that load balancers stop sending any.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    drain_delay: u64,
    /// Seconds that running requests may go on after SIGTERM and --drain-delay.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    drain_timeout: u64,
    /// Origin that browsers may call from; repeat for more, * for all, localhost for the pages of
    /// this machine at any port [default: none].
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Answer 400 to unknown fields, instead of naming them in x-sconce-ignored, and to a max_tokens
    /// that doesn't fit the context, instead of shortening it.
    #[arg(long)]
    strict: bool,
    /// Shorten max_tokens even if it is above the whole context, or with --strict.
    #[arg(long)]
    clamp_max_tokens: bool,
    /// Most likely tokens that logprobs may list at each place; -1 allows the whole vocabulary.
    #[arg(long, default_value_t = 20, value_name = "COUNT", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    max_logprobs: i64,
    /// Variables of the chat template for all requests, as a JSON object, such as
    /// {"enable_thinking": false}; a request's own are stronger.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Render conversations with the chat_template of the request, if it has one.
    #[arg(long)]
    trust_request_chat_template: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
struct EngineArgs {
    /// Where the model runs: auto, cpu, cuda, cuda:N or metal.
    #[arg(long, default_value_t, value_name = "DEVICE")]
    device: DeviceChoice,
    /// Processes that compute the model together, each with its part of the weights and on a GPU of
    /// its own, if there are GPUs.
    #[arg(long, default_value_t = 1, value_name = "COUNT", alias = "tensor-parallel-size")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    tensor_parallel: usize,
    /// Processes that compute the model one after the other, each with its layers: for machines that
    /// are far from each other, since they send each other little.
    #[arg(long, default_value_t = 1, value_name = "COUNT", alias = "pipeline-parallel-size")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pipeline_parallel: usize,
    /// Machines that the processes of --tensor-parallel or --pipeline-parallel are on, equally many on
    /// each. Every machine runs the same command, but for --node-rank.
    #[arg(long, value_name = "COUNT", requires_all = ["master_addr", "rank_secret_file"])]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    nnodes: Option<usize>,
    /// Which of these machines this is, from 0, which serves; the others compute for it.
    #[arg(long, default_value_t = 0, value_name = "RANK", requires = "nnodes")]
    node_rank: usize,
    /// Address of machine 0, where it waits for the others.
    #[arg(long, value_name = "HOST", requires = "nnodes")]
    master_addr: Option<String>,
    /// Port of --master-addr.
    #[arg(long, default_value_t = 29500, value_name = "PORT", requires = "nnodes")]
    master_port: u16,
    /// File with a secret of at least 32 bytes that is the same on all machines; who doesn't know it is
    /// no rank. What ranks send is not encrypted: give them a network that you trust.
    #[arg(long, value_name = "FILE", requires = "nnodes")]
    rank_secret_file: Option<PathBuf>,
    /// On a GPU, too, make results independent of what else is computed, to the bit, as they are on
    /// a CPU; prompts and steps of many streams take longer then.
    #[arg(long)]
    deterministic: bool,
    /// On a GPU, start every kernel of a decode step by itself instead of capturing CUDA graphs.
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
    /// Seconds that a step may take until /health/live is 503, so that the server is started again;
    /// 0 for no such limit.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    step_timeout: u64,
    /// Longest sequence, prompt and answer together [default: the model's own, or what fits].
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
    /// Memory for the KV cache [default: a share of what is free].
    #[arg(long, value_name = "SIZE")]
    kv_cache_memory: Option<ByteSize>,
    /// Memory of that for states of recurrent layers, which prompts to hybrid models resume from
    /// [default: a quarter of what running sequences leave; all of it without a KV cache].
    #[arg(long, value_name = "SIZE", conflicts_with = "no_prefix_cache")]
    state_cache_memory: Option<ByteSize>,
    /// Share of free memory that the KV cache may take, in percent.
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    memory_percent: u8,
    /// Share of all of a GPU's memory for weights, KV cache and everything else.
    #[arg(long, default_value_t = 0.9, value_name = "SHARE", value_parser = percent_share)]
    gpu_memory_utilization: f64,
    /// Element type of the KV cache; auto is what config.json names, and f16 for GGUF files.
    #[arg(long, value_name = "DTYPE", default_value_t,
        value_parser = value_of(KvCacheDtype::ALL, KvCacheDtype::name))]
    kv_cache_dtype: KvCacheDtype,
    /// Round weight matrices to this type as they are loaded [default: as stored].
    #[arg(long, conflicts_with = "quantize", value_parser = weight_kind(false))]
    dtype: Option<WeightKind>,
    /// Quantize the weight matrices of a bf16, f16 or f32 checkpoint as they are loaded.
    #[arg(long, value_parser = weight_kind(true))]
    quantize: Option<WeightKind>,
    /// Most tokens that are drafted at a time; 0 turns speculative decoding off. How many are drafted
    /// follows what they are worth, and answers are the same with and without [default: 16; for a GPU 0].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=64))]
    draft_max: Option<u16>,
    /// A small model with the same tokenizer that drafts tokens, an EAGLE-3 head, a drafter of blocks (DFlash,
    /// DSpark) or a head in GGUF for this model: a hub id, a folder or a .gguf file. It is asked where that
    /// pays, and answers are the same with and without.
    #[arg(long, value_name = "MODEL")]
    draft_model: Option<String>,
    /// Don't reuse the KV cache of equal prompt beginnings.
    #[arg(long)]
    no_prefix_cache: bool,
    /// Host memory that keeps blocks of the KV cache which leave that of a GPU.
    #[arg(long, value_name = "SIZE", conflicts_with = "no_prefix_cache")]
    kv_host_memory: Option<ByteSize>,
    /// Folder that keeps blocks of the KV cache beyond memory and restarts; several servers may
    /// share it.
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_prefix_cache")]
    kv_disk: Option<PathBuf>,
    /// Most bytes in that folder; what was not used for longest is removed.
    #[arg(long, value_name = "SIZE", default_value = "16GiB", requires = "kv_disk")]
    kv_disk_size: ByteSize,
    /// Milliseconds that a prompt waits for the next of its blocks to be read from that folder; then
    /// it is computed.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, requires = "kv_disk")]
    kv_disk_wait: u64,
    /// Publish over ZeroMQ what is cached and what is not any more, as vLLM does for routers: a JSON
    /// object such as {"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint":
    /// "tcp://*:5558", "topic": "kv-events"}.
    #[arg(long, value_name = "JSON", conflicts_with = "no_prefix_cache")]
    kv_events_config: Option<KvEventsConfig>,
    /// How hidden states become an embedding [default: as the checkpoint says, or last, or mean for encoders].
    #[arg(long, value_name = "POOLING", value_parser = value_of(Pooling::ALL, Pooling::name))]
    pooling: Option<Pooling>,
    /// Threads for the computation [default: one for each fast core].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// Takes the names of weight kinds: of those that are stored in blocks, or of the others.
fn weight_kind(quantized: bool) -> impl TypedValueParser<Value = WeightKind> {
    let kinds = WeightKind::ALL.into_iter().filter(move |kind| kind.is_quantized() == quantized);
    value_of(kinds, WeightKind::name)
}

impl ModelArgs {
    /// Where the vision tower of a model in GGUF is.
    fn projector(&self) -> ProjectorChoice {
        match &self.mmproj {
            Some(file) => ProjectorChoice::At(file.clone()),
            None if self.no_mmproj => ProjectorChoice::Absent,
            None => ProjectorChoice::Beside,
        }
    }
}

impl EngineArgs {
    /// The machines that compute the model together, if there are several.
    fn nodes(&self) -> Option<Nodes> {
        // The parser asks for both where there is a number of machines.
        let (address, secret) = (self.master_addr.as_ref()?, self.rank_secret_file.as_ref()?);
        let count = self.nnodes.filter(|count| *count > 1)?;
        Some(Nodes {
            count,
            rank: self.node_rank,
            master_addr: address.clone(),
            master_port: self.master_port,
            secret_file: secret.clone(),
        })
    }
}

impl ServeArgs {
    /// The model that the flags choose.
    pub(crate) fn model_choice(&self) -> ModelChoice {
        ModelChoice {
            model: self.model.model.clone(),
            draft_model: self.engine.draft_model.clone(),
            projector: self.model.projector(),
            revision: self.model.revision.clone(),
            offline: self.model.offline,
            name: self.model.served_model_name.first().cloned(),
            chat_template: self.model.chat_template.clone(),
            generation_config: GenerationConfig::parse(&self.model.generation_config),
            adapters: self.adapters(),
            speech: self.speech.choice(self.engine.threads),
        }
    }

    /// The adapters of all `--lora-modules`.
    pub(super) fn adapters(&self) -> Vec<LoraModule> {
        self.model.lora.lora_modules.iter().flat_map(|modules| modules.0.clone()).collect()
    }

    /// How the engine is to run.
    pub(crate) fn engine_config(&self) -> EngineConfig {
        let args = &self.engine;
        let default = EngineConfig::default();
        let on_gpu = args.device.prefers_gpu();
        let (num_seqs, num_tokens) = if on_gpu {
            (256, 2048)
        } else {
            (default.max_num_seqs, default.max_num_batched_tokens)
        };
        // What drafts gain on a GPU nobody has measured; who names a model that drafts wants them.
        let drafts = if on_gpu && args.draft_model.is_none() { 0 } else { default.draft_max };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 100")]
        let gpu_memory_percent = (args.gpu_memory_utilization * 100.0).round() as u8;
        EngineConfig {
            device: args.device,
            tensor_parallel: args.tensor_parallel,
            pipeline_parallel: args.pipeline_parallel,
            nodes: args.nodes(),
            gpu_memory_percent,
            deterministic: args.deterministic,
            enforce_eager: args.enforce_eager,
            max_num_seqs: args.max_num_seqs.unwrap_or(num_seqs),
            max_num_batched_tokens: args.max_num_batched_tokens.unwrap_or(num_tokens),
            target_step_time: (args.target_step_ms > 0)
                .then(|| Duration::from_millis(args.target_step_ms)),
            max_model_len: args.max_model_len,
            kv_cache_bytes: args.kv_cache_memory.map(|size| size.0),
            state_cache_bytes: args.state_cache_memory.map(|size| size.0),
            memory_percent: args.memory_percent,
            kv_cache_dtype: args.kv_cache_dtype,
            weight_kind: args.quantize.or(args.dtype),
            draft_max: args.draft_max.map_or(drafts, usize::from),
            prefix_cache: !args.no_prefix_cache,
            kv_host_bytes: args.kv_host_memory.map(|size| size.0 as u64),
            kv_disk: args.kv_disk.clone().map(|path| KvDisk {
                path,
                max_bytes: args.kv_disk_size.0 as u64,
                patience: Duration::from_millis(args.kv_disk_wait),
            }),
            kv_events: args.kv_events_config.clone().and_then(KvEventsConfig::resolve),
            threads: args.threads.map(usize::from),
            pooling: args.pooling,
            max_lora_rank: self.model.lora.max_lora_rank,
        }
    }

    /// Which pictures and sounds requests may bring.
    fn media(&self) -> MediaConfig {
        let (usual, most) = (MediaConfig::default(), self.network.limit_mm_per_prompt);
        let (max_sound_bytes, max_sound_seconds) = self.speech.bounds();
        MediaConfig {
            max_images: most.images.unwrap_or(usual.max_images),
            max_sounds: most.sounds.unwrap_or(usual.max_sounds),
            max_sound_bytes,
            max_sound_seconds,
            domains: self.network.allowed_media_domains.clone(),
        }
    }

    /// How the server is to listen, for a model that is called `model_name` unless flags name it.
    pub(super) fn server_config(&self, model_name: &str) -> ServerConfig {
        let args = &self.network;
        let names = &self.model.served_model_name;
        ServerConfig {
            address: SocketAddr::new(args.host, args.port),
            uds: args.uds.clone(),
            admin_port: args.admin_port,
            tls: args.ssl_certfile.clone().map(|certificates| TlsFiles {
                key: args.ssl_keyfile.clone().unwrap_or_else(|| certificates.clone()),
                certificates,
            }),
            served_model_names: if names.is_empty() {
                vec![model_name.to_owned()]
            } else {
                names.clone()
            },
            api_keys: given(&args.api_key),
            admin_api_keys: given(&args.admin_api_key),
            api_key_file: args.api_key_file.clone(),
            max_queued_requests: args.max_queued_requests,
            max_queued_tokens: args.max_queued_tokens,
            max_embed_len: args.max_embed_len,
            max_connections: args.max_connections,
            max_body_bytes: args.max_body_size.map(|size| size.0),
            media: self.media(),
            drain_delay: Duration::from_secs(args.drain_delay),
            drain_timeout: Duration::from_secs(args.drain_timeout),
            log: self.output.log_config(),
            step_timeout: (self.engine.step_timeout > 0)
                .then(|| Duration::from_secs(self.engine.step_timeout)),
            cors_origins: args.cors_origin.clone(),
            strict: args.strict,
            clamp_max_tokens: args.clamp_max_tokens,
            max_logprobs: u32::try_from(args.max_logprobs).ok(),
            chat_template_kwargs: args.chat_template_kwargs.clone().unwrap_or_default(),
            trust_request_chat_template: args.trust_request_chat_template,
            tool_call_parser: self.model.tool_call_parser,
            reasoning_parser: self.model.reasoning_parser,
            store: self.store.limits(),
            lora: LoraServing {
                max_loras: self.model.lora.max_loras,
                at_run_time: self.model.lora.allow_runtime_lora_updating,
            },
        }
    }
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("it must be a JSON object: {error}"))
}

/// Keys that aren't empty, as those of an unset variable in a container's configuration are.
fn given(keys: &[String]) -> Vec<String> {
    keys.iter().filter(|key| !key.is_empty()).cloned().collect()
}

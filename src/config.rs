//! Resolved and validated configuration: what the engine and the server run with.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use candle_core::quantized::GgmlDType;
use serde_json::{Map, Value};

mod device;
mod speech;

pub use device::{DeviceChoice, UnknownDevice};
pub use speech::SpeechConfig;

/// How the engine runs; every value is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Where the model runs.
    pub device: DeviceChoice,
    /// Processes that compute the model together, each with its part of the weights.
    pub tensor_parallel: usize,
    /// Processes that compute the model one after the other, each with its layers.
    pub pipeline_parallel: usize,
    /// The machines that these processes are on, if there are several.
    pub nodes: Option<Nodes>,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Most tokens in one step, prefill chunks and decodes together.
    pub max_num_batched_tokens: usize,
    /// What a step should take while streams decode in it: prompts are cut into chunks that fit.
    /// `None` cuts them by `max_num_batched_tokens` alone.
    pub target_step_time: Option<Duration>,
    /// Most tokens of a sequence; `None` takes the model's own, or what the KV memory holds.
    pub max_model_len: Option<usize>,
    /// Bytes for the KV cache of each process; `None` sizes it from free memory.
    pub kv_cache_bytes: Option<usize>,
    /// Bytes of that for snapshots of recurrent states; `None` takes a share of it.
    pub state_cache_bytes: Option<usize>,
    /// Share of the memory that is free once the weights are loaded which the KV cache may take,
    /// in percent (1 to 95).
    pub memory_percent: u8,
    /// Share of all of a GPU's memory that this server may take, in percent (1 to 100), instead.
    pub gpu_memory_percent: u8,
    /// Results on a GPU don't depend on what else is in a step, to the bit.
    pub deterministic: bool,
    /// Every kernel of a decode step is started by itself on a GPU; no CUDA graphs are captured.
    pub enforce_eager: bool,
    /// Element type of the KV cache.
    pub kv_cache_dtype: KvCacheDtype,
    /// What weight matrices are rounded to as they are loaded; `None` keeps what is stored.
    pub weight_kind: Option<WeightKind>,
    /// Most tokens of a sequence that are drafted at a time; 0 for no speculative decoding.
    pub draft_max: usize,
    /// Reuse KV blocks of equal prefixes.
    pub prefix_cache: bool,
    /// Most bytes of host memory that keep such blocks beyond the pool.
    pub kv_host_bytes: Option<u64>,
    /// Where they are kept beyond the process.
    pub kv_disk: Option<KvDisk>,
    /// Where changes of what is cached are published.
    pub kv_events: Option<KvEvents>,
    /// Worker threads for the CPU kernels; `None` takes one for each fast core.
    pub threads: Option<usize>,
    /// How hidden states become an embedding; `None` does what the checkpoint says, or takes the
    /// last token's, or the mean of an encoder's.
    pub pooling: Option<Pooling>,
    /// Highest rank of a LoRA adapter.
    pub max_lora_rank: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            tensor_parallel: 1,
            pipeline_parallel: 1,
            nodes: None,
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            target_step_time: Some(Duration::from_millis(175)),
            max_model_len: None,
            kv_cache_bytes: None,
            state_cache_bytes: None,
            memory_percent: 50,
            gpu_memory_percent: 90,
            deterministic: false,
            enforce_eager: false,
            kv_cache_dtype: KvCacheDtype::Auto,
            weight_kind: None,
            draft_max: 16,
            prefix_cache: true,
            kv_host_bytes: None,
            kv_disk: None,
            kv_events: None,
            threads: None,
            pooling: None,
            max_lora_rank: 128,
        }
    }
}

impl EngineConfig {
    /// Processes that compute the model.
    pub fn ranks(&self) -> usize {
        self.tensor_parallel * self.pipeline_parallel
    }

    /// The flag that asks for more than one.
    pub fn ranks_flag(&self) -> &'static str {
        if self.pipeline_parallel > 1 { "--pipeline-parallel" } else { "--tensor-parallel" }
    }

    /// Ranks on each machine.
    pub fn ranks_per_node(&self) -> usize {
        self.ranks() / self.nodes.as_ref().map_or(1, |nodes| nodes.count)
    }
}

/// The machines that compute a model together: each has equally many ranks, in the order of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// How many there are.
    pub count: usize,
    /// Which of them this one is; 0 has rank 0, which serves.
    pub rank: usize,
    /// Where 0 waits for the others.
    pub master_addr: String,
    /// The port there.
    pub master_port: u16,
    /// File with what all of them know, and nobody else.
    pub secret_file: PathBuf,
}

/// A folder that KV blocks are kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvDisk {
    /// The folder, which several processes may share.
    pub path: PathBuf,
    /// Most bytes in it.
    pub max_bytes: u64,
    /// Longest time without a block that a prompt waits for those that are read; then it is computed.
    pub patience: Duration,
}

/// How changes of the KV cache are published over ZeroMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvents {
    /// Where they are published: `tcp://` or `ipc://`. With a `*` or `::`, and for `ipc://`, it is bound;
    /// else connected to.
    pub endpoint: String,
    /// What subscribers ask for batches that they missed, bound in any case.
    pub replay_endpoint: Option<String>,
    /// Batches that are kept for them.
    pub buffer_steps: usize,
    /// Batches that may wait to be published, at least 1; more are dropped.
    pub max_queue_size: usize,
    /// The first frame of each message.
    pub topic: String,
}

/// What the elements of weight matrices are stored as in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightKind {
    /// 32-bit floats, multiplied in f32.
    F32,
    /// 16-bit floats, multiplied in f32.
    F16,
    /// 16-bit brain floats, activations rounded to as many bits.
    Bf16,
    /// Blocks of 32 with one scale: 8.5 bits an element. Activations are rounded to eight bits, here
    /// and for all kinds below.
    Q8_0,
    /// Blocks of 256 with scales of scales: 6.6 bits.
    Q6K,
    /// Blocks of 256 with scales of scales: 5.5 bits.
    Q5K,
    /// Blocks of 32 with a scale and a minimum: 6 bits.
    Q5_1,
    /// Blocks of 32 with one scale: 5.5 bits.
    Q5_0,
    /// Blocks of 256 with scales of scales: 4.5 bits.
    Q4K,
    /// Blocks of 32 with a scale and a minimum: 5 bits.
    Q4_1,
    /// Blocks of 32 with one scale: 4.5 bits.
    Q4_0,
}

impl WeightKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q6K,
        Self::Q5K,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4K,
        Self::Q4_1,
        Self::Q4_0,
    ];

    /// The table of kinds: the name that users write, and what the tensor library calls it.
    const fn row(self) -> (&'static str, GgmlDType) {
        match self {
            Self::F32 => ("f32", GgmlDType::F32),
            Self::F16 => ("f16", GgmlDType::F16),
            Self::Bf16 => ("bf16", GgmlDType::BF16),
            Self::Q8_0 => ("q8_0", GgmlDType::Q8_0),
            Self::Q6K => ("q6_k", GgmlDType::Q6K),
            Self::Q5K => ("q5_k", GgmlDType::Q5K),
            Self::Q5_1 => ("q5_1", GgmlDType::Q5_1),
            Self::Q5_0 => ("q5_0", GgmlDType::Q5_0),
            Self::Q4K => ("q4_k", GgmlDType::Q4K),
            Self::Q4_1 => ("q4_1", GgmlDType::Q4_1),
            Self::Q4_0 => ("q4_0", GgmlDType::Q4_0),
        }
    }

    /// The name that users write.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What the tensor library calls the kind.
    pub fn ggml(self) -> GgmlDType {
        self.row().1
    }

    /// Whether elements are stored in blocks that share scales.
    pub fn is_quantized(self) -> bool {
        self.ggml().block_size() > 1
    }

    /// Bits of an element, ten times, rounded up.
    pub fn tenths_of_bits(self) -> usize {
        (self.ggml().type_size() * 80).div_ceil(self.ggml().block_size())
    }
}

impl fmt::Display for WeightKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KvCacheDtype {
    /// The type that the checkpoint's `config.json` names; f16 where it names none, and for GGUF files.
    #[default]
    Auto,
    /// 4 bytes an element.
    F32,
    /// 2 bytes an element, more mantissa than `Bf16`.
    F16,
    /// 2 bytes an element, more range than `F16`.
    Bf16,
    /// 8-bit floats (E4M3), up to 448; larger numbers become 448.
    Fp8,
    /// 8-bit integers and a scale for every 32 elements.
    Q8_0,
}

impl KvCacheDtype {
    /// All values, in the order in which they are shown.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::F32, Self::F16, Self::Bf16, Self::Fp8, Self::Q8_0];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The value of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for KvCacheDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the hidden states of a text's tokens become one embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The state of the last token.
    Last,
    /// The mean of all states.
    Mean,
    /// The state of the first token.
    Cls,
    /// The largest value of each element over all states.
    Max,
    /// The sum of all states over the square root of their number.
    MeanSqrtLen,
    /// The mean of all states, the token at position `i` counting `i + 1` times.
    WeightedMean,
    /// Of each token of the vocabulary, how much it is expected anywhere in the text (SPLADE).
    Splade,
}

impl Pooling {
    /// All values, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Last,
        Self::Mean,
        Self::Cls,
        Self::Max,
        Self::MeanSqrtLen,
        Self::WeightedMean,
        Self::Splade,
    ];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Max => "max",
            Self::MeanSqrtLen => "mean-sqrt-len",
            Self::WeightedMean => "weighted-mean",
            Self::Splade => "splade",
        }
    }

    /// The value of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pooling| pooling.name() == name)
    }
}

/// The family of models by whose markup answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Parser {
    /// The family that the chat template belongs to.
    #[default]
    Detected,
    /// The family of this name.
    Named(&'static str),
    /// No family's: answers are not read.
    Off,
}

/// How the server listens and whom it serves; every value is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where to listen; port 0 picks a free one.
    pub address: SocketAddr,
    /// A Unix socket to listen on instead.
    pub uds: Option<PathBuf>,
    /// A port of the same host for routes of operators, which the other address hasn't then.
    pub admin_port: Option<u16>,
    /// Files with a chain of certificates and its key, in PEM; with them connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Names the model answers to; the first is shown in responses. Not empty.
    pub served_model_names: Vec<String>,
    /// Keys that may call; empty means everyone.
    pub api_keys: Vec<String>,
    /// Keys that open also the routes that change what is served; no other key does.
    pub admin_api_keys: Vec<String>,
    /// File with further keys, their scopes and limits.
    pub api_key_file: Option<PathBuf>,
    /// Sequences that may wait beside the `max_num_seqs` running ones; one more is answered 429.
    pub max_queued_requests: usize,
    /// Tokens of prompts that may wait for their first token; one more is answered 429. `None`: any.
    pub max_queued_tokens: Option<usize>,
    /// Most tokens of a text to embed: one that is longer than the model takes is embedded in pieces.
    /// `None`: what the model takes.
    pub max_embed_len: Option<usize>,
    /// Connections that may be open at once on each address; one more is answered 503 and ended.
    pub max_connections: usize,
    /// Largest request body in bytes; `None`: 8 MiB, or 64 MiB where the model sees pictures or
    /// hears sounds.
    pub max_body_bytes: Option<usize>,
    /// Pictures and sounds in requests.
    pub media: MediaConfig,
    /// How long requests are still taken after SIGTERM, while readiness is red already.
    pub drain_delay: Duration,
    /// How long running requests may go on after that.
    pub drain_timeout: Duration,
    /// What the log tells of requests.
    pub log: LogConfig,
    /// How long a step of the engine may take until the server is no longer live; `None`: for ever.
    pub step_timeout: Option<Duration>,
    /// Origins that browsers may call from, with `*` for all and `localhost` for the pages of this
    /// machine; empty turns CORS off.
    pub cors_origins: Vec<String>,
    /// Answer 400 to a field that is not known, instead of naming it in `x-sconce-ignored`, and to a
    /// `max_tokens` that doesn't fit the context, instead of shortening it.
    pub strict: bool,
    /// Shorten any `max_tokens` to what fits, even one above the whole context or with `strict`.
    pub clamp_max_tokens: bool,
    /// Most likely tokens that logprobs may list at each place; `None`: the whole vocabulary.
    pub max_logprobs: Option<u32>,
    /// Variables of the chat template for all requests; a request's own are stronger.
    pub chat_template_kwargs: Map<String, Value>,
    /// Render conversations with the template that the request brings, if it does.
    pub trust_request_chat_template: bool,
    /// How tool calls are found in answers.
    pub tool_call_parser: Parser,
    /// How reasoning is told from answers.
    pub reasoning_parser: Parser,
    /// Adapters beside the model.
    pub lora: LoraServing,
    /// How long and how large what requests store may be.
    pub store: StoreLimits,
}

/// What the log tells of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// Requests that take longer are told, and where their time went; `None`: none.
    pub slower_than: Option<Duration>,
    /// Bodies are told, prompts included.
    pub bodies: bool,
}

/// Where a server's certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain of certificates, the server's first, in PEM.
    pub certificates: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// How much of what requests ask to store is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// How long responses and chat completions are kept.
    pub age: Duration,
    /// Largest file that may be uploaded, in bytes.
    pub max_file_bytes: u64,
    /// Lines of batches that this server runs at once.
    pub batch_lines: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { age: Duration::from_hours(30 * 24), max_file_bytes: 200 << 20, batch_lines: 16 }
    }
}

/// Which pictures and sounds requests may bring, where the model sees or hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaConfig {
    /// Most pictures in a prompt.
    pub max_images: usize,
    /// Most sounds in a prompt.
    pub max_sounds: usize,
    /// Most bytes of a sound's file.
    pub max_sound_bytes: usize,
    /// Most seconds of a sound.
    pub max_sound_seconds: u64,
    /// Hosts that pictures are fetched from, without those below them; none by default.
    pub domains: Vec<String>,
}

impl MediaConfig {
    /// Whether pictures are fetched from this host.
    pub fn allows(&self, host: &str) -> bool {
        self.domains.iter().any(|domain| domain.eq_ignore_ascii_case(host))
    }
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self {
            max_images: 100,
            max_sounds: 16,
            max_sound_bytes: 128 << 20,
            max_sound_seconds: 7200,
            domains: Vec::new(),
        }
    }
}

/// Which LoRA adapters there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraServing {
    /// Most adapters at once.
    pub max_loras: usize,
    /// Whether requests may load and unload adapters.
    pub at_run_time: bool,
}

impl Default for LoraServing {
    fn default() -> Self {
        Self { max_loras: 32, at_run_time: false }
    }
}

impl ServerConfig {
    /// Whether nobody may call without a key.
    pub fn needs_keys(&self) -> bool {
        !self.api_keys.is_empty() || !self.admin_api_keys.is_empty() || self.api_key_file.is_some()
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8000)),
            uds: None,
            admin_port: None,
            tls: None,
            served_model_names: vec!["sconce-demo".to_owned()],
            api_keys: Vec::new(),
            admin_api_keys: Vec::new(),
            api_key_file: None,
            max_queued_requests: 256,
            max_queued_tokens: None,
            max_embed_len: None,
            max_connections: 10_000,
            max_body_bytes: None,
            media: MediaConfig::default(),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            log: LogConfig::default(),
            step_timeout: Some(Duration::from_mins(5)),
            cors_origins: Vec::new(),
            strict: false,
            clamp_max_tokens: false,
            max_logprobs: Some(20),
            chat_template_kwargs: Map::new(),
            trust_request_chat_template: false,
            tool_call_parser: Parser::default(),
            reasoning_parser: Parser::default(),
            lora: LoraServing::default(),
            store: StoreLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_name_what_they_are_names_of() {
        for kind in WeightKind::ALL {
            assert_eq!(WeightKind::named(kind.name()), Some(kind));
        }
        for dtype in KvCacheDtype::ALL {
            assert_eq!(KvCacheDtype::named(dtype.name()), Some(dtype));
        }
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::named(pooling.name()), Some(pooling));
        }
    }

    #[test]
    fn sizes_of_kinds_are_those_of_their_blocks() {
        let sizes = WeightKind::ALL.map(WeightKind::tenths_of_bits);
        assert_eq!(sizes, [320, 160, 160, 85, 66, 55, 60, 55, 45, 50, 45]);
        assert_eq!(WeightKind::ALL.into_iter().filter(|kind| kind.is_quantized()).count(), 8);
    }
}

//! The flags of a server of several models, and of one whose model sleeps.

use super::byte_size::ByteSize;

/// What `--models` calls the models of the hub's cache.
pub(super) const HUB: &str = "hub";
/// Flags that are for the server itself and not for the processes of its models.
pub(super) const OWN: [&str; 19] = [
    "models",
    "models-memory",
    "models-max",
    "models-ttl",
    "models-min-residency",
    "models-load-timeout",
    "no-models-autoload",
    "sleep-idle-seconds",
    "host",
    "port",
    "uds",
    "admin-port",
    "ssl-certfile",
    "ssl-keyfile",
    "api-key",
    "admin-api-key",
    "cors-origin",
    "drain-delay",
    "config",
];
/// Flags that name the model of a server that has only one.
const OF_ONE: [&str; 2] = ["model", "served-model-name"];
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Several models")]
pub(super) struct ModelsArgs {
    /// Serve several models: those of a folder of folders and GGUF files, of a list in a TOML file, or of
    /// the hub's cache (hub); repeat for more. Each is loaded when a request names it, in a process of its
    /// own that takes this command's other flags.
    #[arg(long, value_name = "FOLDER|FILE|hub", conflicts_with_all = ["model", "lora_modules", "api_key_file"])]
    pub(super) models: Vec<String>,
    /// Memory that loaded models may take together; what was used longest ago goes for others [default: 80 %
    /// of what is free; of a GPU --gpu-memory-utilization]. A model without --kv-cache-memory gets four
    /// sequences of 8192 tokens, at most a quarter of this.
    #[arg(long, value_name = "SIZE")]
    pub(super) models_memory: Option<ByteSize>,
    /// Most models at once; 0 for as many as fit.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(super) models_max: usize,
    /// Seconds that a model stays without requests; 0 until others need its memory.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(super) models_ttl: u64,
    /// Seconds that a model which is asked for stays before it must make room for another.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(super) models_min_residency: u64,
    /// Seconds that a model may take to load.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) models_load_timeout: u64,
    /// Load models only when /v1/models/load says so.
    #[arg(long)]
    pub(super) no_models_autoload: bool,
    /// Seconds without requests after which the weights of the model leave memory; the next request brings
    /// them back, and --kv-disk keeps what was computed.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["models", "api_key_file"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) sleep_idle_seconds: Option<u64>,
}

/// Whether a flag is for the whole server.
pub(super) fn is_own(flag: &str) -> bool {
    OWN.contains(&flag) || OF_ONE.contains(&flag)
}

impl ModelsArgs {
    /// Whether models are in processes of their own.
    pub(super) fn are_several(&self) -> bool {
        !self.models.is_empty() || self.sleep_idle_seconds.is_some()
    }
}

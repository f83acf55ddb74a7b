//! The flags of `sconce bench`.

use std::path::PathBuf;

use serde_json::{Map, Value};

/// Send generated requests to a running server and measure how fast it answers.
///
/// Without further flags: 32 requests of 256 random tokens, one after the other, 64 tokens of answer
/// each. --concurrency N keeps N requests running all the time; --request-rate R lets R requests
/// arrive each second at random moments, as independent users would.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Address of the server.
    #[arg(long, value_name = "URL", env = "SCONCE_URL", default_value = "http://127.0.0.1:8000")]
    pub url: String,

    /// Name of the model in requests; given several times, requests take them in turn (adapters of
    /// one server, for example) [default: the first one that the server lists].
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,

    /// Key for a server that asks for one.
    #[arg(long, value_name = "KEY", env = "SCONCE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,

    /// Which endpoint to load.
    #[arg(long, value_enum, default_value_t = Endpoint::Completions)]
    pub endpoint: Endpoint,

    /// Most requests at once [default: 1; without bound when --request-rate is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: Option<u32>,

    /// Requests that arrive per second on average, at random moments (a Poisson process) that do
    /// not depend on the server's answers.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive_number)]
    pub request_rate: Option<f64>,

    /// Stop after this many requests [default: 32, or no limit when --duration is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub num_requests: Option<u32>,

    /// Stop after this many seconds; answers that are not complete by then count as far as they got.
    #[arg(long, value_name = "SECONDS", value_parser = positive_number)]
    pub duration: Option<f64>,

    /// Tokens of prompt that each request has for itself.
    #[arg(long, value_name = "TOKENS", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub input_len: u32,

    /// Tokens of answer; the model is told not to stop earlier.
    #[arg(long, value_name = "TOKENS", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub output_len: u32,

    /// Tokens that all prompts begin with, before their own; shows what a prefix cache is worth.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub shared_prefix_len: u32,

    /// Requests that are sent first and not measured; their prompts are others.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,

    /// Decides prompts and arrival times.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,

    /// Sampling temperature in requests; 0 always takes the likeliest token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temperature: f64,

    /// Let the model end its answers (for servers that refuse the field ignore_eos).
    #[arg(long)]
    pub allow_eos: bool,

    /// More fields of every request, as a JSON object, such as `{"top_p": 0.9}`.
    #[arg(long, value_name = "JSON", value_parser = json_object)]
    pub extra_body: Option<Map<String, Value>>,

    /// Count a request as failed when its answer takes longer than this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = positive_number)]
    pub timeout: f64,

    /// Write the figures as JSON to this file; - writes them to standard output in place of the
    /// table.
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// Show the figures beside those of an earlier run, which --json wrote to this file.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

/// The endpoint under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Endpoint {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

impl Endpoint {
    /// The path of the endpoint.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }

    /// The name of the endpoint in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
        }
    }
}

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("{other} is not an object")),
        Err(error) => Err(error.to_string()),
    }
}

fn positive_number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        Ok(number) => Err(format!("{number} is not above 0")),
        Err(error) => Err(error.to_string()),
    }
}

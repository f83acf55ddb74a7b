//! `sconce pull`, `list`, `run`, `ps`, `stop` and `rm`: models by name, in the hub's cache and on a running
//! server.

mod local;
mod remote;

use std::io::Write;

use anyhow::bail;

use crate::cli::chat::{self, ChatArgs, SamplingFlags};
use crate::cli::client::ApiClient;

/// Where a command that can do without a server finds one.
#[derive(Clone, Debug, clap::Args)]
pub struct Elsewhere {
    /// Address of a running server to ask [default: none, the hub's cache of this machine].
    #[arg(long, value_name = "URL", env = "SCONCE_URL")]
    url: Option<String>,
    /// Key for a server that asks for one.
    #[arg(long, value_name = "KEY", env = "SCONCE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

/// Where a command finds its server.
#[derive(Clone, Debug, clap::Args)]
pub struct Server {
    /// Address of the server.
    #[arg(long, value_name = "URL", env = "SCONCE_URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// Key for a server that asks for one.
    #[arg(long, value_name = "KEY", env = "SCONCE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

/// Fetch a model from the hub, here or on a running server.
#[derive(Clone, Debug, clap::Args)]
pub struct PullArgs {
    /// `org/name`, or `org/name:Q4_K_M` for a GGUF file.
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    server: Elsewhere,
}

/// List the models of the hub's cache, or those of a running server.
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Elsewhere,
}

/// Remove models from the hub's cache, here or on a running server.
#[derive(Clone, Debug, clap::Args)]
pub struct RmArgs {
    /// Names that `list` tells.
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    #[command(flatten)]
    server: Elsewhere,
}

/// List the models that a server has loaded.
#[derive(Clone, Debug, clap::Args)]
pub struct PsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

/// Have a server unload a model once its requests have ended.
#[derive(Clone, Debug, clap::Args)]
pub struct StopArgs {
    /// The model's name.
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    server: Server,
}

/// Chat with a model: on the server that has it, or else loaded here.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// A name on the server, or a folder, a GGUF file or a hub id, which is fetched if need be.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Ask this, print the answer and leave.
    #[arg(value_name = "TEXT")]
    prompt: Vec<String>,
    /// System prompt: how the model should behave.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Print token counts and speed after each answer.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    server: Server,
}

impl Elsewhere {
    fn client(&self) -> anyhow::Result<Option<ApiClient>> {
        let Some(url) = self.url.as_deref().filter(|url| !url.is_empty()) else { return Ok(None) };
        Ok(Some(ApiClient::new(url, self.api_key.as_deref())?))
    }
}

impl Server {
    fn client(&self) -> anyhow::Result<ApiClient> {
        Ok(ApiClient::new(&self.url, self.api_key.as_deref())?)
    }
}

/// Fetches a model.
///
/// # Errors
/// The hub refuses, can't be reached, or the server fetches no models.
pub async fn pull(args: PullArgs) -> anyhow::Result<()> {
    match args.server.client()? {
        Some(client) => remote::pull(&client, &args.model).await,
        None => local::pull(&args.model),
    }
}

/// Lists models.
///
/// # Errors
/// The server can't be reached, or standard output is closed.
pub async fn list(args: ListArgs) -> anyhow::Result<()> {
    match args.server.client()? {
        Some(client) => remote::list(&client, args.json).await,
        None => local::list(args.json),
    }
}

/// Removes models.
///
/// # Errors
/// There is no such model, or its files can't be removed.
pub async fn rm(args: RmArgs) -> anyhow::Result<()> {
    let client = args.server.client()?;
    for model in &args.models {
        match &client {
            Some(client) => remote::remove(client, model).await?,
            None => local::remove(model)?,
        }
        writeln!(std::io::stdout(), "removed {model}")?;
    }
    Ok(())
}

/// Lists loaded models.
///
/// # Errors
/// The server can't be reached.
pub async fn ps(args: PsArgs) -> anyhow::Result<()> {
    remote::loaded(&args.server.client()?, args.json).await
}

/// Unloads a model.
///
/// # Errors
/// The server can't be reached, or has no such model.
pub async fn stop(args: StopArgs) -> anyhow::Result<()> {
    remote::unload(&args.server.client()?, &args.model).await?;
    writeln!(std::io::stdout(), "{} will be unloaded", args.model)?;
    Ok(())
}

/// Chats.
///
/// # Errors
/// The model can't be had, or the terminal fails.
pub async fn run(args: RunArgs) -> anyhow::Result<()> {
    let RunArgs { model, prompt, system, verbose, sampling, server } = args;
    let url = remote::serves(&server.client()?, &model).await.then_some(server.url);
    if model.is_empty() {
        bail!("the model has no name");
    }
    let prompt = (!prompt.is_empty()).then(|| prompt.join(" "));
    let chat = ChatArgs {
        url,
        model: Some(model),
        api_key: server.api_key,
        prompt,
        system,
        sampling,
        verbose,
        history_file: None,
    };
    chat::run(chat).await
}

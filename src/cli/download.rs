//! `sconce download`: puts a model from the hub into the cache, and says where it is.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::weights::hub::{self, HubOptions};
use crate::weights::model_ref::HubRef;

/// Download a model from the hub into the shared cache and print where it is.
///
/// An interrupted download goes on where it stopped. HF_HOME, HF_HUB_CACHE, HF_ENDPOINT and
/// HF_TOKEN are honoured.
#[derive(Args, Clone, Debug)]
pub struct DownloadArgs {
    /// `org/name`, `org/name@revision`, or `org/name:Q4_K_M` for a GGUF file.
    pub model: String,
    /// Branch, tag or commit.
    #[arg(long)]
    pub revision: Option<String>,
    /// The GGUF file to take, by name or by quantization.
    #[arg(long)]
    pub file: Option<String>,
    /// Only look into the cache.
    #[arg(long)]
    pub offline: bool,
}

/// Downloads and prints the folder, or the GGUF file.
///
/// # Errors
/// When the id can't be understood, or the hub doesn't give the files.
pub async fn run(args: DownloadArgs) -> anyhow::Result<()> {
    let mut options = HubOptions::from_env();
    options.offline |= args.offline;
    let path = download(&args, &options).await?;
    writeln!(std::io::stdout(), "{}", path.display()).context("standard output")
}

/// Downloads what `args` name.
///
/// # Errors
/// As [`run`].
pub async fn download(args: &DownloadArgs, options: &HubOptions) -> anyhow::Result<PathBuf> {
    let text = match &args.file {
        Some(file) => format!("{}:{file}", args.model),
        None => args.model.clone(),
    };
    let reference = HubRef::parse(&text, args.revision.as_deref())?;
    Ok(hub::fetch(&reference, options).await?)
}

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
pub fn run(args: DownloadArgs) -> anyhow::Result<()> {
    let path = download(args, HubOptions::from_env())?;
    writeln!(std::io::stdout(), "{}", path.display()).context("standard output")
}

/// Downloads what `args` name; gives the folder, or the GGUF file.
pub fn download(args: DownloadArgs, mut options: HubOptions) -> anyhow::Result<PathBuf> {
    let DownloadArgs { model, revision, file, offline } = args;
    let text = match file {
        Some(file) => format!("{model}:{file}"),
        None => model,
    };
    let reference = HubRef::parse(&text, revision.as_deref())?;
    options.offline |= offline;
    Ok(hub::fetch_blocking(&reference, &options)?)
}

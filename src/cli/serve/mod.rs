//! `sconce serve`: the flags become configuration, a model is started, requests are served.

mod args;
mod byte_size;
mod keys;
mod kv_events;
mod listen;
mod logging;
mod lora_modules;
mod models;
mod models_args;
mod models_file;
mod parent;
mod signals;
mod speech;
mod store;
mod values;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use args::ServeArgs;

use crate::app::model::RunningModel;
use crate::app::{adapters, nodes, ranks};
use crate::cli::settings::Given;
use crate::engine::EngineHandle;
use crate::http::Loading;
use crate::http::state::AppState;
use listen::{Addresses, announce};
use signals::first_stop_signal;

/// Serves until SIGTERM or Ctrl-C, then drains.
///
/// # Errors
/// When the port is taken, the model can't be started, the listener fails, or the engine ends by
/// itself.
pub(super) async fn run(args: ServeArgs, given: Given) -> anyhow::Result<()> {
    if args.models.are_several() {
        args.output.start_log();
        return models::run(args, given).await;
    }
    let exporter = args.output.start()?;
    if let Some(path) = &args.config {
        tracing::info!(file = %path.display(), "settings are read from a file, too");
    }
    let began = Instant::now();
    let (choice, config) = (args.model_choice(), args.engine_config());
    if config.nodes.as_ref().is_some_and(|nodes| nodes.rank > 0) {
        return nodes::compute(choice, config, first_stop_signal()).await;
    }
    let stores = config.kv_disk.is_some();
    if let Some(name) = &choice.name {
        // Known before the model is loaded: what is wrong with the flags is told at once.
        check_adapters(&args, name)?;
    }
    let config_of_server = args.server_config("");
    keys::check(&config_of_server)?;
    let addresses = Addresses::bind(&config_of_server)?;
    let most = config_of_server.max_connections;
    let loading = addresses.each()?.into_iter().map(|listener| Loading::start(listener, most));
    let loading: Vec<Loading> = loading.collect();
    let store = args.store.open()?;
    let start = move || RunningModel::start(&choice, &config);
    let running = tokio::task::spawn_blocking(start).await??;
    check_adapters(&args, &running.name)?;
    let server_config = args.server_config(&running.name);
    let (parts, engine) = running.into_server_parts(server_config, store);
    let handle = parts.engine.clone();
    let state = AppState::new(parts);
    keys::read(&state)?;
    let listeners = addresses.listeners()?;
    for loading in loading {
        loading.end().await;
    }
    addresses.keep_certificate_new();
    let keys = keys::keep_new(state.clone());
    announce(&addresses.names()?, began.elapsed())?;
    let failed = AtomicBool::new(false);
    let stop = stopped(handle, &failed);
    let report = crate::http::serve(listeners, state, stop).await?;
    keys.abort();
    if report.cut > 0 {
        tracing::warn!(cut = report.cut, "requests were cut at the end of the drain");
    }
    if let Some(exporter) = exporter {
        // It blocks.
        tokio::task::spawn_blocking(move || exporter.stop()).await?;
    }
    if stores {
        wait_until_stored(&engine).await;
    }
    // With this a supervisor starts the process again.
    anyhow::ensure!(!failed.into_inner(), "the engine has ended, see above");
    Ok(())
}

/// Resolves at a signal, or when the engine has ended by itself, which `failed` tells then.
async fn stopped(engine: EngineHandle, failed: &AtomicBool) {
    tokio::select! {
        () = first_stop_signal() => {}
        () = parent::gone() => {}
        () = engine.ended() => failed.store(true, Ordering::Relaxed),
    }
}

/// Longest time that the last blocks may take to get to the folder of `--kv-disk`.
const STORE_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for the end of the engine's thread, which stores what it has before.
async fn wait_until_stored(engine: &JoinHandle<()>) {
    let began = Instant::now();
    while !engine.is_finished() {
        if began.elapsed() > STORE_TIMEOUT {
            return tracing::warn!("the last blocks could not be stored in time");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Computes a part of the model for a server that runs on several processes, until it ends.
///
/// # Errors
/// When no server started this process, or the part can't be loaded or computed.
pub fn run_rank(args: &ServeArgs) -> anyhow::Result<()> {
    args.output.start_log();
    ranks::follow_leader(&args.model_choice(), &args.engine_config())
}

/// Checks the adapters of the flags beside the names that the model will have.
fn check_adapters(args: &ServeArgs, model_name: &str) -> anyhow::Result<()> {
    let config = args.server_config(model_name);
    adapters::check(&args.adapters(), config.lora.max_loras, &config.served_model_names)
}

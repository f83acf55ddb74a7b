//! `sconce serve`: the flags become configuration, a model is started, requests are served.

mod args;
mod byte_size;
mod kv_events;
mod logging;
mod lora_modules;
mod store;
mod values;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

pub use args::ServeArgs;

use crate::app::model::RunningModel;
use crate::app::{adapters, ranks};
use crate::engine::EngineHandle;
use crate::http::state::AppState;

/// Serves until SIGTERM or Ctrl-C, then drains.
///
/// # Errors
/// When the port is taken, the model can't be started, the listener fails, or the engine ends by
/// itself.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.log_format.start();
    let began = Instant::now();
    let (choice, config) = (args.model_choice(), args.engine_config());
    let stores = config.kv_disk.is_some();
    if let Some(name) = &choice.name {
        // Known before the model is loaded: what is wrong with the flags is told at once.
        check_adapters(&args, name)?;
    }
    let listener = bind(args.server_config("").address)?;
    let store = args.store.open()?;
    let start = move || RunningModel::start(&choice, &config);
    let running = tokio::task::spawn_blocking(start).await??;
    check_adapters(&args, &running.name)?;
    let server_config = args.server_config(&running.name);
    let (parts, engine) = running.into_server_parts(server_config, store);
    let handle = parts.engine.clone();
    let state = AppState::new(parts);
    let listener = tokio::net::TcpListener::from_std(listener)?;
    announce(listener.local_addr()?, began.elapsed())?;
    let failed = AtomicBool::new(false);
    let stop = stopped(handle, &failed);
    let report = crate::http::serve(listener, state, stop).await?;
    if report.cut > 0 {
        tracing::warn!(cut = report.cut, "requests were cut at the end of the drain");
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
    args.log_format.start();
    ranks::follow_leader(&args.model_choice(), &args.engine_config())
}

/// Checks the adapters of the flags beside the names that the model will have.
fn check_adapters(args: &ServeArgs, model_name: &str) -> anyhow::Result<()> {
    let config = args.server_config(model_name);
    adapters::check(&args.adapters(), config.lora.max_loras, &config.served_model_names)
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

/// Exit status of a process that a second signal ended: that of SIGTERM, as shells tell it.
const ENDED: i32 = 128 + 15;

/// Resolves at SIGTERM or Ctrl-C. Another one ends the process at once, whatever is running.
async fn first_stop_signal() {
    stop_signal().await;
    tokio::spawn(async {
        stop_signal().await;
        tracing::warn!("a second signal: ending without waiting for requests");
        std::process::exit(ENDED);
    });
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

//! A server that another one has started ends with it.

use std::io::Read;

use tokio::sync::oneshot;

use crate::fleet::ENDS_WITH_STDIN;

/// Resolves when standard input has ended, if whoever started this process watches over it so.
pub(super) async fn gone() {
    if std::env::var_os(ENDS_WITH_STDIN).is_none() {
        return std::future::pending().await;
    }
    let (tell, told) = oneshot::channel::<()>();
    // A thread of its own: a runtime would wait for its read at the end.
    let read = move || {
        let mut input = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while matches!(input.read(&mut bytes), Ok(1..)) {}
        drop(tell);
    };
    if let Err(error) = std::thread::Builder::new().name("parent".to_owned()).spawn(read) {
        tracing::warn!(%error, "this server will not end with the one that started it");
        return std::future::pending().await;
    }
    // The sender is dropped at the end.
    let _ = told.await;
}

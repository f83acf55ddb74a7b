//! Work that takes long for a long request, off the async threads.

use crate::http::error::ApiError;

/// Runs `work` where it doesn't delay other requests.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(ApiError::Internal("preparing the request failed".to_owned())))
}

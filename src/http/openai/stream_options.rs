//! `stream`, `stream_options` and `timings_per_token`.

use super::envelope::UsageReporting;
use crate::http::error::ApiError;
use crate::http::wire::chat::StreamOptions;

/// Whether to stream, and what the stream tells.
pub(crate) fn streaming(
    stream: Option<bool>,
    options: Option<&StreamOptions>,
    timings_per_token: Option<bool>,
) -> Result<Option<UsageReporting>, ApiError> {
    let stream = stream.unwrap_or(false);
    let timings = timings_per_token.unwrap_or(false);
    let Some(options) = options else {
        return Ok(stream.then(|| UsageReporting { timings, ..UsageReporting::default() }));
    };
    if !stream {
        return Err(ApiError::field("stream_options", "stream_options needs stream to be true"));
    }
    let at_end = options.include_usage.unwrap_or(false);
    let continuous = options.continuous_usage_stats.unwrap_or(false);
    Ok(Some(UsageReporting { at_end, continuous, timings }))
}

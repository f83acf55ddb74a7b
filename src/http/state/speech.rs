//! What transcribes, how much of it may wait, and what it is called.

use super::admission::{Admission, Permit};
use crate::config::SpeechConfig;
use crate::http::error::ApiError;
use crate::metrics::MetricsHandle;
use crate::speech::room::SpeechHandle;

/// What the routes of speech begin with.
pub(crate) const ROUTES: &str = "/v1/audio/";
/// The route that others point to.
pub(crate) const ROUTE: &str = "/v1/audio/transcriptions";

/// What a `SpeechService` is made of.
#[derive(Debug)]
pub struct SpeechParts {
    /// The way to the thread that transcribes.
    pub handle: SpeechHandle,
    /// Names that requests may use; the first is the model's own. Not empty.
    pub names: Vec<String>,
    /// Bounds.
    pub config: SpeechConfig,
    /// Whether there is no other model.
    pub is_alone: bool,
}

/// What transcribes.
#[derive(Debug)]
pub(crate) struct SpeechService {
    pub(crate) handle: SpeechHandle,
    pub(crate) names: Vec<String>,
    pub(crate) config: SpeechConfig,
    pub(crate) is_alone: bool,
    pub(crate) admission: Admission,
}

impl SpeechService {
    pub(crate) fn new(parts: SpeechParts) -> Self {
        let SpeechParts { handle, names, config, is_alone } = parts;
        // One file that may come always has room.
        let bytes = config.max_queued_bytes.max(config.max_file_bytes);
        let admission = Admission::of_files(config.max_queued + 1, bytes.div_ceil(1024));
        Self { handle, names, config, is_alone, admission }
    }

    /// Whether requests mean this model by the name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Admits a file.
    pub(crate) fn admit(&self, metrics: &MetricsHandle) -> Result<Permit, ApiError> {
        let permit = self.admission.admit(1);
        if permit.is_err() {
            metrics.admission_rejected();
        }
        permit
    }
}

//! What an answer of the hub that is no success means to whoever asked for the model.
//!
//! Errors of hf-hub and answers to our own questions end in the same words. Knows no address but
//! the hub's, and never shows a token.

use std::error::Error;

use hf_hub::HFError;
use reqwest::StatusCode;

use super::error::HubError;
use super::options::HubOptions;
use super::transfer;

/// Longest part of an unknown answer that is shown, in characters.
const SHOWN_TEXT: usize = 200;

/// What the hub is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) repository: &'a str,
    pub(crate) revision: &'a str,
    pub(crate) options: &'a HubOptions,
}

/// The hub's answer to a request that failed.
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    /// The hub's word for the reason, or nothing.
    pub(crate) code: &'a str,
    pub(crate) text: &'a str,
}

impl Subject<'_> {
    pub(crate) fn refused(&self, reason: String) -> HubError {
        HubError::Refused { repository: self.repository.to_owned(), reason }
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> HubError {
        HubError::Unreachable {
            endpoint: self.options.endpoint.clone(),
            reason: transfer::root_cause(error),
        }
    }

    /// What an error of hf-hub about the whole repository means.
    pub(crate) fn failed(&self, error: HFError) -> HubError {
        match error {
            // hf-hub calls each 404 an unknown revision; the hub's own word says which it is.
            HFError::RevisionNotFound { context: Some(context), .. }
            | HFError::RepoNotFound { context: Some(context), .. }
            | HFError::Http { context }
            | HFError::AuthRequired { context }
            | HFError::Forbidden { context }
            | HFError::Conflict { context }
            | HFError::RateLimited { context, .. } => {
                let code = context.error_code.as_deref().unwrap_or_default();
                let text = context.server_message.as_deref().unwrap_or(&context.body);
                self.refusal(&Answer { status: context.status, code, text }, None)
            }
            HFError::Request { source, .. } if source.is_decode() => self.not_a_hub(&source),
            HFError::Request { source, .. } => self.unreachable(&source),
            error => self.not_a_hub(&error),
        }
    }

    /// What an answer means; `file` is what was asked for, if not the model.
    pub(crate) fn refusal(&self, answer: &Answer<'_>, file: Option<&str>) -> HubError {
        let repository = self.repository.to_owned();
        match (answer.status, answer.code, file) {
            (_, "RevisionNotFound", _) => {
                HubError::RevisionNotFound { repository, revision: self.revision.to_owned() }
            }
            (status, "GatedRepo", _) => self.denied(status, "gated"),
            (_, "RepoNotFound", _) | (StatusCode::NOT_FOUND, _, None) => {
                HubError::RepositoryNotFound { repository, endpoint: self.options.endpoint.clone() }
            }
            (status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), ..) => {
                self.denied(status, "private")
            }
            (StatusCode::NOT_FOUND, _, Some(file)) => HubError::FileNotFound {
                repository,
                wanted: format!("`{file}`"),
                available: "the hub names it, but doesn't give it".to_owned(),
            },
            (status, ..) => {
                let text: String = answer.text.chars().take(SHOWN_TEXT).collect();
                self.refused(format!("HTTP {status}: {text}"))
            }
        }
    }

    fn not_a_hub(&self, error: &(dyn Error + 'static)) -> HubError {
        self.refused(format!("not an answer of a hub: {}", transfer::root_cause(error)))
    }

    fn denied(&self, status: StatusCode, kind: &str) -> HubError {
        let page = format!("{}/{}", self.options.endpoint, self.repository);
        let reason = match (&self.options.token, kind) {
            (None, "gated") => format!(
                "the model is gated: accept its terms at {page}, then set HF_TOKEN to a token of \
                 that account"
            ),
            (None, _) => "set HF_TOKEN to a token that may read it, and check the id".to_owned(),
            (Some(_), "gated") => format!(
                "the model is gated, and the account of the token in HF_TOKEN (or the token file) \
                 has not been granted access: accept its terms at {page}"
            ),
            (Some(_), _) => "the token in HF_TOKEN (or the token file) is not valid or may not \
                             read it; check the id too"
                .to_owned(),
        };
        let repository = self.repository.to_owned();
        HubError::Denied { repository, status: status.as_u16(), reason }
    }
}

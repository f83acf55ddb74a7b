//! Why a conversation could not be rendered.

use thiserror::Error;

/// Why a prompt could not be made. All of these are the request's fault or the template's, never
/// the server's; the message is fit for the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The template is no valid Jinja2.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// Line in the template, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// The template itself refused the conversation, with `raise_exception`.
    #[error("{0}")]
    Raised(String),
    /// Rendering failed: an operation that Python refuses, or more work than a prompt may take.
    #[error("chat template, line {line}: {message}")]
    Failed {
        /// Line in the template, from 1; 0 where it is not known.
        line: usize,
        /// The message of what failed.
        message: String,
    },
    /// The messages cannot be rendered whatever the template.
    #[error("{0}")]
    Messages(String),
}

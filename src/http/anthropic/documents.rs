//! Documents of a Messages request: those that are text become text for the model, framed as Anthropic's
//! guides frame them; those in PDF are refused, since nothing here reads it.

use std::fmt::Write as _;

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::request::fields::required;
use crate::http::wire::messages::{DocumentBlock, DocumentSource};

/// What a document begins with, and what its text ends with.
const FRAME: [&str; 2] = ["<document>\n", "\n</document_content>\n</document>"];
const CONTENT: &str = "<document_content>\n";
/// The only type of text there is.
const PLAIN: &str = "text/plain";

/// What a document consists of.
pub(super) enum Document {
    /// A text, framed.
    Text(String),
    /// The frame's beginning, content blocks and the frame's end.
    Blocks([String; 2], Value),
}

/// Reads a document's `source`, whose type is `kind`, at `path`.
///
/// # Errors
/// One that is no text, with what can be sent in its place.
pub(super) fn read(
    block: &DocumentBlock,
    kind: &str,
    source: DocumentSource,
    path: &str,
) -> Result<Document, ApiError> {
    let begin = begin(block);
    match kind {
        "text" => {
            if let Some(other) = source.media_type.filter(|kind| kind != PLAIN) {
                return Err(unread(&other, path, "media_type"));
            }
            let text = required(source.data, path, "data")?;
            Ok(Document::Text(format!("{begin}{text}{}", FRAME[1])))
        }
        "content" => match required(source.content, path, "content")? {
            Value::String(text) => Ok(Document::Text(format!("{begin}{text}{}", FRAME[1]))),
            blocks => {
                let frame = [begin.trim_end(), FRAME[1].trim_start()].map(str::to_owned);
                Ok(Document::Blocks(frame, blocks))
            }
        },
        _ => {
            let named = source.media_type.unwrap_or_else(|| "application/pdf".to_owned());
            Err(unread(if kind == "base64" { &named } else { kind }, path, "type"))
        }
    }
}

/// The frame up to the text.
fn begin(block: &DocumentBlock) -> String {
    let mut begin = FRAME[0].to_owned();
    let lines = [("source", &block.title), ("context", &block.context)];
    for (name, text) in lines {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            // A string takes all that is written to it.
            let _ = writeln!(begin, "<{name}>{text}</{name}>");
        }
    }
    begin + CONTENT
}

fn unread(kind: &str, path: &str, member: &str) -> ApiError {
    let message = format!(
        "{path}: documents of the type {kind:?} are not supported: send their text, as a source of the \
         type \"text\", or their pages as image blocks"
    );
    let param = Some(format!("{path}.{member}"));
    ApiError::Invalid { message, param, code: Some("unsupported_value") }
}

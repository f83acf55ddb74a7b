//! Prompts that end within the last message, to have it continued.
//!
//! transformers finds the end of that message's text by a mark: it appends one, renders, and cuts
//! the prompt where the mark appears, together with whitespace if the template trimmed the text.

use serde_json::{Map, Value};

use super::error::TemplateError;

/// The names under which a message carries reasoning, in the order of preference.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
const FIELD: &str = "content";

fn refuse(message: &str) -> TemplateError {
    TemplateError::Messages(format!("continue_final_message: {message}"))
}

/// Appends the mark to the text of the last message and gives the text without it.
pub(super) fn mark(
    messages: &mut [Map<String, Value>],
    source: &str,
) -> Result<String, TemplateError> {
    let last = messages.last_mut().ok_or_else(|| refuse("the conversation is empty"))?;
    let content = last.get_mut(FIELD).filter(|content| !content.is_null());
    let content = content.ok_or_else(|| refuse("the last message has no content to continue"))?;
    if !source.contains(FIELD) {
        return Err(refuse("the chat template does not read the content of messages"));
    }
    let text = match content {
        Value::String(_) => content,
        Value::Array(parts) => {
            let texts = parts.iter_mut().rev().find_map(|part| part.get_mut("text"));
            texts.ok_or_else(|| refuse("the last message has no text to continue"))?
        }
        _ => return Err(refuse("the content of the last message is no text")),
    };
    let Value::String(text) = text else {
        return Err(refuse("the text of the last message is no string"));
    };
    let original = text.clone();
    text.push_str(MARK);
    Ok(original)
}

/// Cuts the rendered prompt at the mark.
pub(super) fn cut(mut prompt: String, final_text: &str) -> Result<String, TemplateError> {
    let trimmed = MARK.trim_end();
    let at = prompt.rfind(trimmed).filter(|_| prompt.contains(final_text.trim()));
    let at = at.ok_or_else(|| refuse("the chat template does not keep the last message"))?;
    let whole = prompt[at..].starts_with(MARK);
    prompt.truncate(at);
    if !whole {
        prompt.truncate(prompt.trim_end().len());
    }
    Ok(prompt)
}

//! A conversation that is embedded or classified in place of a text, as vLLM has it.

use crate::http::error::ApiError;
use crate::http::generate::chat_request::Conversation;
use crate::http::openai::chat::input;
use crate::http::request::fields::FieldReader;
use crate::http::wire::chat::ChatCompletionRequest;
use crate::http::wire::embeddings::ConversationFields;

/// The conversation of a request, if it has one; whether it has an `input` too. A field that says how
/// conversations are rendered has no effect on texts.
pub(crate) fn read(
    asked: &ConversationFields,
    has_input: bool,
    fields: &mut FieldReader,
) -> Result<Option<Conversation>, ApiError> {
    let Some(messages) = &asked.messages else {
        let of_chats = [
            ("add_generation_prompt", asked.add_generation_prompt.is_some()),
            ("continue_final_message", asked.continue_final_message.is_some()),
            ("chat_template", asked.chat_template.is_some()),
            ("chat_template_kwargs", asked.chat_template_kwargs.is_some()),
        ];
        for (name, _) in of_chats.into_iter().filter(|(_, given)| *given) {
            fields.ignore(name);
        }
        return Ok(None);
    };
    if has_input {
        return Err(ApiError::field("messages", "messages and input can't both be given"));
    }
    let chat = ChatCompletionRequest {
        messages: Some(messages.clone()),
        add_generation_prompt: Some(asked.add_generation_prompt.unwrap_or(false)),
        continue_final_message: asked.continue_final_message,
        chat_template: asked.chat_template.clone(),
        chat_template_kwargs: asked.chat_template_kwargs.clone(),
        ..ChatCompletionRequest::default()
    };
    input::conversation(&chat, fields).map(Some)
}

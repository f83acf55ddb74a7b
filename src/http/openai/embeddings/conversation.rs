//! A conversation that is embedded in place of a text, as vLLM has it.

use crate::http::error::ApiError;
use crate::http::generate::chat_request::Conversation;
use crate::http::openai::chat::input;
use crate::http::request::fields::FieldReader;
use crate::http::wire::chat::ChatCompletionRequest;
use crate::http::wire::embeddings::EmbeddingsRequest;

/// The conversation of a request, if it has one.
pub(super) fn read(
    request: &EmbeddingsRequest,
    fields: &mut FieldReader,
) -> Result<Option<Conversation>, ApiError> {
    let Some(messages) = &request.messages else {
        let of_chats = [
            ("add_generation_prompt", request.add_generation_prompt.is_some()),
            ("continue_final_message", request.continue_final_message.is_some()),
            ("chat_template", request.chat_template.is_some()),
            ("chat_template_kwargs", request.chat_template_kwargs.is_some()),
        ];
        for (name, _) in of_chats.into_iter().filter(|(_, given)| *given) {
            fields.ignore(name);
        }
        return Ok(None);
    };
    if request.input.is_some() {
        return Err(ApiError::field("messages", "messages and input can't both be given"));
    }
    if request.prompt_name.is_some() {
        return Err(ApiError::field("prompt_name", "prompt_name goes with texts, not messages"));
    }
    let chat = ChatCompletionRequest {
        messages: Some(messages.clone()),
        add_generation_prompt: Some(request.add_generation_prompt.unwrap_or(false)),
        continue_final_message: request.continue_final_message,
        chat_template: request.chat_template.clone(),
        chat_template_kwargs: request.chat_template_kwargs.clone(),
        ..ChatCompletionRequest::default()
    };
    input::conversation(&chat, fields).map(Some)
}

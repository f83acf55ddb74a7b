//! The texts that a model puts around a user's: chat templates and the prompts of embedding models.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};

use super::late_interaction;
use crate::text::chat_template::ChatTemplate;
use crate::text::embedding_prompts::EmbeddingPrompts;
use crate::text::late_interaction::LateInteraction;
use crate::text::tokenizer::Tokenizer;
use crate::weights::source::ModelSource;

/// How conversations are rendered for a model that doesn't say.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The same for tokenizers of Mistral from version 7 on, whose files have no template.
const INST: &str = "<s>{% for message in messages %}\
    {% if message.role == 'system' %}[SYSTEM_PROMPT]{% elif message.role == 'user' %}[INST]{% endif %}\
    {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
    {% if part.type == 'audio' %}[BEGIN_AUDIO][AUDIO]{% elif part.type == 'image' %}[IMG]\
    {% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}\
    {% if message.role == 'system' %}[/SYSTEM_PROMPT]{% elif message.role == 'user' %}[/INST]\
    {% elif not loop.last or add_generation_prompt %}</s>{% endif %}{% endfor %}";

/// The same for PaliGemma's tokenizers: all pictures come first, and a line ends what is asked.
const PALI: &str = "{% for message in messages %}{% if message.content is not string %}\
    {% for part in message.content %}{% if part.type == 'image' %}<image>{% endif %}{% endfor %}\
    {% endif %}{% endfor %}<bos>{% for message in messages %}\
    {% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
    {% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}\
    {% if not loop.last or add_generation_prompt %}{{ '\\n' }}{% endif %}{% endfor %}";

/// The chat templates of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatTemplates {
    /// For conversations without tools, and for all where there is no second template.
    pub(super) plain: Option<Arc<ChatTemplate>>,
    /// For conversations with tools, where the model has a template of its own for them.
    pub(super) with_tools: Option<Arc<ChatTemplate>>,
}

/// Compiles the templates of `source`, or the one that replaces them: a file or the template itself.
pub(super) fn chat_templates(
    replacement: Option<&str>,
    source: &ModelSource,
    tokenizer: &Tokenizer,
) -> anyhow::Result<ChatTemplates> {
    let build = |text: &str, of: &str| -> anyhow::Result<Arc<ChatTemplate>> {
        let template = ChatTemplate::new(text, tokenizer.special_tokens().clone());
        let template = template.with_context(|| format!("the chat template of {of}"))?;
        tracing::info!("messages of the system in chats: {}", template.system_turns());
        Ok(Arc::new(template))
    };
    if let Some(given) = replacement {
        let text = match Path::new(given).exists() {
            true => std::fs::read_to_string(given).with_context(|| given.to_owned())?,
            false if given.contains("{{") || given.contains("{%") => given.to_owned(),
            false => anyhow::bail!("--chat-template: no file {given}, and it is no template"),
        };
        let plain = Some(build(&text, "--chat-template")?);
        return Ok(ChatTemplates { plain, with_tools: None });
    }
    let build =
        |text: &Option<String>| text.as_deref().map(|text| build(text, &source.name)).transpose();
    let (plain, with_tools) = (build(&source.chat_template)?, build(&source.tool_use_template)?);
    Ok(ChatTemplates { plain, with_tools })
}

impl ChatTemplates {
    /// With ChatML, or what a tokenizer's special tokens tell, in the place of a template that is missing.
    pub(super) fn or_chatml(self, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        if self.plain.is_some() || self.with_tools.is_some() {
            return Ok(self);
        }
        let knows = |tokens: [&str; 2]| tokens.iter().all(|it| tokenizer.token_id(it).is_some());
        let text = if knows(["[SYSTEM_PROMPT]", "[INST]"]) {
            tracing::info!("the model has no chat template; chats are rendered as Mistral's are");
            INST
        } else if knows(["<image>", "<loc0000>"]) {
            tracing::info!("the model has no chat template; chats are rendered as PaliGemma's are");
            PALI
        } else {
            tracing::warn!(
                "the model has no chat template; chats are rendered as ChatML, which it may not know"
            );
            CHATML
        };
        let template = ChatTemplate::new(text, tokenizer.special_tokens().clone())?;
        Ok(Self { plain: Some(Arc::new(template)), with_tools: None })
    }
}

/// The prompts that sentence-transformers puts before texts to embed, and how texts are read that are
/// compared token by token.
pub(super) fn embedding_prompts(
    source: &ModelSource,
    tokenizer: &Tokenizer,
) -> anyhow::Result<EmbeddingPrompts> {
    let config = source.sentence_modules.as_ref().and_then(|modules| modules.config.json());
    // Models with adapters for tasks may have prompts for them in the configuration itself.
    let of_tasks =
        source.config.get("task_instructions").map(|prompts| json!({"prompts": prompts}));
    let says_nothing = |config: &&Value| of_tasks.is_some() && config.get("prompts").is_none();
    let config = config.filter(|config| !says_nothing(config)).or(of_tasks.as_ref());
    let read = config.map(EmbeddingPrompts::from_json).transpose();
    let read = read.context("config_sentence_transformers.json: default_prompt_name")?;
    let sides = late_interaction::settings(source)?;
    let sides = sides.map(|settings| LateInteraction::new(settings, tokenizer)).transpose()?;
    Ok(read.unwrap_or_default().with_sides(sides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::chat_template::ChatPrompt;
    use crate::text::special_tokens::SpecialTokens;

    /// Messages by a template: a reply is asked for, or the last one is continued.
    fn rendered(template: &str, messages: &Value, continued: bool) -> String {
        let template = ChatTemplate::new(template, SpecialTokens::default()).unwrap();
        let prompt = ChatPrompt::new(messages).unwrap();
        let asked = !continued;
        let prompt = ChatPrompt {
            add_generation_prompt: asked,
            continue_final_message: continued,
            ..prompt
        };
        template.render(&prompt).unwrap()
    }

    #[test]
    fn mistrals_marks_stand_around_what_each_side_says() {
        let rendered = |messages: &Value, continued| rendered(INST, messages, continued);
        let parts = json!([{"type": "audio", "audio": ""}, {"type": "text", "text": "What?"}]);
        let mut messages = json!([{"role": "system", "content": "Be brief."},
            {"role": "user", "content": parts}, {"role": "assistant", "content": "Rain"}]);
        let begun =
            "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST][BEGIN_AUDIO][AUDIO]What?[/INST]Rain";
        assert_eq!(rendered(&messages, true), begun);
        messages.as_array_mut().unwrap().push(json!({"role": "user", "content": "Sure?"}));
        assert_eq!(rendered(&messages, false), format!("{begun}</s>[INST]Sure?[/INST]"));
    }

    #[test]
    fn paligemma_is_shown_pictures_before_it_is_asked() {
        let parts = json!([{"type": "text", "text": "caption "}, {"type": "image"},
            {"type": "text", "text": "en"}, {"type": "image"}]);
        let mut messages = json!([{"role": "user", "content": parts}]);
        assert_eq!(rendered(PALI, &messages, false), "<image><image><bos>caption en\n");
        messages.as_array_mut().unwrap().push(json!({"role": "assistant", "content": "A c"}));
        assert_eq!(rendered(PALI, &messages, true), "<image><image><bos>caption en\nA c");
    }
}

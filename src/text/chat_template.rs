//! Chat messages to a prompt, as transformers renders a model's chat template.
//!
//! A template is a Jinja2 program that ships with the model. It is rendered with the settings of
//! transformers' `apply_chat_template` (trimmed blocks, loop controls, an immutable sandbox, the
//! functions `raise_exception` and `strftime_now`, Python's JSON), and Python's meaning of values
//! where minijinja has its own. Templates are untrusted: one that loops or explodes ends with an
//! error. This file knows nothing of the OpenAI types: messages are anything that serializes.

mod clock;
mod continuation;
mod error;
mod expressions;
mod filters;
mod formatting;
mod functions;
mod json;
mod limits;
mod literals;
mod methods;
mod operators;
mod predicates;
mod python;
mod source;
mod string_methods;
mod system_turns;
mod tokens;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::{Map, Value};

use super::special_tokens::SpecialTokens;
pub use error::TemplateError;
use functions::Raised;
pub use system_turns::SystemTurns;

const NAME: &str = "chat template";

/// A conversation to render.
///
/// Messages and tools are taken as they stand, in the shape of the OpenAI API; `null` and absent
/// are different to templates. Build one with [`ChatPrompt::new`] and set the rest.
#[derive(Debug, Clone)]
pub struct ChatPrompt {
    /// The conversation: a list of objects with `role` and `content`.
    pub messages: Vec<Value>,
    /// The tools' definitions; `None` is `none` to the template.
    pub tools: Option<Vec<Value>>,
    /// Documents to ground the answer in; `None` is `none` to the template.
    pub documents: Option<Vec<Value>>,
    /// Whether the prompt ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends right behind the text of the last message, to have it continued.
    pub continue_final_message: bool,
    /// Further variables of the template (`chat_template_kwargs`), stronger than those of the same name.
    pub kwargs: Map<String, Value>,
    /// The time that `strftime_now` tells; local time where `None`.
    pub now: Option<NaiveDateTime>,
}

impl ChatPrompt {
    /// A prompt for the answer to `messages`, which serialize to a list of objects.
    ///
    /// # Errors
    /// [`TemplateError::Messages`] when they do not.
    pub fn new(messages: impl Serialize) -> Result<Self, TemplateError> {
        Ok(Self {
            messages: list("messages", messages)?,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            continue_final_message: false,
            kwargs: Map::new(),
            now: None,
        })
    }

    /// Sets the tools, which serialize to a list.
    ///
    /// # Errors
    /// [`TemplateError::Messages`] when they do not.
    pub fn with_tools(mut self, tools: impl Serialize) -> Result<Self, TemplateError> {
        self.tools = Some(list("tools", tools)?);
        Ok(self)
    }
}

fn list(name: &str, value: impl Serialize) -> Result<Vec<Value>, TemplateError> {
    match serde_json::to_value(value) {
        Ok(Value::Array(items)) => Ok(items),
        Ok(_) => Err(TemplateError::Messages(format!("{name} must be a list"))),
        Err(error) => Err(TemplateError::Messages(format!("{name} cannot be read: {error}"))),
    }
}

/// A compiled chat template with the special tokens of its model. `Sync`: share it.
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    special_tokens: SpecialTokens,
    system_turns: OnceLock<SystemTurns>,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles `source`. The special tokens are variables of the template under their names.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] with the line.
    pub fn new(source: &str, special_tokens: SpecialTokens) -> Result<Self, TemplateError> {
        source::check_nesting(source)
            .map_err(|(line, message)| TemplateError::Syntax { line, message })?;
        let mut env = environment();
        env.add_template_owned(NAME, source::respell(source)).map_err(|error| {
            TemplateError::Syntax { line: error.line().unwrap_or(1), message: describe(&error) }
        })?;
        let (source, system_turns) = (source.to_owned(), OnceLock::new());
        Ok(Self { env, source, special_tokens, system_turns })
    }

    /// The template's source as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Which messages of the system the template takes; the first call renders some conversations.
    pub fn system_turns(&self) -> SystemTurns {
        let render = |messages: Vec<Value>| self.render(&ChatPrompt::new(messages).ok()?).ok();
        *self.system_turns.get_or_init(|| SystemTurns::of(render))
    }

    /// The messages with those of the system where the template takes them, none of them lost: its
    /// several are joined, its later ones moved to the start, as the template needs it.
    pub fn arrange(&self, messages: Vec<Value>) -> Vec<Value> {
        self.system_turns().arrange(messages)
    }

    /// The prompt. Special tokens are in it as text: encode it without adding any.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] where the template refuses the conversation, and the others.
    pub fn render(&self, prompt: &ChatPrompt) -> Result<String, TemplateError> {
        let mut messages = Vec::with_capacity(prompt.messages.len());
        for message in &prompt.messages {
            let Value::Object(message) = message else {
                return Err(TemplateError::Messages("a message must be an object".to_owned()));
            };
            messages.push(with_reasoning_aliases(message));
        }
        let continued = if prompt.continue_final_message {
            Some(continuation::mark(&mut messages, &self.source)?)
        } else {
            None
        };
        let text = self.render_messages(messages, prompt)?;
        match continued {
            Some(final_text) => continuation::cut(text, &final_text),
            None => Ok(text),
        }
    }

    fn render_messages(
        &self,
        messages: Vec<Map<String, Value>>,
        prompt: &ChatPrompt,
    ) -> Result<String, TemplateError> {
        let mut variables: Vec<(String, minijinja::Value)> = Vec::new();
        let mut set =
            |name: &str, value: minijinja::Value| variables.push((name.to_owned(), value));
        for (name, text) in self.special_tokens.iter() {
            set(name, text.into());
        }
        set("strftime_now", functions::strftime_now(prompt.now));
        let list = |items: Option<Vec<Value>>| items.map_or(Value::Null, Value::Array);
        let messages = messages.into_iter().map(Value::Object).collect();
        set("messages", python::value_of(&Value::Array(messages)));
        set("tools", python::value_of(&list(prompt.tools.clone())));
        set("documents", python::value_of(&list(prompt.documents.clone())));
        set("add_generation_prompt", prompt.add_generation_prompt.into());
        for (name, value) in &prompt.kwargs {
            set(name, python::value_of(value));
        }
        limits::begin();
        let template = self.env.get_template(NAME).map_err(|error| failure(&error))?;
        let variables = minijinja::Value::from_pairs(variables);
        // The engine's mistakes are failed renders too, not the end of the caller.
        match catch_unwind(AssertUnwindSafe(|| template.render(variables))) {
            Ok(rendered) => rendered.map_err(|error| failure(&error)),
            Err(_) => {
                Err(TemplateError::Failed { line: 0, message: "the engine failed".to_owned() })
            }
        }
    }
}

/// The settings of transformers' environment.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(false)
            .build()
            .expect("the default delimiters are valid"),
    );
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(limits::FUEL));
    env.set_formatter(functions::format);
    env.set_unknown_method_callback(methods::call);
    filters::install(&mut env);
    predicates::install(&mut env);
    functions::install(&mut env);
    operators::install(&mut env);
    env
}

/// transformers' names for a message's reasoning: the first that is set is copied to
/// `reasoning_content`, which templates read, and to `thinking` where that is absent.
fn with_reasoning_aliases(message: &Map<String, Value>) -> Map<String, Value> {
    let names = continuation::REASONING_FIELDS;
    let set = names.iter().find_map(|name| message.get(*name).filter(|value| !value.is_null()));
    let Some(reasoning) = set else { return message.clone() };
    let mut aliased = Map::new();
    aliased.insert("thinking".to_owned(), reasoning.clone());
    aliased.extend(message.clone());
    aliased.insert("reasoning_content".to_owned(), reasoning.clone());
    aliased
}

fn failure(error: &minijinja::Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(link) = cause {
        if let Some(raised) = link.downcast_ref::<Raised>() {
            return TemplateError::Raised(raised.0.clone());
        }
        cause = link.source();
    }
    TemplateError::Failed { line: error.line().unwrap_or(0), message: describe(error) }
}

fn describe(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

#[cfg(test)]
mod tests;

//! `sconce render-chat`: prints the prompt that a chat template makes of a conversation, for
//! checking templates without a model.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use chrono::NaiveDateTime;
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::text::chat_template::{ChatPrompt, ChatTemplate};
use crate::text::special_tokens::SpecialTokens;

/// Arguments of `sconce render-chat`.
#[derive(Debug, Clone, Args)]
pub struct RenderChatArgs {
    /// The chat template, a Jinja2 file.
    #[arg(long, value_name = "FILE")]
    pub template: PathBuf,
    /// The conversation, a JSON file: `messages` and, where wanted, `tools`, `documents`,
    /// `add_generation_prompt`, `continue_final_message`, `kwargs`, `special_tokens`, `now`.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
}

/// A conversation file.
#[derive(Debug, Deserialize)]
struct Conversation {
    messages: Vec<Value>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    documents: Option<Vec<Value>>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
    #[serde(default)]
    kwargs: Map<String, Value>,
    #[serde(default)]
    special_tokens: SpecialTokens,
    #[serde(default)]
    now: Option<String>,
}

/// Prints the prompt and nothing else.
///
/// # Errors
/// When a file cannot be read, or the template is invalid or refuses the conversation.
pub fn run(args: &RenderChatArgs) -> anyhow::Result<()> {
    let prompt = render(args)?;
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(prompt.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot print the prompt")
}

fn render(args: &RenderChatArgs) -> anyhow::Result<String> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let source = read(&args.template)?;
    let conversation: Conversation = serde_json::from_str(&read(&args.input)?)
        .with_context(|| format!("cannot read the conversation in {}", args.input.display()))?;
    let template = ChatTemplate::new(&source, conversation.special_tokens)?;
    Ok(template.render(&ChatPrompt {
        messages: conversation.messages,
        tools: conversation.tools,
        documents: conversation.documents,
        add_generation_prompt: conversation.add_generation_prompt,
        continue_final_message: conversation.continue_final_message,
        kwargs: conversation.kwargs,
        now: conversation.now.as_deref().map(parse_time).transpose()?,
    })?)
}

/// A local time as Python's `isoformat` prints it.
fn parse_time(text: &str) -> anyhow::Result<NaiveDateTime> {
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
    let parsed = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    parsed.with_context(|| format!("now must look like 2026-01-15T12:34:56, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, conversation: &str) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        let args = RenderChatArgs {
            template: write("template.jinja", template)?,
            input: write("conversation.json", conversation)?,
        };
        render(&args)
    }

    #[test]
    fn special_tokens_kwargs_and_the_clock_reach_the_template() {
        let template =
            "{{ bos_token }}{{ messages[0].content }} {{ strftime_now('%d.%m.') }}{{ x }}\n";
        let conversation = r#"{"messages": [{"role": "user", "content": "hi"}], "kwargs": {"x": 1},
            "special_tokens": {"bos_token": "<s>"}, "now": "2026-01-15T12:34:56"}"#;
        assert_eq!(rendered(template, conversation).unwrap(), "<s>hi 15.01.1");
    }

    #[test]
    fn refusals_and_bad_files_are_errors() {
        let refused = rendered("{{ raise_exception('not this') }}", r#"{"messages": []}"#);
        assert_eq!(refused.unwrap_err().to_string(), "not this");
        assert!(rendered("", "{").unwrap_err().to_string().contains("conversation.json"));
        let bad_time = rendered("", r#"{"messages": [], "now": "noon"}"#);
        assert!(bad_time.unwrap_err().to_string().contains("\"noon\""));
    }
}

//! Questions to probabilities: a prompt for each, of which the engine computes no more than the
//! distribution of the token behind it.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use super::labels::{LabelFinder, Labels};
use super::question::Question;
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    Conversation, Message, Part, Role, TemplateOptions, Tools,
};
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::label_probabilities::LabelProbabilities;
use crate::http::generate::labels::{LabelOptions, LabelReading};
use crate::http::generate::prompt;
use crate::http::generate::prompt_encoder::PromptEncoder;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::wire::decisions::{
    DecisionFields, DecisionInputDetails, DecisionOutputDetails, DecisionUsage,
};
use crate::http::wire::sampling::CommonFields;
use crate::text::reasoning;

/// Stands for a question, to see what comes behind it.
const PLACE: &str = "QUESTION";
/// How many prompts of a request are rendered beside each other.
const RENDERED_AT_ONCE: usize = 8;

/// Questions about an input.
pub(super) struct Asked {
    pub(super) messages: Vec<Message>,
    pub(super) questions: Vec<Question>,
    pub(super) fields: DecisionFields,
    pub(super) names: &'static FieldNames,
    pub(super) adapter: Option<Adapter>,
    pub(super) arrival: Arrival,
}

/// What was read, in the order of the questions.
pub(super) struct Reading {
    pub(super) questions: Vec<Question>,
    pub(super) readings: Vec<LabelProbabilities>,
    pub(super) usage: DecisionUsage,
    /// Tokens of all prompts together.
    pub(super) prompt_tokens: usize,
}

/// Has the engine compute the labels' probabilities.
pub(super) async fn read(state: &AppState, asked: Asked) -> Result<Reading, ApiError> {
    let Asked { messages, questions, fields, names, adapter, arrival } = asked;
    check_thinking(&fields)?;
    let permit = state.admit(questions.len())?;
    let variables = fields.chat_template_kwargs.clone().unwrap_or_default();
    let about = |question: &str| conversation(&messages, question, &variables, names);
    let tail = tail(state, about(PLACE)).await?;
    let (labels, questions) = find_labels(state, tail.clone(), questions).await?;
    let asking = questions.iter().zip(&labels);
    let asking: Vec<Conversation> =
        asking.map(|(question, labels)| about(&question.prompt(&labels.texts))).collect();
    let asking: Vec<_> = asking.into_iter().map(|one| prompt::text(state, one)).collect();
    let texts = futures::stream::iter(asking).buffered(RENDERED_AT_ONCE);
    let texts: Vec<String> = texts.try_collect().await?;
    if texts.iter().any(|text| !text.ends_with(&tail)) {
        let what = "a chat template whose end depends on what is asked";
        return Err(ApiError::unsupported(names.prompt, what));
    }
    let encoder = PromptEncoder::new(state, None, names);
    let prompts = off_thread(move || encoder.encode_alike(&texts)).await?;
    let common = CommonFields {
        priority: fields.priority,
        cache_salt: fields.cache_salt.clone(),
        deadline_ms: fields.deadline_ms,
        ..CommonFields::default()
    };
    let options = LabelOptions { common, names, adapter, arrival };
    let tokens: Vec<&[u32]> = labels.iter().map(|labels| &labels.tokens[..]).collect();
    let LabelReading { probabilities: readings, least_cached } =
        options.read(state, permit, &prompts, &tokens).await?;
    Ok(Reading {
        readings,
        questions,
        usage: usage(&prompts, least_cached),
        prompt_tokens: prompts.iter().map(Vec::len).sum(),
    })
}

fn check_thinking(fields: &DecisionFields) -> Result<(), ApiError> {
    let variables = fields.chat_template_kwargs.as_ref();
    let thinks = variables.and_then(|variables| variables.get("enable_thinking"));
    if thinks == Some(&Value::Bool(true)) {
        let param = "chat_template_kwargs.enable_thinking";
        let message = format!("{param} must be false: an answer is the first token of the reply");
        return Err(ApiError::field(param, message));
    }
    Ok(())
}

/// The conversation with a question at its end.
fn conversation(
    messages: &[Message],
    question: &str,
    variables: &Map<String, Value>,
    names: &'static FieldNames,
) -> Conversation {
    let mut messages = messages.to_vec();
    if let Some(last) = messages.last_mut().filter(|last| last.role == Role::User) {
        // Parts are lines; an empty one stands between input and question.
        last.parts.push(Part::Text(format!("\n{question}")));
    } else {
        let parts = vec![Part::Text(question.to_owned())];
        messages.push(Message { role: Role::User, parts, name: None, answers: None });
    }
    Conversation {
        messages,
        tools: Tools::default(),
        template: TemplateOptions {
            source: None,
            variables: variables.clone(),
            documents: None,
            effort: None,
            thinking: Some(false),
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
        },
        names,
    }
}

/// What the template puts behind a question, up to where the reply begins.
async fn tail(state: &AppState, conversation: Conversation) -> Result<String, ApiError> {
    let names = conversation.names;
    let text = prompt::text(state, conversation).await?;
    let family = state.families(false).reasoning;
    if family.is_some_and(|family| reasoning::starts_inside(family, &text)) {
        let what = "a model that reasons before every reply";
        return Err(ApiError::unsupported("model", what));
    }
    let tail = text.rsplit_once(PLACE).map(|(_, tail)| tail.to_owned());
    tail.ok_or_else(|| ApiError::unsupported(names.prompt, "a chat template that changes texts"))
}

async fn find_labels(
    state: &AppState,
    tail: String,
    questions: Vec<Question>,
) -> Result<(Vec<Labels>, Vec<Question>), ApiError> {
    let tokenizer = Arc::clone(&state.tokenizer);
    off_thread(move || {
        let finder = LabelFinder::new(&tokenizer, &tail);
        let labels = questions.iter().map(|question| finder.labels(question));
        Ok((labels.collect::<Result<_, _>>()?, questions))
    })
    .await
}

/// Counts what all prompts begin with once; `cached` tokens of it had been computed before.
fn usage(prompts: &[Vec<u32>], cached: usize) -> DecisionUsage {
    let common = |a: &[u32], b: &[u32]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let first = prompts.first().map_or(&[][..], Vec::as_slice);
    let shared = prompts.iter().map(|prompt| common(first, prompt)).min().unwrap_or(0);
    let own: usize = prompts.iter().map(|prompt| prompt.len() - shared).sum();
    let input_tokens = shared + own;
    DecisionUsage {
        input_tokens,
        input_tokens_details: DecisionInputDetails {
            cached_tokens: cached.min(input_tokens),
            cache_write_tokens: 0,
        },
        output_tokens: 0,
        output_tokens_details: DecisionOutputDetails { reasoning_tokens: 0 },
        total_tokens: input_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prompts_share_counts_once() {
        let counted = usage(&[vec![1, 2, 3, 4], vec![1, 2, 5], vec![1, 2, 3]], 9);
        assert_eq!((counted.input_tokens, counted.total_tokens), (2 + 2 + 1 + 1, 6));
        assert_eq!(counted.input_tokens_details.cached_tokens, 6);
        assert_eq!(usage(&[vec![1, 2, 3]], 2).input_tokens, 3);
    }
}

//! A request for decisions to the conversation that they are about, and to its questions.

use serde_json::{Value, json};

use super::question::{Answer, Kind, Question};
use crate::http::error::ApiError;
use crate::http::generate::chat_request::Message;
use crate::http::generate::field_names::FieldNames;
use crate::http::openai::responses::conversation::messages;
use crate::http::openai::responses::items::{ItemReader, check_outputs};
use crate::http::openai::responses::references::References;
use crate::http::request::extract::RequestBody;
use crate::http::request::fields::{BodyReader, FieldReader, required, text_member};
use crate::http::request::rules::{COMMON, Rules, Treatment};
use crate::http::state::response_store::History;
use crate::http::wire::bounds::{MAX_DECISION_JSON_BYTES, MAX_QUESTIONS};
use crate::http::wire::decisions::{
    ChoiceQuestion, DecisionFields, DecisionRequest, JsonPart, PredicateQuestion, ScoreQuestion,
};
use crate::http::wire::response_input::TextPart;

/// What decisions call the fields of all protocols.
pub(super) const NAMES: FieldNames = FieldNames {
    prompt: "input",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

/// Members of items that say nothing to a model here.
const DECISION_RULES: Rules = &[
    ("*.prompt_cache_breakpoint", Treatment::Ignored),
    ("input[].content[].annotations", Treatment::Ignored),
    ("input[].phase", Treatment::Ignored),
];

/// The body of `POST /v1/decisions`.
#[derive(Debug)]
pub(crate) struct DecisionBody {
    pub(super) request: DecisionRequest,
    pub(super) fields: DecisionFields,
}

impl RequestBody for DecisionBody {
    const RULES: &'static [Rules] = &[DECISION_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// What the questions are about, and the questions.
pub(super) fn conversation(
    request: &DecisionRequest,
    references: &References,
    fields: &mut FieldReader,
) -> Result<(Vec<Message>, Vec<Question>), ApiError> {
    let mut input = required(request.input.clone(), "", "input")?;
    let empty = input.as_str() == Some("") || input.as_array().is_some_and(Vec::is_empty);
    if empty {
        return Err(ApiError::field("input", "input must not be empty"));
    }
    for (at, item) in input.as_array_mut().into_iter().flatten().enumerate() {
        let parts = item.get_mut("content").and_then(Value::as_array_mut);
        show_json(parts.into_iter().flatten(), &format!("input[{at}].content"), fields)?;
    }
    let mut reader = ItemReader { references, sees: false, fields };
    let items = reader.read(&input)?;
    check_outputs(&History::default(), &items)?;
    let questions = request.questions.as_deref().unwrap_or_default();
    check_count("questions", questions.len())?;
    let questions = questions.iter().enumerate();
    let questions: Result<Vec<Question>, ApiError> =
        questions.map(|(at, value)| question(value, format!("questions[{at}]"), fields)).collect();
    Ok((messages(None, items.iter()), questions?))
}

/// Checks how many questions there are.
pub(super) fn check_count(field: &str, count: usize) -> Result<(), ApiError> {
    if (1..=MAX_QUESTIONS).contains(&count) {
        return Ok(());
    }
    let message = format!("{field} must have 1 to {MAX_QUESTIONS} questions, got {count}");
    Err(ApiError::field(field, message))
}

fn question(value: &Value, path: String, fields: &mut FieldReader) -> Result<Question, ApiError> {
    let made = |name, kind, instructions, options, path| {
        Ok(Question { name, kind, instructions, options, path })
    };
    match text_member(value, "type") {
        Some("predicate") => {
            let PredicateQuestion { name, instructions } = fields.variant(value, &path)?;
            let instructions = text(instructions, &path, fields)?;
            let options = vec![Answer::new("yes", None), Answer::new("no", None)];
            made(name, Kind::Predicate, instructions, options, path)
        }
        Some("choice") => {
            let ChoiceQuestion { name, instructions, choices } = fields.variant(value, &path)?;
            let instructions = text(instructions, &path, fields)?;
            let choices = required(choices, &path, "choices")?.into_iter().enumerate();
            let options = choices.map(|(at, choice)| {
                let value = required(choice.value, &format!("{path}.choices[{at}]"), "value")?;
                Ok(Answer { value, description: choice.description })
            });
            let options = options.collect::<Result<_, ApiError>>()?;
            made(name, Kind::Choice, instructions, options, path)?.checked("choices", 2)
        }
        Some("score") => {
            let ScoreQuestion { name, instructions, levels } = fields.variant(value, &path)?;
            let instructions = text(instructions, &path, fields)?;
            let levels = required(levels, &path, "levels")?.into_iter().enumerate();
            let options = levels.map(|(at, level)| {
                let label = required(level.label, &format!("{path}.levels[{at}]"), "label")?;
                Ok(Answer::new(&label, level.description))
            });
            let options = options.collect::<Result<_, ApiError>>()?;
            made(name, Kind::Score, instructions, options, path)?.checked("levels", 2)
        }
        kind => {
            let kind = kind.unwrap_or("nothing");
            let message =
                format!("{path}.type must be one of predicate, choice, score, got {kind:?}");
            Err(ApiError::field(format!("{path}.type"), message))
        }
    }
}

/// The text of instructions, whose parts are lines.
fn text(
    instructions: Option<Value>,
    path: &str,
    fields: &mut FieldReader,
) -> Result<String, ApiError> {
    let mut instructions = required(instructions, path, "instructions")?;
    let path = format!("{path}.instructions");
    show_json(instructions.as_array_mut().into_iter().flatten(), &path, fields)?;
    match instructions {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let texts = parts.iter().enumerate().map(|(at, part)| {
                let path = format!("{path}[{at}]");
                if text_member(part, "type") != Some("input_text") {
                    let message =
                        format!("{path} must be a part of the type input_text or input_json");
                    return Err(ApiError::field(path, message));
                }
                let TextPart { text } = fields.variant(part, &path)?;
                required(text, &path, "text")
            });
            let texts: Result<Vec<String>, ApiError> = texts.collect();
            Ok(texts?.join("\n"))
        }
        _ => Err(ApiError::field(
            path.clone(),
            format!("{path} must be a string or a list of parts"),
        )),
    }
}

/// Has parts that hold JSON say it as a text.
fn show_json<'a>(
    parts: impl Iterator<Item = &'a mut Value>,
    path: &str,
    fields: &mut FieldReader,
) -> Result<(), ApiError> {
    for (at, part) in parts.enumerate() {
        if text_member(part, "type") != Some("input_json") {
            continue;
        }
        let path = format!("{path}[{at}]");
        let JsonPart { data } = fields.variant(part, &path)?;
        let data = required(data, &path, "data")?;
        let objects = match &data {
            Value::Array(list) => list.iter().all(Value::is_object),
            data => data.is_object(),
        };
        let (param, shown) = (format!("{path}.data"), data.to_string());
        if !objects {
            let message = format!("{param} must be an object or a list of objects");
            return Err(ApiError::field(param, message));
        }
        if shown.len() > MAX_DECISION_JSON_BYTES {
            let message = format!(
                "{param} has {} bytes of JSON, at most {MAX_DECISION_JSON_BYTES} are shown",
                shown.len()
            );
            return Err(ApiError::field(param, message));
        }
        *part = json!({"type": "input_text", "text": shown});
    }
    Ok(())
}

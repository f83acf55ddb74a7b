//! A request in the shape of System One: what the questions are about is text or any JSON, and each
//! question has criteria in place of choices or levels.

use serde_json::Value;

use super::input::check_count;
use super::question::{Answer, Kind, Question};
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{Message, Part, Role};
use crate::http::generate::field_names::FieldNames;
use crate::http::request::extract::RequestBody;
use crate::http::request::fields::{BodyReader, FieldReader, required};
use crate::http::request::rules::{COMMON, Rules, Treatment, is_empty};
use crate::http::wire::decisions::{DecisionFields, SystemOneField, SystemOneRequest};

/// What System One calls the fields of all protocols.
pub(super) const NAMES: FieldNames = FieldNames { prompt: "state", ..super::input::NAMES };

/// What only models take that see or hear, and what no model here has to be told.
const SYSTEM_ONE_RULES: Rules = &[
    ("audio", Treatment::Unsupported(is_empty)),
    ("images", Treatment::Unsupported(is_empty)),
    ("keep_alive", Treatment::Ignored),
    ("videos", Treatment::Unsupported(is_empty)),
];

/// The body of `POST /v1/systemone`.
#[derive(Debug)]
pub(crate) struct SystemOneBody {
    pub(super) request: SystemOneRequest,
    pub(super) fields: DecisionFields,
}

impl RequestBody for SystemOneBody {
    const RULES: &'static [Rules] = &[SYSTEM_ONE_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, fields: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// What the questions are about, and the questions.
pub(super) fn conversation(
    request: &SystemOneRequest,
    fields: &mut FieldReader,
) -> Result<(Vec<Message>, Vec<Question>), ApiError> {
    let state = required(request.state.as_ref(), "", "state")?;
    let said = |role, text: String| Message {
        role,
        parts: vec![Part::Text(text)],
        name: None,
        answers: None,
    };
    let instructions = request.instructions.clone().filter(|text| !text.is_empty());
    let mut messages: Vec<Message> =
        instructions.into_iter().map(|text| said(Role::System, text)).collect();
    messages.push(said(Role::User, shown(state)));
    let named = required(request.questions.as_ref(), "", "questions")?;
    check_count("questions", named.len())?;
    let questions = named.iter().map(|(name, value)| question(name, value, fields));
    Ok((messages, questions.collect::<Result<_, _>>()?))
}

/// A text as it is, and anything else as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn question(name: &str, value: &Value, fields: &mut FieldReader) -> Result<Question, ApiError> {
    let path = format!("questions.{name}");
    if name.is_empty() {
        return Err(ApiError::field("questions", "questions: a name must not be empty"));
    }
    if !value.is_object() {
        let message = format!("{path} must be an object with a type");
        return Err(ApiError::field(path, message));
    }
    let SystemOneField { kind, instructions, criteria } = fields.object(value, &path)?;
    let (kind, options, least) = match kind.as_deref() {
        Some("noul") => (Kind::Predicate, yes_and_no(criteria.as_ref(), &path)?, 2),
        Some("choice") => (Kind::Choice, choices(criteria.as_ref(), &path)?, 1),
        Some("score") => (Kind::Score, levels(criteria.as_ref(), &path)?, 2),
        other => {
            let other = other.unwrap_or("nothing");
            let message = format!("{path}.type must be one of noul, choice, score, got {other:?}");
            return Err(ApiError::field(format!("{path}.type"), message));
        }
    };
    let instructions = instructions.as_ref().map(shown).unwrap_or_default();
    let name = Some(name.to_owned());
    Question { name, kind, instructions, options, path }.checked("criteria", least)
}

fn invalid(path: &str, what: &str) -> ApiError {
    let param = format!("{path}.criteria");
    let message = format!("{param} must {what}");
    ApiError::field(param, message)
}

fn yes_and_no(criteria: Option<&Value>, path: &str) -> Result<Vec<Answer>, ApiError> {
    let meaning = |name: &str| {
        let meaning = criteria.and_then(|criteria| criteria.get(name));
        meaning.filter(|meaning| !meaning.is_null()).map(shown)
    };
    let known = |name: &String| name == "true" || name == "false";
    match criteria {
        None => {}
        Some(Value::Object(criteria)) if criteria.keys().all(known) => {}
        Some(_) => return Err(invalid(path, "be an object with no names but true and false")),
    }
    Ok(vec![Answer::new("yes", meaning("true")), Answer::new("no", meaning("false"))])
}

fn choices(criteria: Option<&Value>, path: &str) -> Result<Vec<Answer>, ApiError> {
    let criteria = criteria.and_then(Value::as_object);
    let criteria = criteria.ok_or_else(|| invalid(path, "map names to descriptions or null"))?;
    let options = criteria.iter().map(|(name, meaning)| {
        Answer::new(name, Some(meaning).filter(|meaning| !meaning.is_null()).map(shown))
    });
    Ok(options.collect())
}

fn levels(criteria: Option<&Value>, path: &str) -> Result<Vec<Answer>, ApiError> {
    let criteria = criteria.and_then(Value::as_array);
    let criteria = criteria.ok_or_else(|| invalid(path, "be a list of levels, lowest first"))?;
    Ok(criteria.iter().map(|level| Answer::new(&shown(level), None)).collect())
}

//! Questions: which answers each allows, and how a model is asked.

use crate::http::error::ApiError;
use crate::http::wire::bounds::{MAX_DECISION_CHOICES, MAX_DECISION_LEVELS};
use crate::http::wire::decisions::ChoiceValue;

/// A question about an input.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    pub(super) instructions: String,
    /// What can be answered; to a predicate yes and no, in this order.
    pub(super) options: Vec<Answer>,
    /// Where it stands in the request.
    pub(super) path: String,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whether a statement is true.
    Predicate,
    /// One of several answers.
    Choice,
    /// A level among ordered ones.
    Score,
}

/// Something that can be answered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) value: ChoiceValue,
    pub(super) description: Option<String>,
}

impl Answer {
    pub(super) fn new(text: &str, description: Option<String>) -> Self {
        Self { value: ChoiceValue::Text(text.to_owned()), description }
    }

    /// As the model reads it.
    pub(super) fn text(&self) -> String {
        match &self.value {
            ChoiceValue::Flag(flag) => flag.to_string(),
            ChoiceValue::Text(text) => text.clone(),
        }
    }
}

impl Question {
    /// Checks how many answers it allows and that no two of them are the same; `field` is where they
    /// stand.
    pub(super) fn checked(self, field: &str, least: usize) -> Result<Self, ApiError> {
        let most = match self.kind {
            Kind::Predicate => return Ok(self),
            Kind::Choice => MAX_DECISION_CHOICES,
            Kind::Score => MAX_DECISION_LEVELS,
        };
        let param = format!("{}.{field}", self.path);
        let count = self.options.len();
        if !(least..=most).contains(&count) {
            let message = format!("{param} must have {least} to {most} answers, got {count}");
            return Err(ApiError::field(param, message));
        }
        let mut before = self.options.iter().enumerate();
        let twice = before.find(|(at, option)| {
            self.options[..*at].iter().any(|other| other.value == option.value)
        });
        if let Some((at, option)) = twice.filter(|_| self.kind == Kind::Choice) {
            let message = format!("{param}[{at}]: {:?} is an answer already", option.text());
            return Err(ApiError::field(param, message));
        }
        Ok(self)
    }

    /// The question as the model reads it, with a label for every answer. How to answer comes first: it
    /// is the same for all questions of a kind, and what prompts begin with alike is computed once.
    pub(super) fn prompt(&self, labels: &[String]) -> String {
        let mut lines = Vec::with_capacity(self.options.len() + 2);
        lines.push(match self.kind {
            Kind::Predicate => format!("Answer with {} or {} only.", labels[0], labels[1]),
            Kind::Choice => "Answer with the label of one of the answers only.".to_owned(),
            Kind::Score => "Answer with the number of one of the levels only.".to_owned(),
        });
        if !self.instructions.is_empty() {
            lines.push(format!("Question: {}", self.instructions));
        }
        let described = self.options.iter().zip(labels).filter_map(|(option, label)| {
            match (self.kind, &option.description) {
                (Kind::Predicate, None) => None,
                (Kind::Predicate, Some(meaning)) => Some(format!("{label}: {meaning}")),
                (_, None) => Some(format!("{label}: {}", option.text())),
                (_, Some(meaning)) => Some(format!("{label}: {} - {meaning}", option.text())),
            }
        });
        lines.extend(described);
        lines.join("\n")
    }
}

//! `/v1/decisions` and `/v1/systemone`: many questions about one input, answered by probabilities.
//!
//! Each question is a prompt of its own: the input, and behind it the question with a label of one
//! token for every answer that it allows. Nothing is generated: the probabilities of the labels as
//! the first token of the reply, divided by their sum, are the answer. The engine computes what the
//! prompts share once, and the numbers don't depend on what else it computes.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::generate::label_probabilities::LabelProbabilities;
use crate::http::openai::responses::references::References;
use crate::http::request::extract::Extracted;
use crate::http::request::id::RequestId;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::decisions::{
    ChoiceProbability, Decision, DecisionAnswer, LevelProbability, SystemOneAnswer,
    SystemOneDecision, SystemOneDiagnostics, SystemOneUsage,
};
use input::DecisionBody;
use question::{Kind, Question};
use reading::{Asked, Reading, read};
use system_one::SystemOneBody;

mod input;
mod labels;
mod question;
mod reading;
mod system_one;

/// `POST /v1/decisions`.
pub(crate) async fn decisions(
    State(state): State<AppState>,
    owner: Owner,
    request: Extracted<DecisionBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = request;
    let DecisionBody { request, fields: own } = body;
    let references = References::find(&state, &owner, request.input.as_ref()).await?;
    let (messages, questions) = input::conversation(&request, &references, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let names = &input::NAMES;
    let asked = Asked { messages, questions, fields: own, names, adapter, arrival };
    let Reading { questions, readings, usage, .. } = read(&state, asked).await?;
    let answers = questions.into_iter().zip(&readings);
    let answers = answers.map(|(question, reading)| answer(question, reading)).collect();
    let decision = Decision { model: &model, answers, usage };
    Ok(ignored.tell(axum::Json(decision).into_response()))
}

/// `POST /v1/systemone`.
pub(crate) async fn system_one(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Extracted<SystemOneBody>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, adapter, arrival, mut fields } = request;
    let SystemOneBody { request, fields: own } = body;
    let (messages, questions) = system_one::conversation(&request, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let names = &system_one::NAMES;
    let asked = Asked { messages, questions, fields: own, names, adapter, arrival };
    let Reading { questions, readings, prompt_tokens, .. } = read(&state, asked).await?;
    let mut answers = Map::new();
    let mut diagnostics = Map::new();
    for (question, reading) in questions.iter().zip(&readings) {
        let name = question.name.clone().unwrap_or_default();
        let told = SystemOneDiagnostics {
            label_mass: reading.label_mass,
            argmax_is_label: reading.argmax_is_label,
        };
        answers.insert(name.clone(), json!(system_one_answer(question, reading)));
        diagnostics.insert(name, json!(told));
    }
    let decision = SystemOneDecision {
        id: id.or_in_body("decision-", None),
        object: "structured_decision",
        created: unix_seconds(),
        model: &model,
        answers,
        usage: SystemOneUsage { input_tokens: prompt_tokens, output_tokens: readings.len() },
        diagnostics,
    };
    Ok(ignored.tell(axum::Json(decision).into_response()))
}

fn answer(question: Question, reading: &LabelProbabilities) -> DecisionAnswer {
    let Question { name, kind, options, .. } = question;
    let (label_mass, confidence) = (reading.label_mass, reading.confidence());
    let each = options.into_iter().zip(reading.probabilities.iter().copied());
    match kind {
        Kind::Predicate => {
            let probability = reading.probabilities[0];
            DecisionAnswer::Predicate { name, probability, label_mass }
        }
        Kind::Choice => {
            let probabilities: Vec<ChoiceProbability> = each
                .map(|(option, probability)| ChoiceProbability { value: option.value, probability })
                .collect();
            let choice = probabilities[reading.best().0].value.clone();
            DecisionAnswer::Choice { name, choice, confidence, probabilities, label_mass }
        }
        Kind::Score => DecisionAnswer::Score {
            name,
            score: reading.mean(),
            confidence,
            probabilities: each
                .enumerate()
                .map(|(value, (option, probability))| LevelProbability {
                    value,
                    label: option.text(),
                    probability,
                })
                .collect(),
            label_mass,
        },
    }
}

fn system_one_answer(question: &Question, reading: &LabelProbabilities) -> SystemOneAnswer {
    let (best, probability) = reading.best();
    let confidence = probability * reading.label_mass;
    let by = |name: &dyn Fn(usize) -> String| -> Map<String, Value> {
        let each = reading.probabilities.iter().enumerate();
        each.map(|(at, probability)| (name(at), json!(probability))).collect()
    };
    match question.kind {
        Kind::Predicate => SystemOneAnswer::Noul {
            noul: reading.probabilities[0],
            probabilities: by(&|at| ["yes", "no"][at].to_owned()),
            confidence,
        },
        Kind::Choice => SystemOneAnswer::Choice {
            choice: question.options[best].text(),
            probabilities: by(&|at| question.options[at].text()),
            confidence,
        },
        Kind::Score => {
            let legend = question.options.iter().enumerate();
            SystemOneAnswer::Score {
                score: reading.mean(),
                legend: legend.map(|(at, option)| (at.to_string(), json!(option.text()))).collect(),
                probabilities: by(&|at| at.to_string()),
                confidence,
            }
        }
    }
}

//! Prompts to the probabilities of labels: tokens that a reply could begin with. Nothing is generated
//! but that one token, of which nobody asks but how likely the labels would have been.

use super::field_names::FieldNames;
use super::label_probabilities::LabelProbabilities;
use super::options::{GenerationOptions, OwnOptions};
use super::plan::{Constraints, Plan};
use crate::engine::adapter::Adapter;
use crate::http::answer::delta::{ChoiceDelta, CompletedChoice};
use crate::http::answer::generation::Generation;
use crate::http::answer::reader::ReadingPlan;
use crate::http::error::ApiError;
use crate::http::request::arrival::Arrival;
use crate::http::state::AppState;
use crate::http::state::admission::Permit;
use crate::http::wire::sampling::CommonFields;
use crate::http::wire::scalars::ScalarFields;

/// What is asked beside the prompts.
pub(crate) struct LabelOptions {
    pub(crate) common: CommonFields,
    pub(crate) names: &'static FieldNames,
    pub(crate) adapter: Option<Adapter>,
    pub(crate) arrival: Arrival,
}

/// What was read, in the order of the prompts.
pub(crate) struct LabelReading {
    pub(crate) probabilities: Vec<LabelProbabilities>,
    /// The least that a prompt had cached.
    pub(crate) least_cached: usize,
}

impl LabelOptions {
    /// Has the engine compute the probabilities of each prompt's own labels.
    pub(crate) async fn read(
        self,
        state: &AppState,
        permit: Permit,
        prompts: &[Vec<u32>],
        labels: &[&[u32]],
    ) -> Result<LabelReading, ApiError> {
        let options = self.generation(labels, state)?;
        let (constraints, reading) = (Constraints::default(), ReadingPlan::default());
        let Self { adapter, arrival, .. } = self;
        let plan = Plan::new(state, options, constraints, reading, adapter, arrival.at).await?;
        let mut generation = plan.submit(state, permit, prompts)?;
        let choices = completed(&mut generation).await?;
        let readings =
            choices.iter().zip(labels).map(|(choice, labels)| reading_of(choice, labels));
        let readings: Option<Vec<LabelProbabilities>> = readings.collect();
        Ok(LabelReading {
            // At the deadline, a request that has begun ends with what there is.
            probabilities: readings.ok_or_else(|| {
                let deadline = generation.deadline().unwrap_or_default().as_millis();
                ApiError::DeadlineExceeded(u64::try_from(deadline).unwrap_or(u64::MAX))
            })?,
            least_cached: generation.least_cached(),
        })
    }

    /// One token, with the logprobs of all labels.
    fn generation(
        &self,
        labels: &[&[u32]],
        state: &AppState,
    ) -> Result<GenerationOptions, ApiError> {
        let own =
            OwnOptions { logprobs: Some(0), max_tokens: Some(1), ..OwnOptions::of(self.names) };
        let mut scalars = ScalarFields::default();
        scalars.set("temperature", Some(0.0));
        let mut options =
            GenerationOptions::new(own, &scalars, &self.common, &self.arrival, state)?;
        let mut tokens: Vec<u32> = labels.concat();
        tokens.sort_unstable();
        tokens.dedup();
        options.sampling.logprob_token_ids = Some(tokens.into());
        Ok(options)
    }
}

async fn completed(generation: &mut Generation) -> Result<Vec<CompletedChoice>, ApiError> {
    let mut choices = vec![CompletedChoice::default(); generation.num_choices()];
    while let Some(delta) = generation.next().await {
        let ChoiceDelta { index, delta } = delta?;
        choices[index].add(delta);
    }
    Ok(choices)
}

/// What was read of one prompt's labels, if anything was.
fn reading_of(choice: &CompletedChoice, labels: &[u32]) -> Option<LabelProbabilities> {
    let first = choice.tokens.first()?.logprobs.as_ref()?;
    let logprob = |token: &u32| {
        let found = first.top.iter().find(|(id, _)| id == token);
        found.map(|(_, logprob)| f64::from(*logprob))
    };
    let logprobs: Option<Vec<f64>> = labels.iter().map(logprob).collect();
    Some(LabelProbabilities::new(&logprobs?, labels.contains(&first.token_id)))
}

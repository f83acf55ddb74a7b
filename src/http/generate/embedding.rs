//! Texts to vectors, whatever the protocol they came in: tokenized, embedded by the engine, and
//! collected in the order of the inputs. Knows nothing of how a model makes them.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::Instrument;

use super::pieces::Pieces;
use crate::engine::adapter::Adapter;
use crate::engine::output::{EngineOutput, OutputStream};
use crate::engine::request::{EmbeddingRequest, RequestId, Wanted};
use crate::http::answer::generation::{cut, passed};
use crate::http::answer::meter::Meter;
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::state::admission::Permit;
use crate::http::state::caller;
use crate::telemetry;
use crate::text::late_interaction::SidedIds;
use crate::text::tokenizer::{CutSide, EncodedPair, TokenizerError};

/// What is asked for beside the texts, checked.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddingOptions {
    pub(crate) adapter: Option<Adapter>,
    pub(crate) wanted: Wanted,
    pub(crate) priority: i32,
    pub(crate) cache_salt: Option<String>,
    pub(crate) arrival: Instant,
    pub(crate) deadline: Option<Duration>,
}

/// What is done with long texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutting {
    /// Cut to so many tokens; `None` refuses what is too long.
    pub(crate) truncate: Option<usize>,
    pub(crate) side: CutSide,
    pub(crate) longest: usize,
    pub(crate) add_special_tokens: bool,
    /// The field that holds the texts.
    pub(crate) field: &'static str,
    /// The field that asks for texts to be cut.
    pub(crate) cut_by: &'static str,
}

/// A checked input.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Text(String),
    Ids(Vec<u32>),
}

impl EmbeddingOptions {
    /// The vectors of the texts, in their order. Dropping it aborts what still runs. The permit is held
    /// until they are there.
    pub(crate) async fn run(
        &self,
        state: &AppState,
        permit: Permit,
        texts: Vec<Vec<u32>>,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        let limits = state.engine.limits();
        let (pieces, texts) = Pieces::of(texts, limits.max_text_len);
        let texts = texts.into_iter().map(Read::whole).collect();
        let vectors = self.run_all(state, permit, texts).await?;
        Ok(pieces.join(vectors, self.wanted, limits))
    }

    /// The same of texts whose last tokens no token sees, each at most as long as the model reads.
    pub(crate) async fn run_sided(
        &self,
        state: &AppState,
        permit: Permit,
        texts: Vec<SidedIds>,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        let read = |SidedIds { ids, unseen }| Read { unseen, ..Read::whole(ids) };
        self.run_all(state, permit, texts.into_iter().map(read).collect()).await
    }

    /// The same of pairs of texts, each read as one.
    pub(crate) async fn run_pairs(
        &self,
        state: &AppState,
        permit: Permit,
        pairs: Vec<EncodedPair>,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        let read = |EncodedPair { ids, second }| Read { second, ..Read::whole(ids) };
        self.run_all(state, permit, pairs.into_iter().map(read).collect()).await
    }

    async fn run_all(
        &self,
        state: &AppState,
        permit: Permit,
        texts: Vec<Read>,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        state.queue_tokens(&permit, texts.iter().map(|text| text.ids.len()).sum())?;
        let running: Vec<Running> =
            texts.into_iter().map(|text| self.submit(state, text)).collect();
        let deadline = self.deadline.map(|after| self.arrival + after);
        let mut cut_signal: watch::Receiver<bool> = state.cut_signal();
        tokio::select! {
            biased;
            () = cut(&mut cut_signal) => Err(ApiError::Unavailable(
                "the server is shutting down and could not finish the request".to_owned(),
            )),
            () = passed(deadline) => {
                let after = self.deadline.unwrap_or_default().as_millis();
                Err(ApiError::DeadlineExceeded(u64::try_from(after).unwrap_or(u64::MAX)))
            }
            vectors = all_vectors(running) => vectors,
        }
    }

    fn submit(&self, state: &AppState, text: Read) -> Running {
        let Read { ids: token_ids, second: second_text, unseen } = text;
        let meter = Meter::new(state.metrics.clone(), self.arrival, token_ids.len());
        let output = state.engine.embed(EmbeddingRequest {
            id: RequestId::next(),
            token_ids,
            second_text,
            unseen,
            wanted: self.wanted,
            priority: self.priority,
            share: caller::share(),
            cache_salt: self.cache_salt.clone(),
            adapter: self.adapter.clone().or_else(|| state.adapters.of_no_task().cloned()),
        });
        Running { output, meter }
    }
}

/// What the engine reads as one text.
struct Read {
    ids: Vec<u32>,
    /// Where the second of two texts begins.
    second: Option<usize>,
    /// How many of the last tokens no token sees.
    unseen: usize,
}

impl Read {
    fn whole(ids: Vec<u32>) -> Self {
        Self { ids, second: None, unseen: 0 }
    }
}

/// One input in the engine.
struct Running {
    output: OutputStream,
    meter: Meter,
}

impl Running {
    async fn vector(mut self) -> Result<Vec<f32>, ApiError> {
        while let Some(output) = self.output.next().await {
            match output {
                EngineOutput::Started { cached_tokens, queue } => {
                    self.meter.started(cached_tokens, queue);
                }
                EngineOutput::Embedded { embedding, stats } => {
                    self.meter.embedded(&stats);
                    return Ok(embedding);
                }
                EngineOutput::Failed(error) => {
                    self.meter.failed();
                    return Err(error.into());
                }
                EngineOutput::Token { .. }
                | EngineOutput::PromptLogprobs(_)
                | EngineOutput::Finished { .. } => break,
            }
        }
        self.meter.failed();
        Err(ApiError::Internal("the engine gave no embedding".to_owned()))
    }
}

/// The engine sends without waiting for readers, so reading in order delays nothing.
async fn all_vectors(running: Vec<Running>) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut vectors = Vec::with_capacity(running.len());
    for running in running {
        vectors.push(running.vector().await?);
    }
    Ok(vectors)
}

impl Cutting {
    /// Checks the length of an input that was cut if the request asks for it.
    pub(crate) fn check(self, token_ids: &[u32], name: &str) -> Result<(), ApiError> {
        if token_ids.is_empty() {
            return Err(ApiError::field(
                self.field,
                format!("{name} must have at least one token"),
            ));
        }
        if token_ids.len() > self.longest {
            return Err(self.too_long(name, &token_ids.len().to_string()));
        }
        Ok(())
    }

    pub(crate) fn refusal(self, error: TokenizerError, name: &str) -> ApiError {
        match error {
            TokenizerError::TooLong(tokens) => self.too_long(name, &format!("more than {tokens}")),
            error => ApiError::field(self.field, error.to_string()),
        }
    }

    fn too_long(self, name: &str, tokens: &str) -> ApiError {
        ApiError::Invalid {
            message: format!(
                "This model's maximum context length is {} tokens. However, {name} has {tokens} \
                 tokens; {} cuts it",
                self.longest, self.cut_by
            ),
            param: Some(self.field.to_owned()),
            code: Some("context_length_exceeded"),
        }
    }
}

/// What an input is called in messages.
pub(crate) fn name(field: &str, index: usize, count: usize) -> String {
    if count == 1 { field.to_owned() } else { format!("{field}[{index}]") }
}

/// The token ids of inputs, cut or refused where they are too long.
pub(crate) async fn tokenize(
    state: &AppState,
    inputs: Vec<Input>,
    cutting: Cutting,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let tokenizer = state.tokenizer.clone();
    let Cutting { truncate, side, longest, add_special_tokens, field, .. } = cutting;
    off_thread(move || {
        let count = inputs.len();
        let encoded = inputs.into_iter().enumerate().map(|(index, input)| {
            let most = truncate.unwrap_or(usize::MAX);
            let ids = match input {
                Input::Ids(ids) => side.keep(&ids, most).to_vec(),
                Input::Text(text) => match truncate {
                    None => tokenizer.encode_at_most(&text, add_special_tokens, longest),
                    Some(_) => tokenizer.encode_within(&text, add_special_tokens, most, side),
                }
                .map_err(|error| cutting.refusal(error, &name(field, index, count)))?,
            };
            cutting.check(&ids, &name(field, index, count))?;
            Ok(ids)
        });
        encoded.collect()
    })
    .instrument(telemetry::stage("render"))
    .await
}

//! Queries and documents to scores, whatever the protocol they came in and whichever way the model
//! has to compare texts:
//!
//! - a classifier of one class reads a query and a document together (cross-encoder),
//! - an embedding model makes a vector of each text: the score is the cosine between them,
//! - a model that weighs the vocabulary's tokens: the score is the sum over tokens that both texts have
//!   of the weights' products (Formal et al., "SPLADE v2", 2021),
//! - a model of late interaction makes a vector of each token: every token of the query counts with
//!   its most similar one of the document (Khattab and Zaharia, "ColBERT", 2020),
//! - a model that weighs each token of a text: the score is the sum over tokens that both texts have of
//!   the weights' products (Chen et al., "M3-Embedding", 2024),
//! - a model that continues texts is asked whether the document is what the query looks for: the
//!   score is how likely `yes` is among `yes` and `no` (Zhang et al., "Qwen3 Embedding", 2025).
//!
//! Of a model that can several, a request chooses by the task that makes what is compared.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use super::chat_request::{Conversation, Message, Part, Role, TemplateOptions, Tools};
use super::embedding::{Cutting, EmbeddingOptions, Input, tokenize};
use super::field_names::FieldNames;
use super::label_probabilities::LabelProbabilities;
use super::labels::{LabelOptions, LabelReading};
use super::late_interaction;
use super::prompt::{self, RenderedPrompt};
use super::token_outputs::{EmptyTokens, common};
use crate::engine::request::Wanted;
use crate::engine::{EngineLimits, Outputs};
use crate::http::error::ApiError;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::state::{Answers, AppState};
use crate::http::wire::number::Int;
use crate::http::wire::sampling::CommonFields;
use crate::text::late_interaction::Side;
use crate::text::tokenizer::EncodedPair;

/// What a model is told that answers by words.
const SYSTEM: &str = "Judge whether the Document meets the requirements based on the Query and the \
                      Instruct provided. Note that the answer can only be \"yes\" or \"no\".";
/// What it is told to look for, where a request doesn't say.
const INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";
/// Tokens that answer yes and no, best first.
const ANSWERS: [[&str; 2]; 4] =
    [["yes", "no"], ["\u{2581}yes", "\u{2581}no"], ["Yes", "No"], ["y", "n"]];
/// How many prompts of a request are rendered and tokenized beside each other.
const RENDERED_AT_ONCE: usize = 8;

/// How a model compares texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scoring {
    Together,
    Cosine,
    DotProduct,
    LateInteraction,
    CommonTokens,
    Words,
}

impl Scoring {
    /// How texts are compared by what `task` makes of them, or by what the model is there for.
    fn of(state: &AppState, task: Option<&str>) -> Result<Self, ApiError> {
        let limits = state.engine.limits();
        let (scoring, has) = match task {
            None => return Self::of_model(state),
            Some("embed") if limits.outputs == Outputs::Lexical => (Self::DotProduct, true),
            Some("embed") => (Self::Cosine, limits.outputs == Outputs::Embedding),
            Some("token_embed") => (Self::LateInteraction, limits.gives(Outputs::TokenEmbeddings)),
            Some("token_classify") => (Self::CommonTokens, limits.gives(Outputs::TokenWeights)),
            Some(other) => {
                let message = format!(
                    "task must be one of embed, token_embed and token_classify, got {other:?}"
                );
                return Err(ApiError::field("task", message));
            }
        };
        if has {
            return Ok(scoring);
        }
        let what = format!(
            "scores by {:?} from a model that gives {:?}",
            task.unwrap_or_default(),
            limits.outputs
        );
        Err(ApiError::unsupported("task", &what))
    }

    fn of_model(state: &AppState) -> Result<Self, ApiError> {
        let EngineLimits { outputs, embedding_size, generates, .. } = *state.engine.limits();
        match outputs {
            Outputs::Classes if embedding_size == 1 => Ok(Self::Together),
            Outputs::Classes | Outputs::TokenClasses => {
                let what = format!(
                    "a score from a model that sorts {} into {embedding_size} classes; \
                     /classify is served",
                    if outputs == Outputs::Classes { "texts" } else { "tokens" },
                );
                Err(ApiError::unsupported("model", &what))
            }
            Outputs::TokenEmbeddings => Ok(Self::LateInteraction),
            Outputs::Embedding if generates && !state.model.embeds => Ok(Self::Words),
            Outputs::Embedding => Ok(Self::Cosine),
            Outputs::Lexical => Ok(Self::DotProduct),
            // No model is there for these.
            Outputs::TokenWeights | Outputs::HiddenStates => {
                Err(ApiError::unsupported("model", "a score from a model that compares no texts"))
            }
        }
    }
}

/// What is asked beside the texts, checked.
#[derive(Debug)]
pub(crate) struct ScoringOptions {
    pub(crate) embedding: EmbeddingOptions,
    /// For the texts of pairs that are read together; names the fields of queries and documents.
    pub(crate) cutting: Cutting,
    /// Queries and documents are cut to so many tokens before.
    pub(crate) most_tokens: [Option<usize>; 2],
    pub(crate) instruction: Option<String>,
    /// Variables of the template of a model that answers by words.
    pub(crate) variables: Map<String, Value>,
    /// What texts are compared by; `None` is what the model is there for.
    pub(crate) task: Option<String>,
    pub(crate) names: &'static FieldNames,
    /// What the request was given to be answered in.
    pub(crate) arrival: Arrival,
}

/// Texts, and which of them are compared.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pub(crate) queries: Vec<String>,
    pub(crate) documents: Vec<String>,
    /// Indices of a query and a document.
    pub(crate) compared: Vec<[usize; 2]>,
}

/// The scores of pairs, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scores {
    pub(crate) scores: Vec<f32>,
    /// Tokens of all that was read.
    pub(crate) prompt_tokens: usize,
}

impl Pairs {
    /// One query beside every document.
    pub(crate) fn of_query(query: String, documents: Vec<String>) -> Self {
        let compared = (0..documents.len()).map(|document| [0, document]).collect();
        Self { queries: vec![query], documents, compared }
    }

    /// Each query beside the document at its place.
    pub(crate) fn side_by_side(queries: Vec<String>, documents: Vec<String>) -> Self {
        let compared = (0..documents.len()).map(|at| [at, at]).collect();
        Self { queries, documents, compared }
    }

    fn texts(&self) -> impl Iterator<Item = [&str; 2]> {
        self.compared.iter().map(|[q, d]| [&*self.queries[*q], &*self.documents[*d]])
    }
}

impl ScoringOptions {
    /// The scores. Dropping it aborts what still runs.
    pub(crate) async fn run(self, state: &AppState, pairs: Pairs) -> Result<Scores, ApiError> {
        let scoring = Scoring::of(state, self.task.as_deref())?;
        let pairs = self.cut(state, pairs).await?;
        let limits = state.engine.limits();
        let as_it_is = |_: &[u32], vector: Vec<f32>| vector;
        match scoring {
            Scoring::Together => self.together(state, pairs).await,
            Scoring::Words => self.by_words(state, pairs).await,
            Scoring::Cosine => {
                let compare = |a: &Vec<f32>, b: &Vec<f32>| cosine(a, b);
                self.apart(state, pairs, None, as_it_is, compare).await
            }
            Scoring::DotProduct => {
                let compare = |a: &Vec<f32>, b: &Vec<f32>| narrow(dot(a, b));
                self.apart(state, pairs, None, as_it_is, compare).await
            }
            Scoring::LateInteraction if state.embedding_prompts.sides().is_some() => {
                self.by_sides(state, pairs).await
            }
            Scoring::LateInteraction => {
                let outputs = Outputs::TokenEmbeddings;
                let further = limits.further_size(outputs);
                let size = further.unwrap_or(limits.embedding_size);
                let empty = further.map(|_| EmptyTokens::of(&state.tokenizer));
                let read = |ids: &[u32], vectors: Vec<f32>| match &empty {
                    Some(empty) => empty.without(outputs, ids, &vectors),
                    None => vectors,
                };
                let compare = |a: &Vec<f32>, b: &Vec<f32>| most_similar(a, b, size);
                self.apart(state, pairs, Some(outputs), read, compare).await
            }
            Scoring::CommonTokens => {
                let empty = EmptyTokens::of(&state.tokenizer);
                let read = |ids: &[u32], weights: Vec<f32>| empty.by_id(ids, &weights);
                let outputs = Some(Outputs::TokenWeights);
                self.apart(state, pairs, outputs, read, |a, b| narrow(common(a, b))).await
            }
        }
    }

    /// The texts, with no more tokens than are asked for.
    async fn cut(&self, state: &AppState, mut pairs: Pairs) -> Result<Pairs, ApiError> {
        let bounds = self.most_tokens;
        if bounds == [None; 2] {
            return Ok(pairs);
        }
        let (tokenizer, cutting) = (Arc::clone(&state.tokenizer), self.cutting);
        off_thread(move || {
            for (texts, most) in [&mut pairs.queries, &mut pairs.documents].into_iter().zip(bounds)
            {
                let Some(most) = most else { continue };
                for text in texts {
                    let ids = tokenizer.encode(text, false);
                    let ids = ids.map_err(|error| cutting.refusal(error, cutting.field))?;
                    if ids.len() > most {
                        *text = tokenizer.decode(&ids[..most], false);
                    }
                }
            }
            Ok(pairs)
        })
        .await
    }

    async fn together(&self, state: &AppState, pairs: Pairs) -> Result<Scores, ApiError> {
        let permit = state.admit(pairs.compared.len())?;
        let (tokenizer, cutting) = (Arc::clone(&state.tokenizer), self.cutting);
        let encoded: Vec<EncodedPair> = off_thread(move || {
            let most = cutting.truncate.map(|most| (most, cutting.side));
            let encoded = pairs.texts().map(|texts| {
                let pair = tokenizer.encode_pair(texts, most);
                let pair = pair.map_err(|error| cutting.refusal(error, cutting.field))?;
                cutting.check(&pair.ids, cutting.field)?;
                Ok(pair)
            });
            encoded.collect::<Result<_, ApiError>>()
        })
        .await?;
        let prompt_tokens = encoded.iter().map(|pair| pair.ids.len()).sum();
        let scores = self.embedding.run_pairs(state, permit, encoded).await?;
        Ok(Scores { scores: scores.into_iter().flatten().collect(), prompt_tokens })
    }

    /// The model's `outputs` of queries and documents, each made by `read` of a text's tokens and its
    /// vectors into what `compare` compares.
    async fn apart<T>(
        &self,
        state: &AppState,
        pairs: Pairs,
        outputs: Option<Outputs>,
        read: impl Fn(&[u32], Vec<f32>) -> T,
        compare: impl Fn(&T, &T) -> f32,
    ) -> Result<Scores, ApiError> {
        let Pairs { queries, documents, compared } = pairs;
        let count = queries.len();
        let permit = state.admit(count + documents.len())?;
        let texts = queries.into_iter().chain(documents).map(Input::Text).collect();
        let texts = tokenize(state, texts, self.cutting).await?;
        let prompt_tokens = texts.iter().map(Vec::len).sum();
        let wanted = Wanted { outputs, ..self.embedding.wanted };
        let embedding = EmbeddingOptions { wanted, ..self.embedding.clone() };
        let vectors = embedding.run(state, permit, texts.clone()).await?;
        let read = vectors.into_iter().zip(&texts).map(|(vector, ids)| read(ids, vector));
        let made: Vec<T> = read.collect();
        let score = |[query, document]: [usize; 2]| compare(&made[query], &made[count + document]);
        Ok(Scores { scores: compared.into_iter().map(score).collect(), prompt_tokens })
    }

    /// Late interaction of a model that reads queries and documents each in its own way.
    async fn by_sides(&self, state: &AppState, pairs: Pairs) -> Result<Scores, ApiError> {
        let Some(own) = state.embedding_prompts.sides() else {
            return Err(ApiError::Internal("the model has no sides".to_owned()));
        };
        let Pairs { queries, documents, compared } = pairs;
        let count = queries.len();
        let permit = state.admit(count + documents.len())?;
        let sides = [(Side::Query, queries), (Side::Document, documents)];
        let texts = sides
            .into_iter()
            .flat_map(|(side, texts)| texts.into_iter().map(move |text| (side, Input::Text(text))));
        let texts = late_interaction::tokenize(state, own, texts.collect(), self.cutting).await?;
        let prompt_tokens = texts.iter().map(|text| text.ids.len()).sum();
        let outputs = Some(Outputs::TokenEmbeddings);
        let wanted = Wanted { outputs, ..self.embedding.wanted };
        let embedding = EmbeddingOptions { wanted, ..self.embedding.clone() };
        let vectors = embedding.run_sided(state, permit, texts.clone()).await?;
        let side = |at: usize| if at < count { Side::Query } else { Side::Document };
        let read = vectors.into_iter().zip(&texts).enumerate();
        let read = read.map(|(at, (vectors, text))| own.counted(side(at), &text.ids, vectors));
        let made: Vec<Vec<f32>> = read.collect();
        let width = state.engine.limits().embedding_size;
        let score = |[query, document]: [usize; 2]| {
            most_similar(&made[query], &made[count + document], width)
        };
        Ok(Scores { scores: compared.into_iter().map(score).collect(), prompt_tokens })
    }

    async fn by_words(self, state: &AppState, pairs: Pairs) -> Result<Scores, ApiError> {
        if self.cutting.truncate.is_some() {
            let what = "cutting prompts of a model that answers by words; max_tokens_per_doc cuts \
                        documents";
            return Err(ApiError::unsupported(self.cutting.cut_by, what));
        }
        let Answers { tokens: labels, raw } = answers(state)?;
        let pair_roles = has_pair_roles(state);
        let permit = state.admit(pairs.compared.len())?;
        let asking: Vec<Conversation> =
            pairs.texts().map(|texts| self.asked(texts, pair_roles)).collect();
        let asking: Vec<_> = asking.into_iter().map(|one| prompt::rendered(state, one)).collect();
        let prompts = futures::stream::iter(asking).buffered(RENDERED_AT_ONCE);
        let prompts: Vec<RenderedPrompt> = prompts.try_collect().await?;
        let prompts: Vec<Vec<u32>> = prompts.into_iter().map(|prompt| prompt.token_ids).collect();
        let prompt_tokens = prompts.iter().map(Vec::len).sum();
        let (names, arrival) = (self.names, self.arrival);
        let EmbeddingOptions { adapter, priority, cache_salt, wanted, deadline, .. } =
            self.embedding;
        let common = CommonFields {
            priority: Some(Int(priority.into())),
            cache_salt,
            deadline_ms: deadline
                .map(|after| Int(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))),
            ..CommonFields::default()
        };
        let options = LabelOptions { common, names, adapter, arrival };
        let tokens = vec![&labels[..]; prompts.len()];
        let LabelReading { probabilities, .. } =
            options.read(state, permit, &prompts, &tokens).await?;
        let activated = wanted.activation.unwrap_or(!raw);
        let score = |one: &LabelProbabilities| {
            let [yes, no] = [one.probabilities[0], one.probabilities[1]];
            // The difference of logits is what a sigmoid would be taken of.
            if activated { yes } else { yes.ln() - no.ln() }
        };
        let scores = probabilities.iter().map(|one| narrow(score(one)));
        Ok(Scores { scores: scores.collect(), prompt_tokens })
    }

    /// The question whether a document is what a query looks for.
    fn asked(&self, [query, document]: [&str; 2], pair_roles: bool) -> Conversation {
        let message = |role, text: String| {
            let parts = vec![Part::Text(text)];
            Message { role, parts, name: None, answers: None }
        };
        let messages = if pair_roles {
            let system = self.instruction.clone().map(|text| message(Role::System, text));
            let of = |role: &str, text: &str| message(Role::named(role), text.to_owned());
            let pair = [of("query", query), of("document", document)];
            system.into_iter().chain(pair).collect()
        } else {
            let instruction = self.instruction.as_deref().unwrap_or(INSTRUCTION);
            let question =
                format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}");
            vec![message(Role::System, SYSTEM.to_owned()), message(Role::User, question)]
        };
        Conversation {
            messages,
            tools: Tools::default(),
            template: TemplateOptions {
                source: None,
                variables: self.variables.clone(),
                documents: None,
                effort: None,
                thinking: Some(false),
                // A template for pairs goes on to where the answer begins by itself.
                add_generation_prompt: !pair_roles,
                continue_final_message: false,
                add_special_tokens: false,
            },
            names: self.names,
        }
    }
}

/// Whether the model's template has words of its own around a query and a document.
fn has_pair_roles(state: &AppState) -> bool {
    let template = state.chat_template(false);
    let names = |role: &str| {
        let quoted = [format!("\"{role}\""), format!("'{role}'")];
        template
            .is_some_and(|template| quoted.iter().any(|quoted| template.source().contains(quoted)))
    };
    names("query") && names("document")
}

/// The tokens of yes and no.
fn answers(state: &AppState) -> Result<Answers, ApiError> {
    if let Some(answers) = state.model.answers {
        return Ok(answers);
    }
    let known = |[yes, no]: [&str; 2]| {
        Some([state.tokenizer.token_id(yes)?, state.tokenizer.token_id(no)?])
    };
    let tokens = ANSWERS.into_iter().find_map(known);
    tokens
        .map(|tokens| Answers { tokens, raw: false })
        .ok_or_else(|| ApiError::unsupported("model", "a vocabulary without words for yes and no"))
}

/// The places of scores, the highest first; of equal ones in their order.
pub(crate) fn best_first(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// The cosine of the angle between two vectors; 0 where one has no length.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    narrow(if lengths > 0.0 { dot(a, b) / lengths } else { 0.0 })
}

/// The sum over vectors of the query of the largest product with one of the document's; each has
/// `size` numbers.
fn most_similar(query: &[f32], document: &[f32], size: usize) -> f32 {
    let best = |own: &[f32]| {
        let products = document.chunks_exact(size.max(1)).map(|other| dot(own, other));
        products.fold(f64::NEG_INFINITY, f64::max)
    };
    narrow(query.chunks_exact(size.max(1)).map(best).sum())
}

#[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_compared_by_angle_or_token_by_token() {
        let near = |score: f32, expected: f32| assert!((score - expected).abs() < 1e-6, "{score}");
        near(cosine(&[3.0, 0.0], &[2.0, 0.0]), 1.0);
        near(cosine(&[0.0, 0.0], &[2.0, 0.0]), 0.0);
        let (query, document) = ([1.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.2, 0.3, 0.0, -1.0]);
        near(most_similar(&query, &document, 2), 0.5 + 0.3);
    }

    #[test]
    fn equal_scores_keep_their_order() {
        assert_eq!(best_first(&[0.1, 0.5, 0.1, 0.9]), [3, 1, 0, 2]);
    }
}

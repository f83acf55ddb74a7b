//! Texts to scores, classes and vectors of any kind: reranking in the shapes of vLLM, Jina and Cohere,
//! and vLLM's scores, classes and pooling.
//!
//! ```text
//! rerank, score     pairs of texts, compared however the model can (generate::scoring)
//! classify, pooling texts, as the model's head gives them
//! options           what all of them may say beside their texts
//! ```

mod classify;
mod input;
mod options;
mod pooling;
mod rerank;
mod score;

pub(crate) use classify::classify;
pub(crate) use pooling::pooling;
pub(crate) use rerank::{rerank, rerank_documents};
pub(crate) use score::score;

//! From a folder of a model of late interaction to the head that makes a vector of each token.
//!
//! Khattab and Zaharia, "ColBERT", 2020. PyLate's folders have the projection as a module `Dense`, those of
//! sentence-transformers' `MultiVectorEncoder` name what follows it too, and those of the authors' own
//! library have `linear.weight` among the network's tensors.

use candle_core::{DType, Device};

use super::error::StartupError;
use super::head::{check_dense, read_dense, refusal};
use crate::config::Pooling;
use crate::pooling::{Activation, Dense, DenseActivation, HeadLayer, Outputs, PoolingHead};
use crate::weights::WeightError;
use crate::weights::sentence_modules::SentenceModules;
use crate::weights::source::ModelSource;

/// The projection in the folders of ColBERT's own library.
const PROJECTION: &str = "linear.weight";
/// What the module reads and writes.
const TOKENS: &str = "token_embeddings";

/// Whether a folder is of such a model.
pub(super) fn is_late(source: &ModelSource) -> bool {
    let by_modules = source.sentence_modules.as_ref().map(SentenceModules::are_of_tokens);
    by_modules.unwrap_or_else(|| source.is_colbert())
}

/// The head, for hidden states of `hidden_size` elements.
pub(super) fn read(source: &ModelSource, hidden_size: usize) -> Result<PoolingHead, StartupError> {
    let (layers, active) = match &source.sentence_modules {
        Some(modules) => of_modules(modules, hidden_size)?,
        None => (vec![HeadLayer::Dense(projection(source, hidden_size)?)], true),
    };
    // Nothing is pooled, and a request may have vectors as the projection gives them.
    let head = PoolingHead::new(Pooling::Mean, active);
    let activation = Activation::Normalize;
    Ok(PoolingHead { outputs: Outputs::TokenEmbeddings, layers: layers.into(), activation, ..head })
}

/// Linear layers in their order, and whether vectors are scaled to length 1 at the end.
fn of_modules(
    modules: &SentenceModules,
    hidden_size: usize,
) -> Result<(Vec<HeadLayer>, bool), StartupError> {
    let mut layers = Vec::new();
    let mut size = hidden_size;
    // PyLate does it always, and names no module for it.
    let mut active = modules.are_of_pylate();
    for (at, module) in modules.modules.iter().enumerate() {
        match module.class() {
            Some("Transformer") if at == 0 && module.path.is_empty() => {}
            Some("Dense") if at > 0 => {
                // PyLate's reads tokens without saying so.
                check_dense(module, TOKENS)?;
                let plain = module.kind.starts_with("pylate.");
                let dense = read_dense(module, size, plain)?;
                size = dense.weight.len();
                layers.push(HeadLayer::Dense(dense));
            }
            Some("MultiVectorMask") if at > 0 => {
                let kept = module.config.written("keep_only_token_ids");
                if kept.is_some_and(|ids| ids != "[]") {
                    return Err(refusal(module, "keep_only_token_ids is not supported"));
                }
            }
            Some("Normalize") if at > 0 => active = true,
            Some("Dropout") => {}
            _ => {
                let reason = "is not supported where each token has a vector; supported are \
                              Transformer, Dense, MultiVectorMask, Normalize and Dropout";
                return Err(refusal(module, reason));
            }
        }
    }
    Ok((layers, active))
}

/// The projection among the network's own tensors.
fn projection(source: &ModelSource, hidden_size: usize) -> Result<Dense, StartupError> {
    let failed = |error: WeightError| StartupError::Model(error.into());
    let outlines = source.outlines().map_err(failed)?;
    let found = outlines.iter().find(|tensor| tensor.name == PROJECTION);
    let outputs = found.and_then(|tensor| tensor.dims.first()).copied().unwrap_or(hidden_size);
    let weights = source.weights(&Device::Cpu);
    let weight = weights.dense(PROJECTION, &[outputs, hidden_size], DType::F32).map_err(failed)?;
    Ok(Dense { weight: weight.to_vec2()?, bias: Vec::new(), activation: DenseActivation::Identity })
}

//! From a checkpoint's classifier to the head that makes scores of classes.
//!
//! Whether scores are probabilities is said by sentence-transformers' settings in `config.json`, else
//! by the number of classes: one is scored by a sigmoid, several by a softmax, and those that don't
//! exclude each other by sigmoids. Reference: `CrossEncoder` of sentence-transformers and
//! `ForSequenceClassification` of transformers.

use candle_core::DType;

use super::error::StartupError;
use crate::config::Pooling;
use crate::models::classifier::{
    ClassifiedBy, ClassifierActivation, ClassifierLayer, ClassifierSpec, PREFIXES,
};
use crate::pooling::{
    Activation, Dense, DenseActivation, HeadLayer, LayerNorm, Outputs, PoolingHead,
};
use crate::weights::Weights;
use crate::weights::source::ModelSource;

/// Epsilon of the norms of classifiers.
const EPS: f64 = 1e-5;

/// The head that `spec` describes, for hidden states of `hidden_size` elements, of a model with these
/// files. `chosen` replaces the pooling.
pub(super) fn read(
    spec: &ClassifierSpec,
    source: &ModelSource,
    weights: &Weights,
    hidden_size: usize,
    chosen: Option<Pooling>,
) -> Result<PoolingHead, StartupError> {
    let layers = spec.layers.iter().map(|layer| read_layer(*layer, spec, weights, hidden_size));
    let layers: Vec<HeadLayer> = layers.collect::<Result<_, _>>()?;
    let pooling = match spec.from {
        ClassifiedBy::First => Pooling::Cls,
        ClassifiedBy::Last => Pooling::Last,
        ClassifiedBy::Mean => Pooling::Mean,
    };
    Ok(PoolingHead {
        outputs: if spec.each_token { Outputs::TokenClasses } else { Outputs::Classes },
        pooling: chosen.unwrap_or(pooling),
        layers: layers.into(),
        activation: activation(source, spec)?,
        active: true,
        cut: None,
        further: [].into(),
    })
}

/// What becomes of logits, unless a request wants them as they are.
fn activation(source: &ModelSource, spec: &ClassifierSpec) -> Result<Activation, StartupError> {
    const NAME: &str = "activation_fn";
    let config = &source.config;
    let newest = source.sentence_modules.as_ref().and_then(|modules| modules.config.text(NAME));
    // Before version 6 it stood in an object of `config.json`, before version 4 among its fields.
    let newer = || config.get("sentence_transformers")?.get(NAME)?.as_str();
    let old = || config.get("sbert_ce_default_activation_function")?.as_str();
    if let Some(name) = newest.or_else(newer).or_else(old) {
        return match name.rsplit('.').next().unwrap_or_default() {
            "Identity" => Ok(Activation::Identity),
            "Sigmoid" => Ok(Activation::Sigmoid),
            "Softmax" => Ok(Activation::Softmax),
            _ => Err(StartupError::Module {
                module: format!("the activation_fn {name:?}"),
                reason: "is not supported; supported are Identity, Sigmoid and Softmax".to_owned(),
            }),
        };
    }
    let one = spec.labels.len() == 1 && !spec.each_token;
    Ok(if one || spec.independent { Activation::Sigmoid } else { Activation::Softmax })
}

fn read_layer(
    layer: ClassifierLayer,
    spec: &ClassifierSpec,
    weights: &Weights,
    hidden_size: usize,
) -> Result<HeadLayer, StartupError> {
    let floats = |name: &str, shape: &[usize]| {
        weights.dense(name, shape, DType::F32).map_err(|error| StartupError::Model(error.into()))
    };
    // The tensor's name, below the prefix under which the checkpoint has it.
    let named = |name: &str| {
        let names = PREFIXES.map(|prefix| format!("{prefix}{name}"));
        let stored = names.iter().find(|name| weights.contains(&format!("{name}.weight")));
        stored.unwrap_or(&names[0]).clone()
    };
    let bias = |name: &str, size: usize| {
        let name = format!("{name}.bias");
        let has_one = weights.contains(&name);
        let bias = has_one.then(|| Ok::<_, StartupError>(floats(&name, &[size])?.to_vec1()?));
        Ok::<Vec<f32>, StartupError>(bias.transpose()?.unwrap_or_default())
    };
    let dense = |name: &str, outputs: usize, activation: DenseActivation| {
        let name = named(name);
        let weight = floats(&format!("{name}.weight"), &[outputs, hidden_size])?.to_vec2()?;
        Ok(HeadLayer::Dense(Dense { weight, bias: bias(&name, outputs)?, activation }))
    };
    match layer {
        ClassifierLayer::Hidden(name, activation) => {
            let activation = match activation {
                ClassifierActivation::Tanh => DenseActivation::Tanh,
                ClassifierActivation::Relu => DenseActivation::Relu,
                ClassifierActivation::Gelu => DenseActivation::Gelu,
            };
            dense(name, hidden_size, activation)
        }
        ClassifierLayer::Classes(name) => dense(name, spec.labels.len(), DenseActivation::Identity),
        ClassifierLayer::Norm(name) => {
            let name = named(name);
            let weight = floats(&format!("{name}.weight"), &[hidden_size])?.to_vec1()?;
            let bias = bias(&name, hidden_size)?;
            Ok(HeadLayer::LayerNorm(LayerNorm { weight, bias, eps: EPS }))
        }
    }
}

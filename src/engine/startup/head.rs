//! From the modules of a sentence-transformers folder to the head that makes embeddings.
//!
//! `Pooling`, `Dense` and `Normalize` are understood, in the spelling of versions before and since
//! 6; anything else that would change a vector is an error that names the module.
//! Reference: <https://sbert.net/docs/package_reference/sentence_transformer/modules.html>.

use super::error::StartupError;
use crate::config::Pooling;
use crate::models;
use crate::models::bidirectional::runs_jinas_code;
use crate::pooling::{Dense, DenseActivation, HeadLayer, PoolingHead};
use crate::weights::sentence_modules::{SentenceModule, SentenceModules};
use crate::weights::source::ModelSource;

/// Names of ways of pooling: in `pooling_mode`, and as the end of `pooling_mode_...` in older
/// files.
const POOLINGS: [(&str, &str, Pooling); 6] = [
    ("cls", "cls_token", Pooling::Cls),
    ("max", "max_tokens", Pooling::Max),
    ("mean", "mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("weightedmean", "weightedmean_tokens", Pooling::WeightedMean),
    ("lasttoken", "lasttoken", Pooling::Last),
];

/// The head that the modules of `source` describe, for hidden states of `hidden_size` elements. `chosen`
/// replaces their pooling.
pub(super) fn read(
    source: &ModelSource,
    modules: &SentenceModules,
    chosen: Option<Pooling>,
    hidden_size: usize,
) -> Result<PoolingHead, StartupError> {
    check_prompts(modules)?;
    let mut pooling = None;
    let mut layers = Vec::new();
    let mut size = hidden_size;
    for (at, module) in modules.modules.iter().enumerate() {
        if at == 0 && is_jinas_network(source, module) {
            continue;
        }
        check_position(module, at, pooling.is_some())?;
        match module.class() {
            Some("Pooling") => pooling = Some(chosen.map_or_else(|| read_pooling(module), Ok)?),
            Some("Normalize") => layers.push(HeadLayer::Normalize),
            Some("Dense") => {
                check_dense(module, "sentence_embedding")?;
                let dense = read_dense(module, size, false)?;
                size = dense.weight.len();
                layers.push(HeadLayer::Dense(dense));
            }
            // The network itself, and dropout, which does nothing once a model is trained.
            _ => {}
        }
    }
    // A request can turn normalization on and off where it comes last.
    let active = layers.pop_if(|layer| *layer == HeadLayer::Normalize).is_some();
    let pooling =
        pooling.ok_or_else(|| refusal_of_file("modules.json", "there is no Pooling in it"))?;
    let cut = truncate_dim(modules)?;
    let head = PoolingHead::new(pooling, active);
    Ok(PoolingHead { layers: layers.into(), cut, ..head })
}

/// The head of a model whose own code pools, if it is one.
pub(super) fn of_own_code(source: &ModelSource, chosen: Option<Pooling>) -> Option<PoolingHead> {
    let pooling = chosen.unwrap_or(Pooling::Last);
    models::pools_by_last(&source.config).then(|| PoolingHead::new(pooling, true))
}

/// Whether the modules compare the logits of two words instead of pooling hidden states.
pub(super) fn scores_by_words(modules: &SentenceModules) -> Result<bool, StartupError> {
    let Some(module) = modules.module("LogitScore") else { return Ok(false) };
    let has = |name: &str| module.config.size(name).is_some();
    if has("true_token_id") && has("false_token_id") {
        return Ok(true);
    }
    Err(refusal(module, "needs true_token_id and false_token_id, two tokens to compare"))
}

/// Whether a module is the network of Jina's own code, which chooses a task's adapter besides.
fn is_jinas_network(source: &ModelSource, module: &SentenceModule) -> bool {
    module.kind == "custom_st.Transformer" && runs_jinas_code(&source.config)
}

/// Refuses unknown modules, and known ones at positions where they mean something else.
fn check_position(module: &SentenceModule, at: usize, pooled: bool) -> Result<(), StartupError> {
    match (module.class(), at, pooled) {
        (Some("Transformer"), 0, _) if module.path.is_empty() => Ok(()),
        (Some("Transformer"), ..) => {
            Err(refusal(module, "must be the first one, in the model's own folder"))
        }
        (Some("Pooling"), 0, _) => Err(refusal(module, "has no Transformer before it")),
        (Some("Pooling"), _, true) => Err(refusal(module, "is the second one that pools")),
        (Some("Pooling" | "Dropout"), ..) | (Some("Dense" | "Normalize"), _, true) => Ok(()),
        (Some("Dense" | "Normalize"), ..) => Err(refusal(module, "has no Pooling before it")),
        _ => {
            let reason = "is not supported; supported are Transformer, Pooling, Dense, Dropout and \
                          Normalize of sentence_transformers";
            Err(refusal(module, reason))
        }
    }
}

/// How many logarithms the modules take of how much tokens of the vocabulary are expected (SPLADE), if
/// they do. What is not supported of it is an error.
pub(super) fn splade_logarithms(modules: &SentenceModules) -> Result<Option<usize>, StartupError> {
    let Some(module) = modules.module("SpladePooling") else { return Ok(None) };
    let unsupported = |name: &str, value: &str, known: &str| {
        Err(refusal(module, &format!("{name} is {value:?}, supported is {known}")))
    };
    match module.config.text("pooling_strategy") {
        None | Some("max") => {}
        Some(other) => return unsupported("pooling_strategy", other, "max"),
    }
    let logarithms = match module.config.text("activation_function") {
        None | Some("relu") => 1,
        Some("log1p_relu") => 2,
        Some(other) => return unsupported("activation_function", other, "relu or log1p_relu"),
    };
    let other = modules.modules.iter().find(|module| {
        !matches!(module.class(), Some("MLMTransformer" | "Transformer" | "SpladePooling"))
    });
    match other {
        Some(other) => Err(refusal(other, "is not supported beside SpladePooling")),
        None => Ok(Some(logarithms)),
    }
}

/// The refusal to pool what a model doesn't say.
pub(super) fn no_masked_words() -> StartupError {
    StartupError::Setting {
        setting: "--pooling",
        reason: "splade needs an encoder with a head for masked words (ForMaskedLM of BERT, \
                 DistilBERT, RoBERTa, MPNet and their kin)"
            .to_owned(),
    }
}

/// Most tokens of a text, where the folder names it.
pub(super) fn max_seq_length(modules: &SentenceModules) -> Option<usize> {
    modules.text_config.size("max_seq_length")
}

/// Refuses to pool without the tokens of prompts, the texts that are put before texts.
fn check_prompts(modules: &SentenceModules) -> Result<(), StartupError> {
    let has_prompt = modules.config.texts("prompts").iter().any(|prompt| !prompt.is_empty());
    let leaves_out = |module: &&SentenceModule| module.config.flag("include_prompt") == Some(false);
    match modules.modules.iter().find(leaves_out) {
        Some(module) if has_prompt => {
            let reason = "include_prompt is false, which is not supported for a model with prompts";
            Err(refusal(module, reason))
        }
        _ => Ok(()),
    }
}

/// How many of the first elements of every embedding are kept.
fn truncate_dim(modules: &SentenceModules) -> Result<Option<usize>, StartupError> {
    const NAME: &str = "truncate_dim";
    let Some(written) = modules.config.written(NAME) else { return Ok(None) };
    let Some(size @ 1..) = modules.config.size(NAME) else {
        let reason = format!("{NAME} is {written}, must be at least 1");
        return Err(refusal_of_file("config_sentence_transformers.json", &reason));
    };
    Ok(Some(size))
}

fn read_pooling(module: &SentenceModule) -> Result<Pooling, StartupError> {
    let config = &module.config;
    if config.json().is_none() {
        return Err(refusal(module, "has no config.json"));
    }
    let mut modes = config.texts("pooling_mode");
    if modes.is_empty() {
        let on = |old: &str| config.flag(&format!("pooling_mode_{old}")) == Some(true);
        modes.extend(POOLINGS.iter().filter(|(_, old, _)| on(old)).map(|(mode, _, _)| *mode));
    }
    if modes.is_empty() {
        // The library's default.
        modes.push("mean");
    }
    let [mode] = modes[..] else {
        let reason = format!("pools in {} ways ({}), expected one", modes.len(), modes.join(", "));
        return Err(refusal(module, &reason));
    };
    let known = POOLINGS.iter().find(|(known, _, _)| *known == mode);
    known.map(|(_, _, pooling)| *pooling).ok_or_else(|| {
        let known = POOLINGS.map(|(mode, _, _)| mode).join(", ");
        let reason = format!("pools by {mode:?}, which is not supported; supported are {known}");
        refusal(module, &reason)
    })
}

/// The linear layer of a module for vectors of `input_size` elements. Without a name of its activation it
/// has none (`plain`), or the hyperbolic tangent.
pub(super) fn read_dense(
    module: &SentenceModule,
    input_size: usize,
    plain: bool,
) -> Result<Dense, StartupError> {
    let size = |name: &str| {
        let size = module.config.size(name);
        size.ok_or_else(|| refusal(module, &format!("config.json has no size {name}")))
    };
    let (inputs, outputs) = (size("in_features")?, size("out_features")?);
    if inputs != input_size {
        let reason = format!("in_features is {inputs}, what comes before gives {input_size}");
        return Err(refusal(module, &reason));
    }
    let Some(weights) = module.weights() else {
        let reason = "has no model.safetensors; pickled weights can run code and are not read";
        return Err(refusal(module, reason));
    };
    let failed = |error: &dyn std::error::Error| refusal(module, &error.to_string());
    let read = |name: &str, shape: &[usize]| {
        let tensor = weights.dense(name, shape, candle_core::DType::F32);
        tensor.map_err(|error| failed(&error))
    };
    let weight = read("linear.weight", &[outputs, inputs])?;
    let bias = match module.config.flag("bias") {
        Some(false) => Vec::new(),
        _ => read("linear.bias", &[outputs])?.to_vec1().map_err(|error| failed(&error))?,
    };
    Ok(Dense {
        weight: weight.to_vec2().map_err(|error| failed(&error))?,
        bias,
        activation: activation(module, if plain { "Identity" } else { "Tanh" })?,
    })
}

/// Refuses settings beyond a linear layer from and to `features`, which need not be named.
pub(super) fn check_dense(module: &SentenceModule, features: &str) -> Result<(), StartupError> {
    if module.config.flag("use_residual") == Some(true) {
        return Err(refusal(module, "use_residual is true, which is not supported"));
    }
    for name in ["module_input_name", "module_output_name"] {
        if let Some(other) = module.config.text(name)
            && other != features
        {
            let reason = format!("{name} is {other:?}, only {features:?} is supported");
            return Err(refusal(module, &reason));
        }
    }
    Ok(())
}

fn activation(module: &SentenceModule, default: &str) -> Result<DenseActivation, StartupError> {
    let name = module.config.text("activation_function");
    match name.unwrap_or(default).rsplit('.').next().unwrap_or_default() {
        "Identity" => Ok(DenseActivation::Identity),
        "Tanh" => Ok(DenseActivation::Tanh),
        "ReLU" => Ok(DenseActivation::Relu),
        other => {
            let reason = format!(
                "activation_function {other:?} is not supported; supported are Identity, Tanh \
                 and ReLU"
            );
            Err(refusal(module, &reason))
        }
    }
}

fn refusal_of_file(file: &str, reason: &str) -> StartupError {
    StartupError::Module { module: file.to_owned(), reason: reason.to_owned() }
}

pub(super) fn refusal(module: &SentenceModule, reason: &str) -> StartupError {
    let name = format!("the module {} in {:?} (modules.json)", module.kind, module.path);
    StartupError::Module { module: name, reason: reason.to_owned() }
}

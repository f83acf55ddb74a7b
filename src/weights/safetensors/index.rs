//! Which safetensors files make up a checkpoint, and why a folder holds none.
//!
//! The order is the one of the Hugging Face loaders: `model.safetensors`, then the index of
//! shards, then whatever single `.safetensors` file there is.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::WeightError;
use crate::folder::{ModelFolder, json_kind};
use crate::model_ref::has_gguf_ending;
use crate::token_heads;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PICKLE_ENDINGS: [&str; 4] = [".bin", ".pt", ".pth", ".ckpt"];
/// Pickles that a training run leaves beside the weights.
const NOT_WEIGHTS: [&str; 4] = ["training_args", "optimizer", "scheduler", "rng_state"];

/// The files of a checkpoint.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Names of the files that hold the tensors, each once.
    pub(crate) files: Vec<String>,
    /// Tensor to file, as the index says; empty without an index.
    weight_map: BTreeMap<String, String>,
}

/// Which files to open in `folder`.
pub(crate) fn plan(folder: &ModelFolder) -> Result<Plan, WeightError> {
    let names = folder.names()?;
    if names.iter().any(|name| name == SINGLE) {
        return Ok(Plan { files: vec![SINGLE.to_owned()], weight_map: BTreeMap::new() });
    }
    if let Some(index) = folder.json_object(INDEX)? {
        return from_index(folder, &index);
    }
    let mut files: Vec<_> =
        names.iter().filter(|name| name.ends_with(".safetensors")).cloned().collect();
    // The original release format beside another one holds the same weights under other names.
    if files.len() > 1 {
        files.retain(|name| !name.starts_with("consolidated"));
    }
    match files.len() {
        1 if files[0].starts_with("adapter_model") => Err(incomplete(
            folder,
            "this is an adapter, not a whole model; merge it into its base model, or give the \
             base model's folder",
        )),
        1 => Ok(Plan { files, weight_map: BTreeMap::new() }),
        0 => Err(no_weights(folder, &names)),
        _ => Err(incomplete(
            folder,
            &format!("{} .safetensors files but no {INDEX}: {}", files.len(), files.join(", ")),
        )),
    }
}

/// The shards that the index of `folder` names.
pub(crate) fn shard_names(folder: &ModelFolder) -> Result<Vec<String>, WeightError> {
    match folder.json_object(INDEX)? {
        Some(index) => from_index(folder, &index).map(|plan| plan.files),
        None => Err(incomplete(folder, &format!("{INDEX} is missing"))),
    }
}

impl Plan {
    /// The error for a shard that the index names and the folder lacks.
    pub(crate) fn missing_shard(&self, folder: &ModelFolder, name: &str) -> WeightError {
        let held = self.weight_map.values().filter(|file| *file == name).count();
        incomplete(
            folder,
            &format!(
                "{name} is missing; {INDEX} expects {held} tensors in it. Download the model again"
            ),
        )
    }

    /// Checks that every tensor is in the shard that the index names; `shard_of` gives the
    /// position in [`Plan::files`] of the file that a tensor was found in.
    pub(crate) fn check(
        &self,
        folder: &ModelFolder,
        shard_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), WeightError> {
        for (tensor, file) in &self.weight_map {
            let found = shard_of(tensor).map(|index| self.files[index].as_str());
            if found != Some(file) {
                let found = found.map_or("in no shard".to_owned(), |found| format!("in {found}"));
                let reason = format!("tensor `{tensor}` should be in {file}, but is {found}");
                return Err(WeightError::corrupt(&folder.path(INDEX), reason));
            }
        }
        Ok(())
    }
}

fn from_index(folder: &ModelFolder, index: &Value) -> Result<Plan, WeightError> {
    let corrupt = |reason: String| WeightError::corrupt(&folder.path(INDEX), reason);
    let Some(entries) = index["weight_map"].as_object() else {
        let found = json_kind(&index["weight_map"]);
        return Err(corrupt(format!("`weight_map` is {found}, expected an object")));
    };
    let mut weight_map = BTreeMap::new();
    for (tensor, file) in entries {
        let Some(file) = file.as_str() else {
            let found = json_kind(file);
            return Err(corrupt(format!("the file of `{tensor}` is {found}, expected a string")));
        };
        if !is_plain_name(file) {
            return Err(corrupt(format!(
                "the file of `{tensor}` is `{file}`, expected a .safetensors file name without \
                 folders"
            )));
        }
        weight_map.insert(tensor.clone(), file.to_owned());
    }
    let mut files: Vec<_> = weight_map.values().cloned().collect();
    files.sort_unstable();
    files.dedup();
    if files.is_empty() {
        return Err(corrupt("`weight_map` names no tensor".to_owned()));
    }
    Ok(Plan { files, weight_map })
}

/// An index must not lead outside its folder.
fn is_plain_name(name: &str) -> bool {
    name.ends_with(".safetensors") && !name.contains(['/', '\\', '\0']) && !name.starts_with('.')
}

fn no_weights(folder: &ModelFolder, names: &[String]) -> WeightError {
    let pickle = names.iter().find(|name| is_pickle(name));
    let gguf: Vec<_> = names.iter().filter(|name| has_gguf_ending(name)).cloned().collect();
    if let Some(pickle) = pickle {
        let folder_text = folder.root().display();
        return incomplete(
            folder,
            &format!(
                "only pickle weights ({pickle}), which can run code when read, and no \
                 safetensors. Convert once: python -c \"from transformers import \
                 AutoModelForCausalLM as M; M.from_pretrained('{folder_text}')\
                 .save_pretrained('{folder_text}-safetensors', safe_serialization=True)\", and \
                 copy the tokenizer files"
            ),
        );
    }
    if !gguf.is_empty() {
        let reason = format!("several GGUF files, give one of them: {}", gguf.join(", "));
        return incomplete(folder, &reason);
    }
    let found = if names.is_empty() { "the folder is empty".to_owned() } else { names.join(", ") };
    incomplete(folder, &format!("no weights: expected {SINGLE} or {INDEX} ({found})"))
}

fn is_pickle(name: &str) -> bool {
    PICKLE_ENDINGS.iter().any(|ending| name.ends_with(ending))
        && !NOT_WEIGHTS.iter().any(|start| name.starts_with(start))
        && !token_heads::FILES.contains(&name)
}

fn incomplete(folder: &ModelFolder, reason: &str) -> WeightError {
    WeightError::Incomplete { folder: folder.root().to_owned(), reason: reason.to_owned() }
}

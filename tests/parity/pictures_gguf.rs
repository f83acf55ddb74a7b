//! Models that see, from GGUF: a decoder's file and a projector's beside it say what the checkpoint says
//! that both were converted from.
//!
//! The fixtures are made by `tests/fixtures/make_gguf_pictures.py`.

use std::path::Path;

use sconce::config::EngineConfig;
use sconce::pictures::processor::Processor;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::projector::ProjectorChoice;
use sconce::weights::source::ModelSource;

use super::engine::{one, start};
use super::gguf_files::restored;
use super::media::{Senses as _, largest_distance};
use super::pictures::{Eyes, MODELS, cold, config, folder, processor, runs};

/// Writes a model's two files into `target`, if there are such.
pub(crate) fn write(model: &str, target: &Path) -> bool {
    let checkpoint = folder().join(model).join("model.safetensors");
    for (kind, name) in [("model", "tiny-bf16.gguf"), ("mmproj", "mmproj-tiny-bf16.gguf")] {
        let delta = folder().join(model).join(format!("{kind}.delta"));
        let Some(file) = restored(&delta, &checkpoint) else { return false };
        std::fs::write(target.join(name), file).unwrap();
    }
    true
}

fn open(folder: &Path, projector: &ProjectorChoice) -> Result<ModelSource, String> {
    let (model, options) = (ModelRef::Folder(folder.to_owned()), HubOptions::offline(folder));
    ModelSource::open_with(&model, &options, projector).map_err(|error| error.to_string())
}

#[test]
fn converted_models_see_what_the_checkpoints_see() {
    let mut count = 0;
    for model in MODELS {
        let files = tempfile::tempdir().unwrap();
        if !write(model, files.path()) {
            continue;
        }
        count += 1;
        let one_by_one = EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() };
        let ours = start(files.path().to_str().unwrap(), &one_by_one);
        let (theirs, eyes) = (cold(model), Eyes::of(model));
        for run in runs(model) {
            let asked = || eyes.asked(&run.parts, run.tokens.len());
            let (answer, _) = one(&ours, asked());
            assert_eq!(answer.0, run.tokens, "{model} {:?}", run.parts);
            let off = largest_distance(&answer, &run);
            assert!(off < 2e-4, "{model} {:?}: {off}", run.parts);
            // Gemma 3's projection is in f16 whatever the rest is in; the value heads of Qwen3.5, which is
            // MiniCPM-V's decoder too, have another order, and so have the sums over them.
            let same = !matches!(*model, "gemma3" | "minicpmv4_6" | "qwen3_5");
            assert!(!same || answer == one(&theirs, asked()).0, "{model} {:?}", run.parts);
        }
    }
    assert_eq!(count, 20);
}

#[test]
fn pictures_are_prepared_as_for_the_checkpoints() {
    for model in MODELS {
        let files = tempfile::tempdir().unwrap();
        if !write(model, files.path()) {
            continue;
        }
        let source = open(files.path(), &ProjectorChoice::Beside).unwrap();
        let own = Processor::from_json(&source.config, source.processor_config.as_ref());
        let own = own.unwrap().unwrap_or_else(|| panic!("{model}: no processor"));
        let (mut own, expected) = (own, processor(model));
        // What files don't say is that of the published models.
        if matches!(
            *model,
            "gemma4"
                | "gemma4_small"
                | "internvl"
                | "janus"
                | "lfm2_vl"
                | "lighton_ocr"
                | "llama4"
                | "minicpmv"
                | "minicpmv4_6"
                | "pixtral"
                | "smolvlm"
        ) {
            own.rule = expected.rule.clone();
        }
        assert_eq!(own, expected, "{model}");
    }
}

#[test]
fn a_projector_is_chosen_named_or_left_out() {
    let (files, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(write("qwen2_vl", files.path()) && write("gemma3", others.path()));
    let sees = |projector: &ProjectorChoice| {
        open(files.path(), projector).map(|source| source.config["vision_config"].is_object())
    };
    assert_eq!(sees(&ProjectorChoice::Beside), Ok(true));
    assert_eq!(sees(&ProjectorChoice::Absent), Ok(false));
    // One of another model is left out, or refused if it is named.
    let (own, other) =
        (files.path().join("mmproj-tiny-bf16.gguf"), others.path().join("mmproj-tiny-bf16.gguf"));
    assert_eq!(sees(&ProjectorChoice::At(own.clone())), Ok(true));
    let refused = sees(&ProjectorChoice::At(other.clone())).unwrap_err();
    assert!(refused.contains("`gemma3` doesn't belong to"), "{refused}");
    let decoder = others.path().join("tiny-bf16.gguf");
    let refused = sees(&ProjectorChoice::At(decoder)).unwrap_err();
    assert!(refused.contains("not `clip`"), "{refused}");
    std::fs::rename(other, files.path().join("mmproj-tiny-f16.gguf")).unwrap();
    assert_eq!(sees(&ProjectorChoice::Beside), Ok(true));
    std::fs::remove_file(own).unwrap();
    assert_eq!(sees(&ProjectorChoice::Beside), Ok(false));
    let checkpoint = folder().join("qwen2_vl");
    let refused = open(&checkpoint, &ProjectorChoice::At(checkpoint.join("x.gguf"))).unwrap_err();
    assert!(refused.contains("have their own tower"), "{refused}");
}

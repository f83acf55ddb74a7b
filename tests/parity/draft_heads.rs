//! The heads of checkpoints that draft, beside a reference that is made of transformers' layers.
//!
//! The fixtures are made by `tests/fixtures/make_mtp.py`: tensors that a parity checkpoint has besides; by
//! `tests/fixtures/make_mtp_gguf.py`: the same in GGUF files; by `tests/fixtures/make_eagle.py`: heads in
//! folders of their own; and by `tests/fixtures/make_dflash.py`: drafters of blocks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{Device, Tensor, safetensors};
use sconce::layers::forward::{
    BLOCK_SIZE, ForwardBatch, ForwardContext, KvFormat, KvLayer, PreviousHidden,
};
use sconce::models::config::HfConfig;
use sconce::models::{
    CausalLm, DrafterKind, ForwardOutput, ModelError, WithDraftHead, drafter_kind,
    load_with_draft_head,
};
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use sconce::weights::{MemoryTensors, Weights};
use serde::Deserialize;
use serde_json::{Value, json};

use super::driver::{Driver, greedy};
use super::reference::log_softmax;
use super::{device, folder, gguf_files, open, open_folder, prompt};

const NAMES: [&str; 9] = [
    "deepseek_v3",
    "ernie4_5_moe",
    "exaone_moe",
    "glm4_moe",
    "mimo_v2",
    "qwen2",
    "qwen3_5",
    "qwen3_next",
    "step3p7",
];

/// Those of them whose heads the converter of GGUF's own project keeps.
const GGUF: [&str; 6] = ["deepseek_v3", "glm4_moe", "mimo_v2", "qwen3_5", "qwen3_next", "step3p7"];

/// What the reference computed behind a prompt: log-probabilities of the token after the next one, and of
/// those behind it, as far as the head goes on by itself.
#[derive(Deserialize)]
struct Expected {
    length: u32,
    tokens: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
}

fn mtp(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mtp").join(name)
}

/// The tensors of a parity checkpoint, with those of its head or without.
pub(super) fn tensors(name: &str, with_head: bool) -> HashMap<String, Tensor> {
    let file = folder(name).join("model.safetensors");
    let mut tensors = safetensors::load(file, &Device::Cpu).unwrap();
    if with_head {
        let head = safetensors::load(mtp(name).join("mtp.safetensors"), &Device::Cpu).unwrap();
        tensors.extend(head);
    }
    tensors
}

/// A parity checkpoint in f32, with the tensors of its head or without.
fn load(name: &str, with_head: bool) -> WithDraftHead {
    let tensors = tensors(name, with_head);
    let mut config = open(name).config;
    // What the configuration says of the head.
    if let Ok(fields) = std::fs::read_to_string(mtp(name).join("fields.json")) {
        let fields: serde_json::Map<String, Value> = serde_json::from_str(&fields).unwrap();
        config["text_config"].as_object_mut().unwrap().extend(fields);
    }
    let config = HfConfig::from_value(&config).unwrap();
    let tensors = MemoryTensors::new(tensors);
    let weights =
        Weights::new(Arc::new(tensors), device().clone()).rounded_to(Some(GgmlDType::F32));
    load_with_draft_head(&config, &weights).unwrap()
}

/// Runs a head over rows from `first` on; logits and hidden states of the last.
fn run(
    head: &dyn CausalLm,
    kv: &[KvLayer],
    first: u32,
    tokens: &[u32],
    hidden: &[Vec<f32>],
) -> [Vec<f32>; 2] {
    // Blocks in descending order.
    let table: Vec<u32> = (0..4).rev().collect();
    let block_size = u32::try_from(BLOCK_SIZE).unwrap();
    let slot = |position: u32| {
        table[(position / block_size) as usize] * block_size + position % block_size
    };
    let count = u32::try_from(tokens.len()).unwrap();
    let end = first + count;
    let mut batch = ForwardBatch::default();
    batch.step.input_ids = tokens.to_vec();
    batch.step.positions = (first..end).collect();
    batch.step.slots = (first..end).map(slot).collect();
    batch.step.block_tables = vec![table.clone()];
    batch.step.cu_seqlens_q = vec![0, count];
    batch.step.context_lens = vec![end];
    batch.step.sequence_lens = vec![end];
    batch.step.state_slots = vec![0];
    batch.logits_rows = vec![count - 1];
    batch.hidden_rows = vec![count - 1];
    batch.previous_hidden = Some(PreviousHidden(Tensor::new(hidden.to_vec(), device()).unwrap()));
    let context = ForwardContext { device: device(), kv, states: &[], interruption: None };
    let ForwardOutput { logits, hidden, .. } = head.forward(&context, &batch).unwrap();
    [logits, hidden.unwrap()].map(|rows| rows.squeeze(0).unwrap().to_vec1().unwrap())
}

fn expected(folder: &Path) -> Expected {
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    serde_json::from_str(&expected).unwrap()
}

/// Holds a head to what the reference drafted, going on from the hidden states of all positions of the
/// prompt but the last.
fn assert_drafts(name: &str, head: &dyn CausalLm, expected: &Expected, hidden: &[Vec<f32>]) {
    let tokens = prompt(expected.length, u32::try_from(head.vocab_size()).unwrap());
    let zeros = |dims: [usize; 4]| KvFormat::F32.zeros(dims, device());
    let layer = |heads: &sconce::layers::forward::KvHeads| heads.layer(4, KvFormat::F32, zeros);
    let kv = head.kv_shape().layers.iter().map(layer).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(kv.len(), 1, "{name}");
    // In two parts, as chunks of a prompt are.
    let (tokens, half) = (&tokens[1..], 17);
    run(head, &kv, 0, &tokens[..half], &hidden[..half]);
    let mut told = run(head, &kv, 17, &tokens[half..], &hidden[half..]);
    let steps = expected.tokens.iter().zip(&expected.logprobs);
    for (position, (token, theirs)) in (expected.length - 1..).zip(steps) {
        let [logits, hidden] = told;
        let ours = log_softmax(&logits);
        assert_eq!(greedy(&ours), *token, "{name} at {position}");
        // A head may know fewer tokens than the model.
        let ours: Vec<f32> = ours.into_iter().filter(|logprob| logprob.is_finite()).collect();
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let off = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 2e-4, "{name} at {position}: {off}");
        told = run(head, &kv, position, &[*token], &[hidden]);
    }
}

/// Holds the head of a checkpoint to what the reference drafted.
fn assert_head(name: &str, loaded: WithDraftHead) {
    let expected = expected(&mtp(name));
    let WithDraftHead { model, head } = loaded;
    let (head, bytes) = head.unwrap_or_else(|| panic!("{name} has no head"));
    assert!(head.needs_hidden() && head.taps().is_empty() && bytes > 0);
    let tokens = prompt(expected.length, u32::try_from(model.vocab_size()).unwrap());
    let mut driver = Driver::new(model, KvFormat::F32, 8, Some(3));
    let seq = driver.add(&tokens);
    let mut hidden = driver.hidden(&[(seq, tokens.len())]).0.remove(0);
    // What the model has behind the last token is not known when the next one is drafted.
    hidden.pop();
    assert_drafts(name, &*head, &expected, &hidden);
}

#[test]
fn heads_draft_what_the_reference_drafts() {
    for name in NAMES {
        assert_head(name, load(name, true));
    }
}

/// A file that the converter wrote of a checkpoint with its head: all of it, or the head alone.
fn converted(name: &str, kind: &str) -> Vec<u8> {
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let parts = [folder(name).join("model.safetensors"), mtp(name).join("mtp.safetensors")];
    let delta = read(mtp(name).join(format!("{kind}.delta")));
    gguf_files::rebuilt(name, &delta, &parts.map(read).concat())
}

fn open_gguf(path: &Path) -> ModelSource {
    let options = HubOptions::offline(path.parent().unwrap());
    ModelSource::open(&ModelRef::GgufFile(path.to_owned()), &options).unwrap()
}

fn load_source(source: &ModelSource) -> WithDraftHead {
    let config = HfConfig::from_value(&source.config).unwrap();
    let weights = source.weights(device()).rounded_to(Some(GgmlDType::F32));
    load_with_draft_head(&config, &weights).unwrap()
}

#[test]
fn heads_in_gguf_draft_the_same_from_the_models_file_from_one_beside_and_from_one_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in GGUF {
        let [whole, alone, head] = ["whole", "alone", "apart"].map(|kind| {
            std::fs::create_dir_all(folder.path().join(name).join(kind)).unwrap();
            folder.path().join(name).join(kind).join(format!("{name}-BF16.gguf"))
        });
        std::fs::write(&whole, converted(name, "whole")).unwrap();
        assert_head(name, load_source(&open_gguf(&whole)));
        std::fs::write(&alone, gguf_files::converted(name).unwrap()).unwrap();
        std::fs::write(&head, converted(name, "head")).unwrap();
        let mut model = open_gguf(&alone);
        assert!(load_source(&model).head.is_none(), "{name}");
        let head = open_gguf(&head);
        assert!(head.is_draft_head && !model.is_draft_head);
        model.take_draft_head(&head).unwrap();
        assert_head(name, load_source(&model));
        let beside = alone.with_file_name(format!("mtp-{name}-F16.gguf"));
        std::fs::write(beside, converted(name, "head")).unwrap();
        assert_head(name, load_source(&open_gguf(&alone)));
        // A folder holds one model still.
        let options = HubOptions::offline(folder.path());
        let at = ModelRef::Folder(alone.parent().unwrap().to_owned());
        assert_head(name, load_source(&ModelSource::open(&at, &options).unwrap()));
    }
}

#[test]
fn heads_of_other_models_are_refused_by_name_and_left_beside() {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file);
    std::fs::write(at("glm.gguf"), gguf_files::converted("glm4_moe").unwrap()).unwrap();
    std::fs::write(at("mtp-glm.gguf"), converted("qwen3_5", "head")).unwrap();
    let mut model = open_gguf(&at("glm.gguf"));
    assert!(load_source(&model).head.is_none());
    let other = model.take_draft_head(&open_gguf(&at("mtp-glm.gguf"))).unwrap_err();
    assert!(other.contains("`architectures`") && other.contains("Qwen3_5ForCausalLM"), "{other}");
    let whole = open_gguf(&at("glm.gguf"));
    assert_eq!(model.take_draft_head(&whole).unwrap_err(), "it is a whole model");
}

fn eagle(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/eagle").join(name)
}

/// The model of an EAGLE-3 head, and the head with fields of its configuration changed.
fn load_eagle(
    name: &str,
    change: impl Fn(&mut Value),
) -> (Box<dyn CausalLm>, Result<Box<dyn CausalLm>, ModelError>) {
    let mut source = open_folder(&eagle(name));
    change(&mut source.config);
    assert_eq!(drafter_kind(&source.config).unwrap(), DrafterKind::Eagle);
    load_for(name, &source)
}

/// The model of a drafter, and the drafter that `source` has.
fn load_for(
    name: &str,
    source: &ModelSource,
) -> (Box<dyn CausalLm>, Result<Box<dyn CausalLm>, ModelError>) {
    let model = load(name, false).model;
    let weights = source.weights(device()).rounded_to(Some(GgmlDType::F32));
    let drafter = sconce::models::load_drafter(&source.config, &weights, &*model);
    (model, drafter)
}

/// Holds an EAGLE-3 head to what the reference drafted behind what these layers of its model had.
fn assert_eagle(name: &str, taps: &[usize], model: Box<dyn CausalLm>, head: &dyn CausalLm) {
    let expected = expected(&eagle(name));
    assert_eq!(head.taps(), taps, "{name}");
    let tokens = prompt(expected.length, u32::try_from(model.vocab_size()).unwrap());
    let mut driver = Driver::new(model, KvFormat::F32, 8, Some(3));
    let seq = driver.add(&tokens);
    let mut hidden = driver.tapped(seq, tokens.len(), head.taps());
    hidden.pop();
    assert_drafts(name, head, &expected, &hidden);
}

#[test]
fn eagle_heads_draft_what_the_reference_drafts() {
    for (name, taps) in [("llama4", &[1, 2, 3][..]), ("qwen3_5", &[1, 2]), ("gemma3", &[0, 1, 2])] {
        let (model, head) = load_eagle(name, |_| ());
        assert_eagle(name, taps, model, &*head.unwrap());
    }
}

/// The file that the converter wrote of a drafter.
fn drafter_file(kind: &str, name: &str) -> ModelSource {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let delta = fixtures.join(format!("{name}.delta"));
    let file = gguf_files::restored(&delta, &fixtures.join(name).join("model.safetensors"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drafter.gguf");
    std::fs::write(&path, file.unwrap()).unwrap();
    open_gguf(&path)
}

#[test]
fn drafters_in_gguf_draft_what_the_reference_drafts() {
    let source = drafter_file("eagle", "llama4");
    assert_eq!(drafter_kind(&source.config).unwrap(), DrafterKind::Eagle);
    let (model, head) = load_for("llama4", &source);
    assert_eagle("llama4", &[1, 2, 3], model, &*head.unwrap());
    for (name, taps) in [("qwen3_5", &[1, 2][..]), ("llama4-dspark", &[2])] {
        let source = drafter_file("dflash", name);
        let dependent = name.ends_with("-dspark");
        assert_eq!(drafter_kind(&source.config).unwrap(), DrafterKind::Block { dependent });
        let (model, drafter) = load_for(name.trim_end_matches("-dspark"), &source);
        assert_blocks(name, taps, model, &*drafter.unwrap());
    }
}

#[test]
fn eagle_heads_that_do_not_fit_are_refused() {
    let ids = "eagle_aux_hidden_state_layer_ids";
    for (field, value, reason) in [
        ("vocab_size", json!(161), "`vocab_size` is 161, the model's is 160"),
        ("target_hidden_size", json!(64), "the model's hidden states have 32 elements"),
        ("num_hidden_layers", json!(2), "must be 1 in an EAGLE-3 head"),
        ("draft_vocab_size", json!(999), "must be 1 to 160"),
        (ids, json!([1, 2, 4]), "must be two or more of the model's 4 layers"),
        (ids, Value::Null, "is needed for a model of 4 layers"),
        (ids, json!([1, 2]), "tensor `fc.weight`"),
        ("eagle_config", json!({"use_aux_hidden_state": false}), "`use_aux_hidden_state` is false"),
    ] {
        let (_, head) = load_eagle("llama4", |config| config[field] = value.clone());
        let error = head.err().unwrap().to_string();
        assert!(error.contains(reason), "{field}: {error}");
    }
    for (class, reason) in [
        ("DFlash2DraftModel", "the block drafter DFlash2 (DFlash2DraftModel)"),
        ("DFlashLagunaForCausalLM", "a block drafter DFlash of another shape"),
        ("Gemma4DSparkModel", "a block drafter DSpark of another shape"),
        ("EagleLlamaForCausalLM", "EAGLE of the first"),
        ("PeagleLlamaForCausalLM", "P-EAGLE"),
        ("MedusaModel", "Medusa"),
    ] {
        let error = drafter_kind(&json!({"architectures": [class]})).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// The model of a drafter of blocks, and the drafter with fields of its configuration changed.
fn load_block_drafter(
    name: &str,
    change: impl Fn(&mut Value),
) -> (Box<dyn CausalLm>, Result<Box<dyn CausalLm>, ModelError>) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dflash").join(name);
    let mut source = open_folder(&at);
    change(&mut source.config);
    let dependent = name.ends_with("-dspark");
    assert_eq!(drafter_kind(&source.config).unwrap(), DrafterKind::Block { dependent });
    load_for(name.trim_end_matches("-dspark"), &source)
}

/// Rows of one sequence in a batch, in blocks in descending order.
fn rows_of_one(first: usize, tokens: &[u32]) -> ForwardBatch {
    let table: Vec<u32> = (0..4).rev().collect();
    let slot = |at: usize| table[at / BLOCK_SIZE] * 32 + u32::try_from(at % BLOCK_SIZE).unwrap();
    let all = first..first + tokens.len();
    let [count, end] = [tokens.len(), all.end].map(|n| u32::try_from(n).unwrap());
    let mut batch = ForwardBatch::default();
    batch.step.input_ids = tokens.to_vec();
    batch.step.positions = (end - count..end).collect();
    batch.step.slots = all.map(slot).collect();
    batch.step.block_tables = vec![table.clone()];
    batch.step.cu_seqlens_q = vec![0, count];
    batch.step.context_lens = vec![end];
    batch.step.sequence_lens = vec![end];
    batch.step.state_slots = vec![0];
    batch
}

/// Holds a drafter of blocks to what the reference drafted behind what these layers of its model had.
fn assert_blocks(name: &str, taps: &[usize], model: Box<dyn CausalLm>, drafter: &dyn CausalLm) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dflash").join(name);
    let rounds = std::fs::read_to_string(at.join("expected.json")).unwrap();
    let rounds: Vec<Expected> = serde_json::from_str(&rounds).unwrap();
    let block = drafter.block().unwrap();
    assert_eq!((drafter.taps(), block.tokens), (taps, rounds[0].tokens.len()), "{name}");
    let longest = rounds.last().unwrap().length;
    let tokens = prompt(longest, u32::try_from(model.vocab_size()).unwrap());
    let mut driver = Driver::new(model, KvFormat::F32, 8, Some(3));
    let seq = driver.add(&tokens);
    let hidden = driver.tapped(seq, tokens.len(), drafter.taps());
    let zeros = |dims: [usize; 4]| KvFormat::F32.zeros(dims, device());
    let layer = |heads: &sconce::layers::forward::KvHeads| heads.layer(4, KvFormat::F32, zeros);
    let kv = drafter.kv_shape().layers.iter().map(layer).collect::<Result<Vec<_>, _>>();
    let kv = kv.unwrap();
    let context = ForwardContext { device: device(), kv: &kv, states: &[], interruption: None };
    let mut known = 0;
    for Expected { length, tokens: drafted, logprobs } in &rounds {
        let last = *length as usize - 1;
        // In two parts, over what the block before has left.
        for end in [known + (last - known) / 2, last] {
            let mut batch = rows_of_one(known, &tokens[known..end]);
            let new = Tensor::new(hidden[known..end].to_vec(), device()).unwrap();
            batch.previous_hidden = Some(PreviousHidden(new));
            drafter.forward(&context, &batch).unwrap();
            known = end;
        }
        let masks = vec![block.mask; block.tokens - usize::from(block.last_drafts)];
        let mut batch = rows_of_one(last, &[&[tokens[last]][..], &masks].concat());
        batch.logits_rows = (0..=u32::try_from(masks.len()).unwrap()).collect();
        let rows = drafter.forward(&context, &batch).unwrap().logits.to_vec2::<f32>().unwrap();
        let rows = &rows[usize::from(!block.last_drafts)..];
        for ((logits, token), theirs) in rows.iter().zip(drafted).zip(logprobs) {
            let ours = log_softmax(logits);
            assert_eq!(greedy(&ours), *token, "{name} behind {length}");
            let ours: Vec<f32> = ours.into_iter().filter(|x| x.is_finite()).collect();
            assert_eq!(ours.len(), theirs.len(), "{name}");
            let off = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-4, "{name} behind {length}: {off}");
        }
    }
}

/// Models, each with something that drafts for it in another way: a model, a head of its checkpoint, a head of
/// the inputs of its layers, drafters of blocks.
pub(super) fn of_each_kind() -> Vec<[Box<dyn CausalLm>; 2]> {
    let WithDraftHead { model, head } = load("glm4_moe", true);
    let mut all = vec![[model, head.unwrap().0]];
    let own = |name| super::load(name);
    all.push([own("llama3"), own("llama3")]);
    let mut add =
        |(model, drafter): (_, Result<_, ModelError>)| all.push([model, drafter.unwrap()]);
    add(load_eagle("llama4", |_| ()));
    add(load_block_drafter("llama4", |_| ()));
    add(load_block_drafter("llama4-dspark", |_| ()));
    all
}

#[test]
fn blocks_are_what_the_reference_drafts() {
    for (name, taps) in [("qwen3_5", &[1, 2][..]), ("llama4", &[1, 3]), ("llama4-dspark", &[2])] {
        let (model, drafter) = load_block_drafter(name, |_| ());
        assert_blocks(name, taps, model, &*drafter.unwrap());
    }
}

#[test]
fn drafters_of_blocks_that_do_not_fit_are_refused() {
    let part = |name: &str, value: Value| {
        let mut part = json!({"mask_token_id": 3, "target_layer_ids": [0, 2]});
        part[name] = value;
        part
    };
    for (field, value, reason) in [
        ("vocab_size", json!(161), "`vocab_size` is 161, the model's is 160"),
        ("target_hidden_size", json!(64), "the model's hidden states have 32 elements"),
        ("mask_embedding", json!("mask_embedding.pt"), "the mask's own embedding is not read"),
        ("block_size", Value::Null, "`block_size` is \"absent\""),
        ("block_size", json!(1), "must be for 1 to 64 drafts, not 0"),
        ("block_size", json!(66), "must be for 1 to 64 drafts, not 65"),
        ("is_causal", json!(false), "may slide only where"),
        ("is_neox_style", json!(false), "`is_neox_style` is false"),
        ("sliding_window", Value::Null, "sliding_window"),
        ("dflash_config", part("mask_token_id", json!(160)), "must be one of the 160 tokens"),
        ("dflash_config", part("mask_token_id", Value::Null), "`mask_token_id` is \"absent\""),
        ("dflash_config", part("target_layer_ids", json!([1, 3])), "4 layers but the last one"),
        ("dflash_config", part("target_layer_ids", json!([])), "`target_layer_ids` is \"absent\""),
        ("dflash_config", part("target_layer_ids", json!([1])), "tensor `fc.weight`"),
        ("dflash_config", part("sample_from_anchor", json!(true)), "in DFlash only masks draft"),
        ("dflash_config", part("use_aux_hidden_state", json!(false)), "`use_aux_hidden_state` is"),
        ("dflash_config", part("attention_value_scale", json!(0.5)), "`attention_value_scale` is"),
    ] {
        let (_, drafter) = load_block_drafter("llama4", |config| config[field] = value.clone());
        let error = drafter.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{field}: {error}");
    }
    for (field, value, reason) in [
        ("markov_head_type", json!("gated"), "must be vanilla"),
        ("markov_rank", json!(0), "must be at least 1"),
        ("markov_rank", json!(7), "tensor `markov_head.markov_w1.weight`"),
    ] {
        let (_, drafter) =
            load_block_drafter("llama4-dspark", |config| config[field] = value.clone());
        let error = drafter.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{field}: {error}");
    }
}

#[test]
fn a_checkpoint_without_a_head_has_none_and_the_same_model() {
    for name in NAMES {
        let WithDraftHead { model, head } = load(name, false);
        assert!(head.is_none(), "{name}");
        let tokens = prompt(9, u32::try_from(model.vocab_size()).unwrap());
        let logits = [model, load(name, true).model].map(|model| {
            let mut driver = Driver::new(model, KvFormat::F32, 8, None);
            let seq = driver.add(&tokens);
            driver.finish(seq, 4).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert_eq!(logits[0], logits[1], "{name}");
    }
}

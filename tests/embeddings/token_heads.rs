//! A folder of BGE-M3: one model with a vector of a text, and a weight and a vector of every token.
//!
//! The fixture is made by `tests/fixtures/make_embeddings.py`.

use std::path::Path;

use futures::future::join_all;
use sconce::config::{EngineConfig, Pooling};
use sconce::engine::Outputs;
use sconce::engine::request::{EmbeddingRequest, Wanted};
use serde::Deserialize;

use super::{assert_near, fixture, folders, load, rejection, start, start_folder, text, vector};

const SPARSE: &str = "sparse_linear.pt";
const COLBERT: &str = "colbert_linear.pt";
/// Elements of a token's vector.
const SIZE: usize = 8;

#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    embedding: Vec<f32>,
    /// Of every token.
    weights: Vec<f32>,
    /// Of every token but the first.
    vectors: Vec<Vec<f32>>,
}

fn references() -> Vec<Reference> {
    let text = std::fs::read_to_string(fixture("bge_m3").join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Changes a file where it has these bytes first.
fn replace(path: &Path, from: &[u8], to: &[u8]) {
    let bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(from.len()).position(|part| part == from).unwrap();
    std::fs::write(path, [&bytes[..at], to, &bytes[at + from.len()..]].concat()).unwrap();
}

fn wanting(ids: &[u32], outputs: Outputs) -> EmbeddingRequest {
    EmbeddingRequest { wanted: Wanted { outputs: Some(outputs), ..Wanted::default() }, ..text(ids) }
}

#[tokio::test]
async fn one_model_makes_all_that_flag_embedding_does() {
    let engine = start("bge_m3", &EngineConfig::default());
    let limits = engine.limits();
    assert_eq!((limits.outputs, limits.embedding_size), (Outputs::Embedding, 32));
    let further = [(Outputs::TokenWeights, 1), (Outputs::TokenEmbeddings, SIZE)];
    assert_eq!(limits.further, further);
    for Reference { ids, embedding, weights, vectors } in references() {
        assert_near(&vector(engine.embed(text(&ids))).await, &embedding, "embedding");
        let ours = vector(engine.embed(wanting(&ids, Outputs::TokenWeights))).await;
        assert_near(&ours, &weights, "weights");
        let ours = vector(engine.embed(wanting(&ids, Outputs::TokenEmbeddings))).await;
        assert_near(&ours[SIZE..], &vectors.concat(), "vectors");
        let hidden = vector(engine.embed(wanting(&ids, Outputs::HiddenStates))).await;
        assert_eq!(hidden.len(), 32 * ids.len());
    }
}

#[tokio::test]
async fn a_request_can_have_them_as_the_layers_give_them() {
    let engine = start("bge_m3", &EngineConfig::default());
    let Reference { ids, weights, vectors, .. } = references().swap_remove(1);
    let raw = async |outputs| {
        let wanted = Wanted { activation: Some(false), outputs: Some(outputs), dimensions: None };
        vector(engine.embed(EmbeddingRequest { wanted, ..text(&ids) })).await
    };
    let below = raw(Outputs::TokenWeights).await;
    assert!(below.iter().any(|weight| *weight < 0.0), "{below:?}");
    let above: Vec<f32> = below.iter().map(|weight| weight.max(0.0)).collect();
    assert_near(&above, &weights, "weights");
    let long = raw(Outputs::TokenEmbeddings).await;
    for (ours, theirs) in long.chunks(SIZE).skip(1).zip(&vectors) {
        let length = ours.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() > 1e-3, "{length}");
        let scaled: Vec<f32> = ours.iter().map(|x| x / length).collect();
        assert_near(&scaled, theirs, "vectors");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_beside_others_has_the_bits_it_has_alone() {
    let one = EngineConfig { max_num_seqs: 1, ..EngineConfig::default() };
    let (alone, together) = (start("bge_m3", &one), start("bge_m3", &EngineConfig::default()));
    let kinds = [Outputs::TokenWeights, Outputs::TokenEmbeddings, Outputs::Embedding];
    let texts: Vec<Vec<u32>> = references().into_iter().map(|one| one.ids).collect();
    let all: Vec<_> = texts.iter().flat_map(|ids| kinds.map(|kind| wanting(ids, kind))).collect();
    let streams: Vec<_> = all.iter().map(|request| together.embed(request.clone())).collect();
    let vectors = join_all(streams.into_iter().map(vector)).await;
    for (request, ours) in all.into_iter().zip(vectors) {
        let what = format!("{:?}, {} tokens", request.wanted.outputs, request.token_ids.len());
        assert_eq!(ours, vector(alone.embed(request)).await, "{what}");
    }
}

#[tokio::test]
async fn a_folder_without_modules_is_pooled_as_its_authors_do() {
    let plain = folders::copy("bge_m3");
    std::fs::remove_file(plain.path().join("modules.json")).unwrap();
    let engine = start_folder(plain.path(), &EngineConfig::default());
    for Reference { ids, embedding, weights, .. } in references() {
        assert_near(&vector(engine.embed(text(&ids))).await, &embedding, "embedding");
        let ours = vector(engine.embed(wanting(&ids, Outputs::TokenWeights))).await;
        assert_near(&ours, &weights, "weights");
    }
    let config = EngineConfig { pooling: Some(Pooling::Mean), ..EngineConfig::default() };
    let mean = start_folder(plain.path(), &config);
    assert_eq!((mean.limits().pooling, mean.limits().further.len()), (Pooling::Mean, 2));
}

#[tokio::test]
async fn what_a_model_has_not_is_refused() {
    let plain = start("bert_mean", &EngineConfig::default());
    for outputs in [Outputs::TokenWeights, Outputs::TokenEmbeddings, Outputs::Lexical] {
        let message = rejection(plain.embed(wanting(&[5], outputs))).await;
        assert!(message.contains(&format!("gives Embedding, not {outputs:?}")), "{message}");
    }
    let several = start("bge_m3", &EngineConfig::default());
    let mut request = wanting(&[5], Outputs::TokenEmbeddings);
    request.wanted.dimensions = Some(2);
    let message = rejection(several.embed(request)).await;
    assert!(message.contains("dimensions can't be had of TokenEmbeddings"), "{message}");
}

#[test]
fn a_file_that_is_not_such_a_layer_is_named_at_startup() {
    type Change = fn(&Path);
    let cases: [(Change, &str); 10] = [
        (
            |root| std::fs::remove_file(root.join(SPARSE)).unwrap(),
            "sparse_linear.pt is missing; it belongs to colbert_linear.pt",
        ),
        (
            |root| std::fs::remove_file(root.join(COLBERT)).unwrap(),
            "colbert_linear.pt is missing; it belongs to sparse_linear.pt",
        ),
        (
            |root| {
                std::fs::copy(root.join(COLBERT), root.join(SPARSE)).unwrap();
            },
            "has shape [8, 32], expected [1, 32]",
        ),
        (|root| std::fs::write(root.join(COLBERT), "weights").unwrap(), "as torch.save writes it"),
        (
            |root| {
                let bytes = std::fs::read(root.join(COLBERT)).unwrap();
                std::fs::write(root.join(COLBERT), &bytes[..bytes.len() / 2]).unwrap();
            },
            "as torch.save writes it",
        ),
        (
            |root| {
                let file = std::fs::File::options().write(true).open(root.join(COLBERT)).unwrap();
                file.set_len((64 << 20) + 1).unwrap();
            },
            "has 67108865 bytes, expected one linear layer of at most",
        ),
        (
            |root| replace(&root.join(COLBERT), b"weight", b"heavy!"),
            "tensor `weight` is missing from",
        ),
        (
            |root| {
                let tensors = candle_core::pickle::read_all(root.join(COLBERT)).unwrap();
                let bias = tensors.iter().find(|(name, _)| name == "bias").unwrap();
                let first = bias.1.to_vec1::<f32>().unwrap()[0];
                let nan = f32::NAN.to_le_bytes();
                replace(&root.join(COLBERT), &first.to_le_bytes(), &nan);
            },
            "it holds NaN, which is no weight",
        ),
        (
            |root| replace(&root.join(SPARSE), b"HalfStorage", b"ByteStorage"),
            "it is of U8, expected F32, F16 or BF16",
        ),
        // A storage of three parts, where there should be five.
        (
            |root| replace(&root.join(COLBERT), b"h\x07K\x08t", b"q\x30q\x30t"),
            "its pickle is incomplete",
        ),
    ];
    for (change, expected) in cases {
        let folder = folders::copy("bge_m3");
        change(folder.path());
        let message = load(folder.path(), &EngineConfig::default()).err().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_network_itself_is_not_read_from_a_pickle() {
    let folder = folders::copy("bge_m3");
    let weights = folder.path().join("model.safetensors");
    std::fs::rename(weights, folder.path().join("pytorch_model.bin")).unwrap();
    let message = load(folder.path(), &EngineConfig::default()).err().unwrap();
    assert!(message.contains("only pickle weights (pytorch_model.bin)"), "{message}");
}

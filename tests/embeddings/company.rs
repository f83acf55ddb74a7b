//! A text's vector beside other texts, to the bit.

use std::path::{Path, PathBuf};

use futures::future::join_all;
use sconce::config::EngineConfig;

use super::folders::wide;
use super::{MODELS, fixture, start_folder, text, vector};

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|x| x.to_bits()).collect()
}

/// All lengths, each several times, other ids each time.
fn texts() -> Vec<Vec<u32>> {
    let of_length = |length: u32| {
        (0..7).map(move |copy| {
            (0..length).map(|i| (i * i * 7 + i * 3 + copy * 11 + length) % 60 + 5).collect()
        })
    };
    (1..=16).flat_map(of_length).collect()
}

async fn compare(folder: &Path) {
    let texts = texts();
    let alone = EngineConfig { max_num_seqs: 1, ..EngineConfig::default() };
    let alone = start_folder(folder, &alone);
    let mut expected = Vec::new();
    for ids in &texts {
        expected.push(bits(&vector(alone.embed(text(ids))).await));
    }
    for tokens in [16, 100, 100_000] {
        let config = EngineConfig { max_num_batched_tokens: tokens, ..EngineConfig::default() };
        let engine = start_folder(folder, &config);
        let streams: Vec<_> = texts.iter().map(|ids| engine.embed(text(ids))).collect();
        let together = join_all(streams.into_iter().map(vector)).await;
        for ((vector, expected), ids) in together.iter().zip(&expected).zip(&texts) {
            let of = format!("{}, {} ids, {tokens} a step", folder.display(), ids.len());
            assert_eq!(&bits(vector), expected, "{of}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_company_gets_the_vector_it_gets_alone() {
    let folders: Vec<PathBuf> = MODELS.iter().map(|name| fixture(name)).collect();
    for folder in folders {
        compare(&folder).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_encoders_keep_texts_apart_too() {
    for (hidden_size, intermediate_size) in [(384, 600), (64, 640)] {
        let folder = wide(hidden_size, intermediate_size);
        compare(folder.path()).await;
    }
}

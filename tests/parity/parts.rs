//! Prompts that part from cached ones inside of a block, over the whole engine: the copied tokens have
//! the bits of computed ones.

use sconce::config::{EngineConfig, KvCacheDtype};

use super::engine::{VOCAB, collect, one, request, sibling, start};
use super::prompt;

/// Fixtures of attention of every kind: grouped, sliding, with sinks, latent, with slopes, and with
/// another rotation of long sequences.
const MODELS: &[&str] =
    &["llama3", "gemma3", "gpt_oss", "deepseek_v2", "mpt", "phi3_long", "phi3_crossing"];

fn config(kv_cache_dtype: KvCacheDtype) -> EngineConfig {
    EngineConfig {
        max_num_seqs: 4,
        target_step_time: None,
        kv_cache_bytes: Some(8 << 20),
        kv_cache_dtype,
        ..EngineConfig::default()
    }
}

#[test]
fn copied_parts_of_blocks_have_the_bits_of_a_cold_start() {
    for name in MODELS {
        for dtype in [KvCacheDtype::Auto, KvCacheDtype::F32, KvCacheDtype::Fp8] {
            let alone = EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config(dtype) };
            let (cold, warm) = (start(name, &alone), start(name, &config(dtype)));
            let first = prompt(300, VOCAB)[..45].to_vec();
            let said = one(&cold, request(&first, 10, 0)).0.0;
            let turn = [&first[..], &said, &prompt(12, VOCAB)].concat();
            let sent = [&first, &first, &turn, &sibling(43, 20), &sibling(43, 20)];
            let mut hits = Vec::new();
            for (index, tokens) in sent.into_iter().enumerate() {
                let expected = one(&cold, request(tokens, 10, 0)).0;
                let (answer, cached) = one(&warm, request(tokens, 10, 0));
                assert!(answer == expected, "{name} {dtype}, request {index}");
                hits.push(cached);
            }
            // Sequences that are long to such a model share nothing with short ones.
            if !name.starts_with("phi3") {
                assert_eq!(hits, [0, 44, 54, 43, 62], "{name} {dtype}");
            }
            assert!(hits[1..].iter().any(|hit| hit % 32 != 0), "{name} {dtype}: {hits:?}");
            // In company and in small chunks.
            let config = EngineConfig { max_num_batched_tokens: 11, ..config(dtype) };
            let busy = start(name, &config);
            for round in 0..2 {
                let streams = sent.map(|tokens| busy.submit(request(tokens, 10, 0)));
                for (tokens, stream) in sent.iter().zip(streams) {
                    let expected = one(&cold, request(tokens, 10, 0)).0;
                    assert!(collect(stream).0 == expected, "{name} {dtype}, round {round}");
                }
            }
        }
    }
}

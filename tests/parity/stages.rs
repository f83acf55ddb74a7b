//! Whole engines whose model is computed in stages of layers, by threads with links as between processes,
//! beside one that computes it alone: answers have the same bits.

use std::sync::Arc;
use std::thread;

use sconce::config::EngineConfig;
use sconce::engine::startup::{Engine, Loaded, StartupError, follow};
use sconce::kernels::pool;
use sconce::metrics;
use sconce::models::ModelError;
use sconce::runner::ranks::{Follower, Leader, Link};

use super::engine::{VOCAB, collect, one, request, sibling, start};
use super::{models, open, prompt};

/// Fixtures whose layers can't be in several stages, and why.
const WHOLE: &[(&str, &str)] = &[
    ("gemma4_shared", "layers with embeddings of their own"),
    ("gemma3n", "embeddings of their own"),
    ("glm5_next_sparse", "streams of hidden states"),
    ("hy_v4", "streams of hidden states"),
    ("zaya", "routers that remember others"),
    ("dory", "gone through again"),
    ("hrm_text", "gone through again"),
    ("zamba", "share blocks"),
    ("zamba2", "share blocks"),
    ("zamba2_tied", "share blocks"),
    ("longcat_flash", "stored in pairs"),
    ("minimax", "lightning attention"),
];

fn config() -> EngineConfig {
    EngineConfig {
        // Several microbatches of a prompt, and of what is computed in company.
        max_num_batched_tokens: 128,
        max_num_seqs: 4,
        target_step_time: None,
        max_model_len: Some(512),
        kv_cache_bytes: Some(64 << 20),
        threads: Some(pool::threads()),
        ..EngineConfig::default()
    }
}

/// An engine whose model is computed in so many stages.
fn staged(
    name: &'static str,
    stages: usize,
    config: &EngineConfig,
) -> Result<Engine, StartupError> {
    let config = EngineConfig { pipeline_parallel: stages, ..config.clone() };
    let link = |rank| {
        let (from_leader, to_follower) = std::io::pipe().unwrap();
        let (from_follower, to_leader) = std::io::pipe().unwrap();
        let follower =
            Arc::new(Follower::new(Link::new("rank 0", from_leader, to_leader), rank, stages));
        let config = config.clone();
        // It ends with rank 0, which tells of failures.
        thread::spawn(move || follow(&open(name), &config, &follower));
        Link::new(format!("rank {rank}"), from_follower, to_follower)
    };
    let leader = Arc::new(Leader::new((1..stages).map(link).collect()));
    started(name, &config, Some(leader))
}

fn started(
    name: &str,
    config: &EngineConfig,
    leader: Option<Arc<Leader>>,
) -> Result<Engine, StartupError> {
    let loaded = Loaded::load(&open(name), config, Arc::new(|_, _| {}), leader)?;
    loaded.start(config, metrics::install(name))
}

#[test]
fn two_stages_have_the_bits_of_one_process_alone_and_in_company() {
    let mut wrong = Vec::new();
    let prompts = [prompt(100, VOCAB), prompt(45, VOCAB), sibling(70, 30), prompt(3, VOCAB)];
    let requests = || (0..).zip(&prompts).map(|(seed, tokens)| request(tokens, 6, seed));
    // Not every fixture is made for as long a context.
    let config = EngineConfig { max_model_len: None, ..config() };
    for name in models() {
        let whole = WHOLE.iter().find(|(whole, _)| *whole == name);
        let cold = EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config.clone() };
        let cold = match started(name, &cold, None) {
            Ok(engine) => engine.handle,
            // Towers of some fixtures are none; stages say so, too.
            Err(refused) => {
                let Err(error) = staged(name, 2, &config) else { panic!("{name} was split") };
                assert_eq!(error.to_string(), refused.to_string(), "{name}");
                continue;
            }
        };
        let engine = match (staged(name, 2, &config), whole) {
            (Ok(engine), None) => engine.handle,
            (Err(StartupError::Model(ModelError::Split { size: 2, reason })), Some((_, why))) => {
                assert!(reason.contains(why), "{name}: {reason}");
                continue;
            }
            (Ok(_), Some(_)) => {
                wrong.push(format!("{name} was split"));
                continue;
            }
            (Err(error), _) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let expected: Vec<_> = requests().map(|request| one(&cold, request).0).collect();
        let alone: Vec<_> = requests().map(|request| one(&engine, request).0).collect();
        if alone != expected {
            wrong.push(format!("{name} alone"));
        }
        let streams: Vec<_> = requests().map(|request| engine.submit(request)).collect();
        let together: Vec<_> = streams.into_iter().map(|stream| collect(stream).0).collect();
        if together != expected {
            wrong.push(format!("{name} in company"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join(", "));
}

/// Fixtures of three layers and more: dense, of experts, and hybrids of which some stages have no recurrent
/// layer, or no attention.
const DEEP: &[&str] = &["gemma3", "afmoe", "llama4", "lfm2", "bamba", "jamba", "qwen3_5"];

#[test]
fn three_stages_take_up_what_they_have_cached() {
    let prompts = [prompt(300, VOCAB), sibling(200, 50), sibling(130, 90), prompt(65, VOCAB)];
    let requests = || (0..).zip(&prompts).map(|(seed, tokens)| request(tokens, 20, seed));
    for name in DEEP {
        let cold = EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() };
        let cold = start(name, &cold);
        let expected: Vec<_> = requests().map(|request| one(&cold, request).0).collect();
        let engine = staged(name, 3, &config()).unwrap().handle;
        let mut hits = 0;
        for round in 0..2 {
            let streams: Vec<_> = requests().map(|request| engine.submit(request)).collect();
            for (stream, expected) in streams.into_iter().zip(&expected) {
                let (answer, cached, _) = collect(stream);
                assert!(answer == *expected, "{name}, round {round}");
                hits += cached;
            }
        }
        assert!(hits > 0, "{name}");
    }
}

#[test]
fn stages_share_out_what_the_one_with_the_largest_part_can_hold() {
    // Layers of the same size: two of them on one stage, and one on the other.
    let name = "gemma3";
    let plan = |stages, config: &EngineConfig| {
        let whole = || started(name, config, None);
        let engine = if stages == 1 { whole() } else { staged(name, stages, config) };
        engine.unwrap().plan.unwrap()
    };
    let whole = plan(1, &config()).facts.block_bytes;
    assert_eq!(whole % 3, 0);
    let config = EngineConfig { kv_cache_bytes: Some(40 * whole), ..config() };
    assert_eq!(plan(1, &config).num_blocks, 40);
    let two = plan(2, &config);
    assert!([whole / 3, whole / 3 * 2].contains(&two.facts.block_bytes));
    assert_eq!(two.num_blocks, 60);
    let three = plan(3, &config);
    assert_eq!((three.facts.block_bytes, three.num_blocks), (whole / 3, 64));
}

#[test]
fn preempted_sequences_have_the_same_bits() {
    let name = "qwen3";
    let prompts: Vec<_> = (0..4).map(|i| sibling(60 + 40 * i, 90)).collect();
    let requests = || (0..).zip(&prompts).map(|(seed, tokens)| request(tokens, 60, seed));
    let cold = start(name, &EngineConfig { max_num_seqs: 1, prefix_cache: false, ..config() });
    let expected: Vec<_> = requests().map(|request| one(&cold, request).0).collect();
    let block = started(name, &config(), None).unwrap().plan.unwrap().facts.block_bytes / 2;
    let few = EngineConfig { kv_cache_bytes: Some(18 * block), ..config() };
    let engine = staged(name, 2, &few).unwrap();
    assert_eq!(engine.plan.unwrap().num_blocks, 18);
    let streams: Vec<_> = requests().map(|request| engine.handle.submit(request)).collect();
    let mut preempted = 0;
    for (stream, expected) in streams.into_iter().zip(&expected) {
        let (answer, _, preemptions) = collect(stream);
        assert!(answer == *expected);
        preempted += preemptions;
    }
    assert!(preempted > 0);
}

#[test]
fn more_stages_than_layers_are_refused() {
    let Err(error) = staged("llama3", 3, &config()) else { panic!("it was split") };
    let told = error.to_string();
    assert!(told.contains("over 3 ranks: each needs a layer, and there are 2"), "{told}");
}

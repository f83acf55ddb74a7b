//! Models that several ranks compute beside the reference, with the ranks in one process: links
//! are pipes, as between processes.

use std::sync::{Arc, Mutex};

use candle_core::quantized::GgmlDType;
use candle_core::{Device, Result};
use sconce::layers::forward::{ForwardBatch, ForwardContext, KvFormat, KvHeads, KvLayer, KvShape};
use sconce::layers::group::Group;
use sconce::models::config::HfConfig;
use sconce::models::{CausalLm, ForwardOutput, ModelError, adapter};
use sconce::runner::ranks::{Follower, Leader, Link};

use super::reference::assert_equals_f32;
use super::{MODELS, open};

/// Fixtures that can't be split, and what of them can't be.
const WHOLE: &[(&str, &str)] = &[
    ("bloom", "heads with slopes"),
    ("mpt", "heads with slopes"),
    ("gemma4_experts", "experts beside a feed-forward part"),
    ("bitnet", "heads that are normalized together"),
    ("codegen", "heads that are stored in parts"),
    ("doge", "scores that depend on values"),
    ("dory", "heads with learned scales"),
    ("hrm_text", "heads with gates"),
    ("gemma3n", "gates with a threshold for all"),
    ("jetmoe", "heads that a router chooses"),
    ("dbrx", "experts in three tensors"),
    ("diffllama", "differences of heads"),
    ("longcat_flash", "layers that are stored in pairs"),
    ("minimax_m3_conditional", "heads that see chosen blocks"),
    ("minimax_m3_sparse", "heads that see chosen blocks"),
    ("zaya", "convolved queries and keys"),
    ("step3p7", "experts in three tensors"),
    ("bailing_hybrid", "recurrent layers"),
    ("bailing_hybrid_groups", "recurrent layers"),
    ("bamba", "recurrent layers"),
    ("falcon_h1", "recurrent layers"),
    ("falcon_h1_norm", "recurrent layers"),
    ("falcon_mamba", "recurrent layers"),
    ("glm5_next_sparse", "recurrent layers"),
    ("granite_hybrid", "recurrent layers"),
    ("granite_hybrid_moe", "recurrent layers"),
    ("jamba", "recurrent layers"),
    ("kimi_linear", "recurrent layers"),
    ("lara_mini", "recurrent layers"),
    ("lfm2", "recurrent layers"),
    ("lfm2_moe", "recurrent layers"),
    ("lfm3", "recurrent layers"),
    ("lfm3_vl", "recurrent layers"),
    ("mamba", "recurrent layers"),
    ("mamba2", "recurrent layers"),
    ("minimax", "recurrent layers"),
    ("nemotron_h", "recurrent layers"),
    ("nemotron_h_moe", "recurrent layers"),
    ("nemotron_h_omni", "recurrent layers"),
    ("olmo_hybrid", "recurrent layers"),
    ("olmo_hybrid_rope", "recurrent layers"),
    ("recurrent_gemma", "recurrent layers"),
    ("qwen3_5", "recurrent layers"),
    ("qwen3_5_conditional", "recurrent layers"),
    ("qwen3_5_moe", "recurrent layers"),
    ("qwen3_5_moe_conditional", "recurrent layers"),
    ("qwen3_next", "recurrent layers"),
    ("zamba", "recurrent layers"),
    ("zamba2", "recurrent layers"),
    ("zamba2_tied", "recurrent layers"),
    ("flex_olmo", "norms over all heads"),
    ("minimax_m2", "norms over all heads"),
    ("olmo2", "norms over all heads"),
    ("olmo3", "norms over all heads"),
    ("olmoe", "norms over all heads"),
];

/// All ranks of a group, each with a cache of its own; the caller's is rank 0's.
struct Together {
    first: Box<dyn CausalLm>,
    others: Vec<Mutex<Box<dyn CausalLm>>>,
    caches: Mutex<Vec<Vec<KvLayer>>>,
}

fn group(size: usize) -> Vec<Arc<dyn Group>> {
    let mut links = Vec::new();
    let mut followers: Vec<Arc<dyn Group>> = Vec::new();
    for rank in 1..size {
        let [(from_first, to_other), (from_other, to_first)] =
            [(); 2].map(|()| std::io::pipe().unwrap());
        links.push(Link::new(format!("rank {rank}"), from_other, to_other));
        let link = Link::new("rank 0", from_first, to_first);
        followers.push(Arc::new(Follower::new(link, rank, size)));
    }
    let leader: Arc<dyn Group> = Arc::new(Leader::new(links));
    [vec![leader], followers].concat()
}

impl Together {
    fn load(name: &str, size: usize) -> std::result::Result<Self, ModelError> {
        let source = open(name);
        let config = HfConfig::from_value(&source.config)?;
        let weights = source.weights(&Device::Cpu).rounded_to(Some(GgmlDType::F32));
        let part = |group| sconce::models::load_part(&config, &weights, group);
        let mut parts = group(size).into_iter().map(part);
        let first = parts.next().expect("a group has a rank 0")?;
        let others = parts.map(|part| part.map(Mutex::new));
        let others = others.collect::<std::result::Result<_, _>>()?;
        Ok(Self { first, others, caches: Mutex::default() })
    }
}

impl CausalLm for Together {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let mut caches = self.caches.lock().unwrap();
        if caches.is_empty() {
            let zeros = |dims| KvFormat::F32.zeros(dims, context.device);
            let num_blocks = context.kv[0].k.dim(0)?;
            let layer = |heads: &KvHeads| heads.layer(num_blocks, KvFormat::F32, zeros).unwrap();
            let shapes = self.others.iter().map(|other| other.lock().unwrap().kv_shape().layers);
            *caches = shapes.map(|layers| layers.iter().map(layer).collect()).collect();
        }
        std::thread::scope(|scope| {
            for (other, kv) in self.others.iter().zip(caches.iter()) {
                let context = ForwardContext { kv, ..*context };
                let follow = move || drop(other.lock().unwrap().forward(&context, batch).unwrap());
                scope.spawn(follow);
            }
            self.first.forward(context, batch)
        })
    }

    fn kv_shape(&self) -> KvShape {
        self.first.kv_shape()
    }

    fn vocab_size(&self) -> usize {
        self.first.vocab_size()
    }

    fn hidden_size(&self) -> usize {
        self.first.hidden_size()
    }

    fn max_position_embeddings(&self) -> usize {
        self.first.max_position_embeddings()
    }

    fn fixed_rope_length(&self) -> Option<usize> {
        self.first.fixed_rope_length()
    }

    fn adapter_layout(&self) -> Option<adapter::AdapterLayout> {
        self.first.adapter_layout()
    }
}

#[test]
fn two_ranks_compute_what_the_reference_does() {
    for name in MODELS {
        let whole = WHOLE.iter().find(|(whole, _)| whole == name);
        match (Together::load(name, 2), whole) {
            (Ok(model), None) => assert_equals_f32(name, Box::new(model)),
            (Err(ModelError::Split { size: 2, reason }), Some((_, expected))) => {
                assert!(reason.contains(expected), "{name}: {reason}");
            }
            (Ok(_), Some(_)) => panic!("{name} was split"),
            (Err(error), _) => panic!("{name}: {error}"),
        }
    }
}

/// With more ranks than key heads some ranks have the same one.
#[test]
fn four_ranks_share_two_key_heads() {
    let model = Together::load("llama3", 4).unwrap();
    assert_eq!(model.kv_shape().layers[0].count, 1);
    assert_eq!(model.others.len(), 3);
    assert_equals_f32("llama3", Box::new(model));
}

#[test]
fn what_does_not_divide_is_refused_by_name() {
    let refusal = |size| match Together::load("llama3", size) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it was split"),
    };
    let told = refusal(3);
    assert!(told.contains("over 3 ranks: 4 query heads don't divide by 3"), "{told}");
    assert!(refusal(8).contains("4 query heads don't divide by 8"));
}

#[test]
fn a_part_has_its_share_of_the_cache_and_takes_no_adapters() {
    let [whole, half] = [1, 2].map(|size| Together::load("qwen3", size).unwrap());
    assert_eq!(half.kv_shape().layers[0].count * 2, whole.kv_shape().layers[0].count);
    assert!(whole.adapter_layout().is_some() && half.adapter_layout().is_none());
}

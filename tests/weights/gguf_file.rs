//! Small GGUF files for the other tests, written by the tensor library's own writer.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

pub(crate) const HIDDEN: usize = 256;
pub(crate) const HEADS: usize = 4;
pub(crate) const KEY_HEADS: usize = 2;
pub(crate) const HEAD_DIM: usize = 8;
pub(crate) const FEED_FORWARD: usize = 256;
pub(crate) const VOCABULARY: usize = 6;

/// A file that can be changed before it is written.
#[derive(Clone)]
pub(crate) struct GgufFile {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, (Tensor, GgmlDType)>,
}

/// Reproducible values in -1..1 of this shape.
pub(crate) fn noise(seed: u32, shape: &[usize]) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    // Rows of a matrix are about as long as in a real model, whose softmax sees more than one key.
    let size = if shape.len() == 2 { (shape[1] as f32).sqrt().recip() } else { 1.0 };
    let values = (0..shape.iter().product()).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * size
    });
    Tensor::from_vec(values.collect::<Vec<f32>>(), shape, &Device::Cpu).unwrap()
}

/// An array of strings.
pub(crate) fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::String((*text).to_owned())).collect())
}

impl GgufFile {
    /// A valid one-layer model of `architecture`, all tensors of `kind` but for the norms.
    pub(crate) fn new(architecture: &str, kind: GgmlDType) -> Self {
        let mut file = Self { metadata: BTreeMap::new(), tensors: BTreeMap::new() };
        file.set("general.architecture", Value::String(architecture.to_owned()));
        let counts = [
            ("context_length", 128),
            ("embedding_length", HIDDEN as u32),
            ("block_count", 1),
            ("feed_forward_length", FEED_FORWARD as u32),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", KEY_HEADS as u32),
            ("attention.key_length", HEAD_DIM as u32),
            ("attention.value_length", HEAD_DIM as u32),
        ];
        for (end, count) in counts {
            file.set(&format!("{architecture}.{end}"), Value::U32(count));
        }
        file.set(&format!("{architecture}.rope.freq_base"), Value::F32(500_000.0));
        let epsilon = format!("{architecture}.attention.layer_norm_rms_epsilon");
        file.set(&epsilon, Value::F32(1e-6));
        file.set_vocabulary();
        let (queries, keys) = (HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM);
        let matrices = [
            ("token_embd", VOCABULARY, HIDDEN),
            ("blk.0.attn_q", queries, HIDDEN),
            ("blk.0.attn_k", keys, HIDDEN),
            ("blk.0.attn_v", keys, HIDDEN),
            ("blk.0.attn_output", HIDDEN, 256),
            ("blk.0.ffn_gate", FEED_FORWARD, HIDDEN),
            ("blk.0.ffn_up", FEED_FORWARD, HIDDEN),
            ("blk.0.ffn_down", HIDDEN, FEED_FORWARD),
        ];
        for (seed, (name, rows, columns)) in matrices.into_iter().enumerate() {
            file.add(&format!("{name}.weight"), noise(seed as u32, &[rows, columns]), kind);
        }
        for (seed, name) in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"].iter().enumerate()
        {
            let norm = noise(100 + seed as u32, &[HIDDEN]);
            file.add(&format!("{name}.weight"), norm, GgmlDType::F32);
        }
        file
    }

    fn set_vocabulary(&mut self) {
        self.set("tokenizer.ggml.model", Value::String("gpt2".to_owned()));
        self.set("tokenizer.ggml.pre", Value::String("qwen2".to_owned()));
        let tokens = ["a", "b", "ab", "<|endoftext|>", "<|im_end|>", "<|im_start|>"];
        self.set("tokenizer.ggml.tokens", texts(&tokens));
        let types = [1, 1, 1, 3, 3, 3].map(Value::I32).to_vec();
        self.set("tokenizer.ggml.token_type", Value::Array(types));
        self.set("tokenizer.ggml.merges", texts(&["a b"]));
        self.set("tokenizer.ggml.eos_token_id", Value::U32(4));
        self.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
        self.set("tokenizer.chat_template", Value::String("{{ messages }}".to_owned()));
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.metadata.insert(key.to_owned(), value);
    }

    pub(crate) fn add(&mut self, name: &str, tensor: Tensor, kind: GgmlDType) {
        self.tensors.insert(name.to_owned(), (tensor, kind));
    }

    /// The tensor as it will stand in the file.
    pub(crate) fn stored(&self, name: &str) -> QTensor {
        let (tensor, kind) = &self.tensors[name];
        QTensor::quantize(tensor, *kind).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let metadata: Vec<_> = self.metadata.iter().map(|(key, v)| (key.as_str(), v)).collect();
        let stored: Vec<_> = self.tensors.keys().map(|name| (name, self.stored(name))).collect();
        let tensors: Vec<_> = stored.iter().map(|(name, t)| (name.as_str(), t)).collect();
        let mut bytes = std::io::Cursor::new(Vec::new());
        gguf_file::write(&mut bytes, &metadata, &tensors).unwrap();
        bytes.into_inner()
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
    }
}

//! The model's folder in Hugging Face's layout: written from the trainer's parameters, read back.
//! Refuses to know how the parameters came about.

use super::network::Shape;
use super::vocabulary::SPECIAL;
use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor, safetensors};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

const CHAT_TEMPLATE: &str = include_str!("../../../../src/demo/model/chat_template.jinja");

/// The parameters' names, in the network's order; a fused one has several.
fn names(shape: &Shape) -> Vec<Vec<(String, usize)>> {
    let mut names = vec![vec![("model.embed_tokens.weight".to_owned(), shape.vocabulary)]];
    let (queries, keys) = (shape.queries * shape.head, shape.keys * shape.head);
    for layer in 0..shape.layers {
        let name = |rest: &str, rows| (format!("model.layers.{layer}.{rest}.weight"), rows);
        names.extend([
            vec![name("input_layernorm", 1)],
            vec![
                name("self_attn.q_proj", queries),
                name("self_attn.k_proj", keys),
                name("self_attn.v_proj", keys),
            ],
            vec![name("self_attn.q_norm", 1)],
            vec![name("self_attn.k_norm", 1)],
            vec![name("self_attn.o_proj", shape.width)],
            vec![name("post_attention_layernorm", 1)],
            vec![name("mlp.gate_proj", shape.inner), name("mlp.up_proj", shape.inner)],
            vec![name("mlp.down_proj", shape.width)],
        ]);
    }
    names.push(vec![("model.norm.weight".to_owned(), 1)]);
    names
}

/// Writes weights, in bf16, and all that describes them.
pub(crate) fn write(
    folder: &Path,
    shape: &Shape,
    values: &[Vec<f32>],
    tokenizer: &Value,
) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("can't make the folder {}", folder.display()))?;
    let mut tensors = HashMap::new();
    for ((parts, values), (_, columns)) in
        names(shape).into_iter().zip(values).zip(shape.parameters())
    {
        let mut start = 0;
        for (name, rows) in parts {
            let data = &values[start..start + rows * columns];
            start += rows * columns;
            let tensor = match rows {
                1 => Tensor::from_slice(data, columns, &Device::Cpu)?,
                _ => Tensor::from_slice(data, (rows, columns), &Device::Cpu)?,
            };
            tensors.insert(name, tensor.to_dtype(DType::BF16)?);
        }
    }
    let weights = folder.join("model.safetensors");
    safetensors::save(&tensors, &weights)
        .with_context(|| format!("can't write {}", weights.display()))?;
    let put = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))
    };
    put("tokenizer.json", serde_json::to_string(tokenizer)?)?;
    put("tokenizer_config.json", pretty(&tokenizer_config(shape))?)?;
    put("config.json", pretty(&config(shape))?)?;
    put("generation_config.json", pretty(&generation_config())?)
}

/// Reads shape and weights back; the weights are those that bf16 can hold.
pub(crate) fn read(config: &[u8], weights: &[u8]) -> Result<(Shape, Vec<Vec<f32>>)> {
    let config: Value = serde_json::from_slice(config).context("config.json isn't JSON")?;
    let number = |key: &str| {
        let number =
            config[key].as_u64().with_context(|| format!("config.json has no number {key}"))?;
        Ok::<usize, anyhow::Error>(number as usize)
    };
    let shape = Shape {
        vocabulary: number("vocab_size")?,
        width: number("hidden_size")?,
        layers: number("num_hidden_layers")?,
        queries: number("num_attention_heads")?,
        keys: number("num_key_value_heads")?,
        head: number("head_dim")?,
        inner: number("intermediate_size")?,
        theta: config["rope_theta"].as_f64().context("config.json has no number rope_theta")?,
        window: number("sliding_window")?,
        positions: number("max_position_embeddings")?,
    };
    let tensors =
        safetensors::load_buffer(weights, &Device::Cpu).context("can't read the weights")?;
    let mut values = Vec::new();
    for (parts, (rows, columns)) in names(&shape).into_iter().zip(shape.parameters()) {
        let mut joined = Vec::with_capacity(rows * columns);
        for (name, _) in parts {
            let tensor = tensors.get(&name).with_context(|| format!("the weights lack {name}"))?;
            joined.extend(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
        }
        let (found, wanted) = (joined.len(), rows * columns);
        ensure!(found == wanted, "a parameter has {found} numbers, the config says {wanted}");
        values.push(joined);
    }
    Ok((shape, values))
}

fn pretty(value: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// The id of one of the special tokens: they come first, in order.
pub(crate) fn special(token: &str) -> u32 {
    let index = SPECIAL.iter().position(|special| *special == token);
    index.expect("only listed tokens are asked for") as u32
}

fn config(shape: &Shape) -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": special("<|endoftext|>"),
        "eos_token_id": special("<|im_end|>"),
        "pad_token_id": special("<|endoftext|>"),
        "head_dim": shape.head,
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.positions,
        "max_window_layers": 0,
        "num_attention_heads": shape.queries,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.keys,
        "rms_norm_eps": 1e-6,
        "rope_scaling": null,
        "rope_theta": shape.theta,
        "sliding_window": shape.window,
        "tie_word_embeddings": true,
        "torch_dtype": "bfloat16",
        "use_cache": true,
        "use_sliding_window": true,
        "vocab_size": shape.vocabulary,
    })
}

fn generation_config() -> Value {
    json!({
        "bos_token_id": special("<|endoftext|>"),
        "eos_token_id": [special("<|im_end|>"), special("<|endoftext|>")],
        "pad_token_id": special("<|endoftext|>"),
        "do_sample": true,
        "temperature": 0.4,
        "top_p": 0.95,
    })
}

fn tokenizer_config(shape: &Shape) -> Value {
    let added: serde_json::Map<String, Value> = SPECIAL
        .iter()
        .enumerate()
        .map(|(id, token)| {
            let described = json!({"content": token, "lstrip": false, "normalized": false,
                "rstrip": false, "single_word": false, "special": token.starts_with("<|")});
            (id.to_string(), described)
        })
        .collect();
    json!({
        "add_bos_token": false,
        "add_prefix_space": false,
        "added_tokens_decoder": added,
        "bos_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": false,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": null,
        "model_max_length": shape.positions,
        "tokenizer_class": "PreTrainedTokenizerFast",
    })
}

//! The trainer's own greedy answers, with a cache of keys and values: enough for the gate.
//! Refuses to know sampling, batching and the server's engine.

use super::folder;
use super::network::{Cache, Network};
use anyhow::{Context, Result, anyhow};
use tokenizers::Tokenizer;

/// A model read from its folder's files.
pub(crate) struct Decoder {
    pub(crate) network: Network,
    pub(crate) tokenizer: Tokenizer,
}

impl Decoder {
    /// `file` gives the bytes of a file of the folder.
    pub(crate) fn load(mut file: impl FnMut(&str) -> Result<Vec<u8>>) -> Result<Self> {
        let (shape, values) = folder::read(&file("config.json")?, &file("model.safetensors")?)?;
        let tokenizer = Tokenizer::from_bytes(file("tokenizer.json")?)
            .map_err(|error| anyhow!("can't load the tokenizer: {error}"))?;
        let network = Network::new(shape, &values).context("can't build the network")?;
        Ok(Self { network, tokenizer })
    }

    /// The likeliest tokens behind `prompt`, up to the end of the turn, which is included, or `limit`.
    pub(crate) fn greedy(&self, prompt: &[u32], limit: usize) -> Result<Vec<u32>> {
        let end = folder::special("<|im_end|>");
        let mut cache = Cache::new(&self.network.shape);
        let mut logits = self.network.next(prompt, &mut cache)?;
        let mut answer = Vec::new();
        let limit = limit.min(self.network.heads.positions().saturating_sub(prompt.len()));
        while answer.len() < limit {
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            let token = best.context("the vocabulary is empty")?.0 as u32;
            answer.push(token);
            if token == end {
                break;
            }
            logits = self.network.next(&[token], &mut cache)?;
        }
        Ok(answer)
    }
}

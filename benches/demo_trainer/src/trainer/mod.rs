//! Trains the demo model: corpus to tokens, tokens to weights, weights to a folder.
//! Refuses to know the command line and the server.
//!
//! Batches are cut into parts that threads take in turn, each running whole products by itself; gradients
//! are added in the parts' order, so a seed gives the same model whatever the number of threads.

pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod decode;
pub(crate) mod feed;
pub(crate) mod folder;
pub(crate) mod network;
#[cfg(test)]
mod network_tests;
pub(crate) mod ops;
pub(crate) mod vocabulary;

use adamw::AdamW;
use anyhow::{Context, Result, anyhow};
use candle_core::{Device, Tensor, safetensors};
use feed::Feed;
use network::{Batch, Network, Shape};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokenizers::Tokenizer;

/// The sizes of the embedded model.
pub(crate) const SHAPE: Shape = Shape {
    vocabulary: vocabulary::VOCABULARY,
    width: 256,
    layers: 4,
    queries: 4,
    keys: 2,
    head: 64,
    inner: 640,
    theta: 10_000.0,
    // Positions turn queries and keys by differences alone, and no layer looks further back than training
    // did: what was learned on short conversations holds at the end of any long one.
    window: 512,
    positions: 32_768,
};

/// Parts of a batch.
const PARTS: usize = 4;
/// Part of the training in which repeated random rows fade out.
const REPEATS_UNTIL: f64 = 0.12;
/// Part of the training after which the rate falls, in a line, to 0.
const FLAT_UNTIL: f64 = 0.5;
const WARM_UP_STEPS: f64 = 100.0;

/// How to train.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) tokens: u64,
    pub(crate) batch_tokens: usize,
    pub(crate) rate: f64,
    pub(crate) threads: usize,
}

/// A training in progress.
pub(crate) struct Training {
    plan: Plan,
    tokenizer_json: serde_json::Value,
    pub(crate) tokenizer: Tokenizer,
    network: Network,
    values: Vec<Vec<f32>>,
    optimizer: AdamW,
    pools: Vec<rayon::ThreadPool>,
    pub(crate) tokens: u64,
}

/// The summed loss of a part of a batch, and the gradient of every parameter.
type Learned = (f64, Vec<Vec<f32>>);

/// What a step showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Mean loss of the scored tokens.
    pub(crate) loss: f64,
    pub(crate) gradient_norm: f64,
    pub(crate) rate: f64,
}

impl Training {
    pub(crate) fn new(plan: Plan, shape: Shape) -> Result<Self> {
        let tokenizer_json = vocabulary::learn(plan.seed, vocabulary::SAMPLE);
        let values = shape.initial(&mut crate::corpus::dice::Dice::new(plan.seed));
        Self::assemble(plan, shape, tokenizer_json, values)
    }

    fn assemble(
        plan: Plan,
        shape: Shape,
        tokenizer_json: serde_json::Value,
        values: Vec<Vec<f32>>,
    ) -> Result<Self> {
        let sizes: Vec<usize> = values.iter().map(Vec::len).collect();
        let matrices = shape.parameters().into_iter().map(|(rows, _)| rows > 1);
        let decays = matrices.enumerate().map(|(index, matrix)| matrix && index > 0).collect();
        // One thread in each pool: products run within it instead of splitting up once more.
        let pools = (0..plan.threads)
            .map(|_| rayon::ThreadPoolBuilder::new().num_threads(1).build())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            tokenizer: tokenizer(&tokenizer_json)?,
            network: Network::new(shape, &values)?,
            optimizer: AdamW::new(&sizes, decays),
            plan,
            tokenizer_json,
            values,
            pools,
            tokens: 0,
        })
    }

    pub(crate) fn progress(&self) -> f64 {
        self.tokens as f64 / self.plan.tokens as f64
    }

    /// Runs to the plan's end or until `each` says stop.
    pub(crate) fn run(
        &mut self,
        mut each: impl FnMut(&mut Self, Step) -> Result<bool>,
    ) -> Result<()> {
        // A resumed run draws other conversations than the first one did.
        let seed = self.plan.seed.wrapping_mul(1_000_003).wrapping_add(self.tokens);
        let tokenizer = self.tokenizer.clone();
        let mut feed = Feed::new(&tokenizer, seed, self.network.shape.window);
        while self.progress() < 1.0 {
            let done = self.progress() / REPEATS_UNTIL;
            let batches = feed.draw(self.plan.batch_tokens, PARTS, done)?;
            let step = self.step(&batches)?;
            if !each(self, step)? {
                break;
            }
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        let warm = f64::from(self.optimizer.step + 1) / WARM_UP_STEPS;
        let left = (1.0 - self.progress()) / (1.0 - FLAT_UNTIL);
        self.plan.rate * warm.min(1.0) * left.clamp(0.01, 1.0)
    }

    fn step(&mut self, batches: &[Batch]) -> Result<Step> {
        let scored: usize = batches.iter().map(|batch| batch.scored.len()).sum();
        let (loss, grads) = self.learn(batches, 1.0 / scored as f32)?;
        let rate = self.rate();
        let gradient_norm = self.optimizer.update(&mut self.values, &grads, rate as f32);
        self.network.set(&self.values)?;
        self.tokens += batches.iter().map(|batch| batch.tokens.len() as u64).sum::<u64>();
        Ok(Step { loss: loss / scored as f64, gradient_norm, rate })
    }

    /// The threads take batches until none is left; their gradients are added in the batches' order.
    fn learn(&self, batches: &[Batch], scale: f32) -> Result<Learned> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<candle_core::Result<Learned>>>> =
            batches.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(batch) = batches.get(index) else { break };
                let mut grads: Vec<Vec<f32>> =
                    self.values.iter().map(|value| vec![0f32; value.len()]).collect();
                let loss = self.network.learn(batch, scale, &mut grads);
                let mut slot = results[index].lock().expect("each slot is locked once");
                *slot = Some(loss.map(|loss| (loss, grads)));
            }
        };
        std::thread::scope(|scope| {
            for pool in &self.pools {
                scope.spawn(|| pool.install(work));
            }
        });
        let mut sums: Option<Learned> = None;
        for result in results {
            let result = result.into_inner().map_err(|_| anyhow!("a training thread panicked"))?;
            let (loss, grads) = result.context("a part of the batch was left out")??;
            let Some((total, sums)) = &mut sums else {
                sums = Some((loss, grads));
                continue;
            };
            *total += loss;
            for (sums, grads) in sums.iter_mut().zip(&grads) {
                sums.iter_mut().zip(grads).for_each(|(sum, grad)| *sum += grad);
            }
        }
        sums.context("an empty batch")
    }

    /// Writes the model's folder.
    pub(crate) fn export(&self, folder: &Path) -> Result<()> {
        folder::write(folder, &self.network.shape, &self.values, &self.tokenizer_json)
    }

    /// Writes all that a resumed training needs next to the exported model.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        self.export(folder)?;
        let mut tensors = HashMap::new();
        for (kind, lists) in [
            ("value", &self.values),
            ("mean", &self.optimizer.means),
            ("square", &self.optimizer.squares),
        ] {
            for (index, list) in lists.iter().enumerate() {
                tensors.insert(
                    format!("{kind}.{index}"),
                    Tensor::from_slice(list, list.len(), &Device::Cpu)?,
                );
            }
        }
        let counts = [self.tokens as f64, f64::from(self.optimizer.step)];
        tensors.insert("counts".to_owned(), Tensor::from_slice(&counts, 2, &Device::Cpu)?);
        // Written aside and moved, so that an interruption leaves the last one whole.
        let aside = folder.join("checkpoint.new");
        safetensors::save(&tensors, &aside)?;
        std::fs::rename(&aside, checkpoint(folder))?;
        Ok(())
    }

    /// Takes up a training that `save` left in `folder`.
    pub(crate) fn resume(plan: Plan, folder: &Path) -> Result<Self> {
        let bytes = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).with_context(|| format!("can't read {}", path.display()))
        };
        let tokenizer_json = serde_json::from_slice(&bytes("tokenizer.json")?)?;
        let (shape, _) = folder::read(&bytes("config.json")?, &bytes("model.safetensors")?)?;
        let path = checkpoint(folder);
        let tensors = safetensors::load(&path, &Device::Cpu)
            .with_context(|| format!("can't read {}", path.display()))?;
        let lists = |kind: &str| -> Result<Vec<Vec<f32>>> {
            (0..shape.parameters().len())
                .map(|index| {
                    let tensor = tensors.get(&format!("{kind}.{index}"));
                    Ok(tensor.context("the checkpoint is of another shape")?.to_vec1::<f32>()?)
                })
                .collect()
        };
        let mut training = Self::assemble(plan, shape, tokenizer_json, lists("value")?)?;
        training.optimizer.means = lists("mean")?;
        training.optimizer.squares = lists("square")?;
        let counts =
            tensors.get("counts").context("the checkpoint has no counts")?.to_vec1::<f64>()?;
        training.tokens = counts[0] as u64;
        training.optimizer.step = counts[1] as i32;
        Ok(training)
    }
}

pub(crate) fn tokenizer(json: &serde_json::Value) -> Result<Tokenizer> {
    Tokenizer::from_bytes(serde_json::to_vec(json)?)
        .map_err(|error| anyhow!("can't load the tokenizer: {error}"))
}

fn checkpoint(folder: &Path) -> PathBuf {
    folder.join("checkpoint.safetensors")
}

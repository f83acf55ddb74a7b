//! The modules of a model that LoRA adapters may change, and the loading of an adapter's folder.
//!
//! Names are those of transformers, shapes those of the checkpoint. Where a checkpoint fuses
//! modules that are computed separately, or stores rows in another order, the rows of `lora_B` are
//! moved as the rows of the base weight are.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::Device;
use candle_core::quantized::GgmlDType;

use crate::layers::adapter::{Adapter, Delta, EmbeddingDelta, Site};
use crate::weights::lora::LoraFolder;
use crate::weights::{Loaded, WeightError, Weights};

/// A linear layer of the checkpoint that adapters may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptableModule {
    /// Path without the common prefix: `layers.0.self_attn.q_proj`.
    pub path: String,
    /// Columns of the weight.
    pub inputs: usize,
    /// Rows of the weight.
    pub outputs: usize,
    /// The layers it is computed as, each with its rows of the weight in the order it uses them.
    pub parts: Vec<(Site, Vec<Range<usize>>)>,
}

/// The modules of a model that adapters may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterLayout {
    /// Prefixes that a path may have.
    pub roots: &'static [&'static str],
    /// The modules.
    pub modules: Vec<AdaptableModule>,
    /// The embeddings.
    pub embeddings: Vec<AdaptableEmbedding>,
}

/// An embedding of the checkpoint that a model's own adapters may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptableEmbedding {
    /// Path without the common prefix: `embeddings.word_embeddings`.
    pub path: String,
    /// Rows and columns of the weight.
    pub shape: [usize; 2],
    /// Whether tokens have rows of their own, and not all of them the first one.
    pub of_tokens: bool,
}

/// How an adapter's matrices are held in memory.
#[derive(Clone, Debug)]
pub struct AdapterForm {
    /// The device they are on.
    pub device: Device,
    /// The kind they are converted to; `None`: as they are stored.
    pub kind: Option<GgmlDType>,
    /// The largest rank that is allowed.
    pub max_rank: usize,
}

impl AdaptableModule {
    /// A layer whose rows are used in the order they are stored.
    pub fn whole(path: String, inputs: usize, outputs: usize, site: Site) -> Self {
        let rows = 0..outputs;
        Self { path, inputs, outputs, parts: vec![(site, vec![rows])] }
    }

    fn deltas(
        &self,
        weights: &Weights,
        rank: usize,
        scale: f32,
        form: &AdapterForm,
    ) -> Loaded<Vec<(Site, Delta)>> {
        let down = weights.stored("lora_A.weight", &[rank, self.inputs])?;
        let delta = |(site, rows): &(Site, Vec<Range<usize>>)| {
            let up = weights.stored_rows("lora_B.weight", &[self.outputs, rank], Some(rows))?;
            Ok((*site, Delta::load(weights, [&down, &up], scale, form.kind)?))
        };
        self.parts.iter().map(delta).collect()
    }

    fn is_head(&self) -> bool {
        self.parts.iter().any(|(site, _)| *site == Site::Head)
    }
}

impl AdapterLayout {
    /// Loads an adapter of this model.
    ///
    /// # Errors
    ///
    /// A tensor of a module that is not among these or not among the adapter's targets, of another
    /// shape, or of a higher rank than allowed; the message names it.
    pub fn load(&self, folder: &LoraFolder, form: &AdapterForm) -> Loaded<Adapter> {
        let (mut deltas, mut bytes) = (HashMap::new(), 0);
        for name in folder.modules() {
            let refuse = |reason: String| WeightError::corrupt(folder.path(), reason);
            let module = self.find(name).ok_or_else(|| refuse(self.unknown(name)))?;
            if !folder.config().targets(name, module.is_head()) {
                let reason = "it is none of the modules that adapter_config.json names";
                return Err(refuse(format!("there is an adapter of `{name}`, but {reason}")));
            }
            let (rank, most) = (folder.config().rank(name), form.max_rank);
            if rank > most {
                let message = format!("the rank of `{name}` is {rank}, max-lora-rank is {most}");
                return Err(refuse(message));
            }
            let weights = folder.weights(name, &form.device);
            for (site, delta) in module.deltas(&weights, rank, folder.config().scale(name), form)? {
                if deltas.insert(site, delta).is_some() {
                    return Err(refuse(format!("`{name}` is there under two names")));
                }
            }
            bytes += weights.tally().bytes();
        }
        let embeddings = folder.embeddings().iter().map(|name| self.embedding(folder, name));
        let embeddings = embeddings.collect::<Loaded<Vec<_>>>()?;
        Ok(Adapter::new(deltas, bytes).with_embeddings(embeddings))
    }

    fn embedding(&self, folder: &LoraFolder, name: &str) -> Loaded<EmbeddingDelta> {
        let refuse = |reason: String| WeightError::corrupt(folder.path(), reason);
        let roots = self.roots.iter().filter_map(|root| name.strip_prefix(root));
        let known = |path: &str| self.embeddings.iter().find(|own| own.path == path);
        let module = roots.chain([name]).find_map(known);
        let module = module.ok_or_else(|| refuse(self.unknown(name)))?;
        let [rows, up] = folder.embedding(name)?;
        let (rank, [count, hidden]) = (folder.config().rank(name), module.shape);
        let found = [rows.dims(), up.dims()];
        if found != [&[count, rank][..], &[rank, hidden]] {
            return Err(refuse(format!(
                "the adapter of `{name}` has the dimensions {found:?}, expected [{count}, {rank}] \
                 and [{rank}, {hidden}]"
            )));
        }
        EmbeddingDelta::load([&rows, &up], folder.config().scale(name), module.of_tokens)
    }

    fn find(&self, name: &str) -> Option<&AdaptableModule> {
        let named = |path: &str| self.modules.iter().find(|module| module.path == path);
        let roots = self.roots.iter().filter(|root| !root.is_empty());
        let below = roots.filter_map(|root| name.strip_prefix(root));
        let inner = below.chain([name]).find_map(named);
        // The head lies beside the prefix of layers, perhaps below another prefix.
        let head = || {
            let mut heads = self.modules.iter().filter(|module| module.is_head());
            let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
            heads.find(|module| module.path == last)
        };
        inner.or_else(head)
    }

    fn unknown(&self, name: &str) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for module in &self.modules {
            let last = module.path.rsplit_once('.').map_or(&*module.path, |(_, last)| last);
            if !kinds.contains(&last) {
                kinds.push(last);
            }
        }
        let kinds = kinds.join(", ");
        format!(
            "there is an adapter of `{name}`, adapters can change {kinds} of this model's layers"
        )
    }
}

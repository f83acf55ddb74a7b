//! Sparse attention by blocks: an indexer chooses the blocks of the context that each key head of a layer sees.
//!
//! MiniMax, "MiniMax-M3", 2026. The indexer has a few heads of queries and one key for all of them, normalized and
//! rotated as those of the layer are; see [`select_blocks`].

use candle_core::{Result, Tensor};

use super::spec::BlockIndexerSpec;
use crate::kernels::indexer::{SelectedBlocks, select_blocks};
use crate::kernels::kv_write::{HeadNorms, KvCache, Projections, kv_write};
use crate::layers::forward::{KvLayer, Step};
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, RmsNorm};
use crate::layers::rope::RopeAngles;
use crate::weights::{Loaded, Weights};

/// The projections of an indexer.
#[derive(Clone, Debug)]
pub(super) struct BlockIndexer {
    /// To queries and to the key.
    projections: [Linear; 2],
    norms: [RmsNorm; 2],
    spec: BlockIndexerSpec,
}

impl BlockIndexer {
    /// Loads the indexer of a layer with `hidden` elements of a hidden state.
    pub(super) fn load(weights: &Weights, hidden: usize, spec: BlockIndexerSpec) -> Loaded<Self> {
        let BlockIndexerSpec { heads, dim, norm, tensors: [projections, norms], .. } = spec;
        let project = |name, count| Linear::load(&weights.scope(name), hidden, count * dim, false);
        let norm = |name| -> Loaded<RmsNorm> {
            let Norm::Rms(norm) = Norm::load(&weights.scope(name), dim, norm)? else {
                let message = "an indexer of blocks with another norm is not implemented";
                return Err(candle_core::Error::Msg(message.to_owned()).into());
            };
            Ok(norm)
        };
        Ok(Self {
            projections: [project(projections[0], heads)?, project(projections[1], 1)?],
            norms: [norm(norms[0])?, norm(norms[1])?],
            spec,
        })
    }

    /// What is multiplied with rows.
    pub(super) fn layers(&self) -> &[Linear] {
        &self.projections
    }

    /// The blocks that the rows `x [num_tokens, hidden]` see; their keys are written to `cache`.
    pub(super) fn select(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        cache: &KvLayer,
        step: &Step,
    ) -> Result<SelectedBlocks> {
        let BlockIndexerSpec { heads, dim, choice, .. } = self.spec;
        let rows = x.dim(0)?;
        let [q, k] = Linear::forward_each(self.projections.each_ref(), x)?;
        let (q, k) = (q.reshape((rows, heads, dim))?, k.reshape((rows, 1, dim))?);
        let v = Tensor::zeros((rows, 1, BlockIndexerSpec::UNUSED), q.dtype(), q.device())?;
        let [query, key] = &self.norms;
        let norms = HeadNorms {
            query: query.weight(),
            key: key.weight(),
            eps: query.eps(),
            after_rotation: false,
        };
        let new = Projections { q: &q, k: &k, v: &v };
        let to = KvCache { k: &cache.k, v: &cache.v };
        let q = kv_write(new, angles.rotation(Some(norms)), to, step.kv_slots())?;
        select_blocks(&q, &cache.k, step, choice)
    }
}

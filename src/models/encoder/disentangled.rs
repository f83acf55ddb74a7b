//! DeBERTa's disentangled attention: scores are of what tokens say and of how far apart they are.
//!
//! He et al., "DeBERTa", 2021, section 3.1, and "DeBERTaV3", 2023. Beside the product of a query and a key
//! there are that of the query with a vector of their distance, and that of the key with another one:
//! both vectors are projections of one embedding of distances, which all layers share. Distances up to
//! half of the buckets have one each; further ones share buckets on a logarithmic scale.

use candle_core::{DType, Device, Result as TensorResult, Tensor};
use serde::Deserialize;

use crate::layers::full_attention::Heads;
use crate::layers::linear::Linear;
use crate::layers::norm::LayerNorm;
use crate::models::config::MAX_SIZE;
use crate::models::error::{Result, bad, check_size};
use crate::weights::{Loaded, Weights};

/// What a `config.json` says of distances.
#[derive(Deserialize)]
struct Fields {
    relative_attention: Option<bool>,
    #[serde(default)]
    position_buckets: i64,
    max_relative_positions: Option<i64>,
    max_position_embeddings: usize,
    pos_att_type: Option<Terms>,
    share_att_key: Option<bool>,
    norm_rel_ebd: Option<String>,
    conv_kernel_size: Option<usize>,
}

/// Older files have one text, newer ones a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Terms {
    Joined(String),
    Each(Vec<String>),
}

/// How scores depend on distances, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one option of the files")]
pub(super) struct DistanceSpec {
    /// Buckets of distances to one side: half of the rows of the embedding.
    span: usize,
    /// Half of the buckets, below which each distance has its own, and the distance that shares the last
    /// bucket; `None`: each of the `span` distances has its own.
    logarithmic: Option<(usize, usize)>,
    /// Whether distances are projected by the layers' own projections of queries and keys.
    shared: bool,
    /// Whether a query is multiplied with distances.
    of_queries: bool,
    /// Whether a key is.
    of_keys: bool,
    /// Whether the embedding of distances is normalized.
    norm: bool,
}

impl DistanceSpec {
    /// Checks what a `config.json` says of them.
    pub(super) fn from_config(config: &serde_json::Value) -> Result<Self> {
        let fields = Fields::deserialize(config)?;
        if !fields.relative_attention.unwrap_or(false) {
            let bound = "must be true: positions are those of distances";
            return Err(bad("relative_attention", false, bound));
        }
        if let Some(size) = fields.conv_kernel_size.filter(|size| *size > 0) {
            return Err(bad("conv_kernel_size", size, "must be 0: convolutions are not supported"));
        }
        let most = usize::try_from(fields.max_relative_positions.unwrap_or(-1)).unwrap_or(0);
        let most = if most == 0 { fields.max_position_embeddings } else { most };
        check_size("max_relative_positions", most, 2..=MAX_SIZE)?;
        let buckets = usize::try_from(fields.position_buckets).unwrap_or(0);
        if buckets > 0 {
            check_size("position_buckets", buckets, 4..=MAX_SIZE)?;
            if most - 1 <= buckets / 2 {
                let bound =
                    format!("must be less than {}, twice the longest distance", 2 * (most - 1));
                return Err(bad("position_buckets", buckets, bound));
            }
        }
        let terms = match fields.pos_att_type {
            None => Vec::new(),
            Some(Terms::Each(terms)) => terms,
            Some(Terms::Joined(terms)) => terms.split('|').map(|x| x.trim().to_owned()).collect(),
        };
        if let Some(other) = terms.iter().find(|term| !["c2p", "p2c"].contains(&term.as_str())) {
            return Err(bad("pos_att_type", other, "must be of c2p and p2c"));
        }
        let norms = fields.norm_rel_ebd.unwrap_or_else(|| "none".to_owned()).to_lowercase();
        Ok(Self {
            span: if buckets > 0 { buckets } else { most },
            logarithmic: (buckets > 0).then_some((buckets / 2, most)),
            shared: fields.share_att_key.unwrap_or(false),
            of_queries: terms.iter().any(|term| term == "c2p"),
            of_keys: terms.iter().any(|term| term == "p2c"),
            norm: norms.split('|').any(|norm| norm.trim() == "layer_norm"),
        })
    }

    /// The factor of scores: they are sums of so many products.
    #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
    pub(super) fn scale(&self, heads: Heads) -> f32 {
        let terms = 1 + usize::from(self.of_queries) + usize::from(self.of_keys);
        1.0 / ((heads.dim * terms) as f32).sqrt()
    }

    /// The row of the embedding for a key which stands `distance` before the query.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "distances and buckets are small"
    )]
    fn row(&self, before: bool, distance: usize) -> usize {
        let bucket = match self.logarithmic {
            Some((half, most)) if distance > half => {
                let half_f = half as f32;
                let share = (distance as f32 / half_f).ln() / ((most - 1) as f32 / half_f).ln();
                (share * (half - 1) as f32).ceil() as usize + half
            }
            _ => distance,
        };
        if before {
            (self.span + bucket).min(2 * self.span - 1)
        } else {
            self.span.saturating_sub(bucket)
        }
    }

    /// The rows for a text of this length, by the query's place less the key's, from the lowest on.
    fn rows(&self, length: usize) -> Vec<usize> {
        let behind = (1..length).rev().map(|distance| self.row(false, distance));
        behind.chain((0..length).map(|distance| self.row(true, distance))).collect()
    }

    /// The embedding of distances, `[2 * span, hidden]`.
    pub(super) fn embedding(&self, hidden: usize, eps: f32, weights: &Weights) -> Loaded<Tensor> {
        let shape = [2 * self.span, hidden];
        let table = weights.dense("encoder.rel_embeddings.weight", &shape, DType::F32)?;
        if !self.norm {
            return Ok(table);
        }
        let norm = LayerNorm::load(&weights.scope("encoder.LayerNorm"), hidden, eps)?;
        Ok(norm.forward(&table.contiguous()?)?)
    }
}

/// The vectors of distances in one layer, each `[heads, head_dim, 2 * span]`.
pub(super) struct Distances {
    spec: DistanceSpec,
    /// Which queries are multiplied with.
    keys: Option<Tensor>,
    /// Which keys are multiplied with.
    queries: Option<Tensor>,
    scale: f32,
}

impl Distances {
    /// Projects the `embedding` of distances by the projections of queries and keys, or by those that
    /// the layer's attention has for it.
    pub(super) fn load(
        spec: &DistanceSpec,
        heads: Heads,
        embedding: &Tensor,
        [query, key]: [&Linear; 2],
        weights: &Weights,
    ) -> Loaded<Self> {
        let width = heads.count * heads.dim;
        let project = |wanted: bool, shared: &Linear, name: &str| -> Loaded<Option<Tensor>> {
            if !wanted {
                return Ok(None);
            }
            let projected = if spec.shared {
                shared.forward(embedding)?
            } else {
                let own = Linear::load(&weights.scope(name), embedding.dim(1)?, width, true)?;
                own.forward(embedding)?
            };
            let by_head = projected.reshape((2 * spec.span, heads.count, heads.dim))?;
            Ok(Some(by_head.permute((1, 2, 0))?.contiguous()?))
        };
        Ok(Self {
            keys: project(spec.of_queries, key, "pos_key_proj")?,
            queries: project(spec.of_keys, query, "pos_query_proj")?,
            scale: spec.scale(heads),
            spec: spec.clone(),
        })
    }

    /// The factor of scores.
    pub(super) fn scale(&self) -> f32 {
        self.scale
    }

    /// What the scores of a text have more, `[heads, length, length]` by query and key, of its queries and
    /// keys, both `[heads, length, head_dim]`.
    pub(super) fn bias(&self, q: &Tensor, k: &Tensor) -> TensorResult<Tensor> {
        let (heads, length, _) = q.dims3()?;
        let rows = self.spec.rows(length);
        let width = 2 * self.spec.span;
        let product = |x: &Tensor, distances: Option<&Tensor>| -> TensorResult<_> {
            let Some(distances) = distances else { return Ok(None) };
            x.matmul(distances)?.flatten_all()?.to_vec1::<f32>().map(Some)
        };
        let of_queries = product(q, self.keys.as_ref())?;
        let of_keys = product(k, self.queries.as_ref())?;
        let mut bias = vec![0.0; heads * length * length];
        for (index, scores) in bias.chunks_exact_mut(length).enumerate() {
            let (head, query) = (index / length, index % length);
            // Of the first key, whose place is the lowest; one less for each that follows.
            let rows = rows[query..query + length].iter().rev();
            for (key, (score, row)) in scores.iter_mut().zip(rows).enumerate() {
                let of_query = of_queries.as_ref().map_or(0.0, |all| all[index * width + row]);
                let at = (head * length + key) * width + row;
                let of_key = of_keys.as_ref().map_or(0.0, |all| all[at]);
                *score = (of_query + of_key) * self.scale;
            }
        }
        Tensor::from_vec(bias, (heads, length, length), &Device::Cpu)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(changes: &serde_json::Value) -> Result<DistanceSpec> {
        let mut config = json!({
            "relative_attention": true, "position_buckets": 8, "max_position_embeddings": 64,
            "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
        });
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        DistanceSpec::from_config(&config)
    }

    /// Beside `make_log_bucket_position` of transformers with 8 buckets of at most 64.
    #[test]
    fn far_distances_share_buckets() {
        let [own, plain] = [8, -1].map(|size| spec(&json!({"position_buckets": size})).unwrap());
        let near: Vec<usize> = (0..5).map(|distance| own.row(true, distance)).collect();
        assert_eq!(near, [8, 9, 10, 11, 12]);
        let far: Vec<usize> = [5, 10, 11, 25, 26, 63].map(|far| own.row(true, far)).to_vec();
        assert_eq!(far, [13, 13, 14, 14, 15, 15]);
        let behind: Vec<usize> = [1, 4, 5, 26, 63, 500].map(|far| own.row(false, far)).to_vec();
        assert_eq!(behind, [7, 4, 3, 1, 1, 0]);
        assert_eq!(own.rows(3), [6, 7, 8, 9, 10]);
        assert_eq!([plain.row(true, 63), plain.row(true, 64), plain.row(false, 70)], [127, 127, 0]);
    }

    #[test]
    fn what_is_not_computed_is_named() {
        for (changes, expected) in [
            (json!({"relative_attention": false}), "`relative_attention`"),
            (json!({"conv_kernel_size": 3}), "`conv_kernel_size` is 3"),
            (json!({"pos_att_type": "c2p|p2p"}), "`pos_att_type` is \"p2p\""),
            (json!({"position_buckets": 200}), "`position_buckets` is 200, must be less than 126"),
            (json!({"position_buckets": 2}), "`position_buckets` is 2"),
        ] {
            let error = spec(&changes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let older =
            spec(&json!({"pos_att_type": "c2p|p2c", "norm_rel_ebd": "layer_norm"})).unwrap();
        assert!(older.of_queries && older.of_keys && older.norm && !older.shared);
        assert!(!spec(&json!({"pos_att_type": null})).unwrap().of_keys);
    }
}

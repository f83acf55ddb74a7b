//! The rows of stored tensors that project to queries, keys and values.
//!
//! The rotation pairs element `i` of a head's first half with element `i` of its second. Where a
//! checkpoint interleaves pairs, the rows of its query and key projections are reordered as they
//! are loaded; scores don't change when queries and keys are reordered alike.

use std::ops::Range;

use super::spec::{AttentionSpec, GateTensor, QkvTensors};

/// The rows of a stored linear layer that project to queries, keys or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QkvSource {
    /// Name of the linear layer, below the attention.
    pub name: &'static str,
    /// All rows of its weight.
    pub rows: usize,
    /// The rows of queries, keys or values, in the order in which they are used.
    pub ranges: Vec<Range<usize>>,
}

impl QkvSource {
    /// The sources of queries, keys and values.
    pub fn all(spec: &AttentionSpec) -> [Self; 3] {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, .. } = *spec;
        let counts = [num_heads, num_kv_heads, num_kv_heads];
        let order = head_order(spec);
        [0, 1, 2].map(|which| {
            let count = counts[which];
            let (name, total, starts) = match spec.qkv {
                QkvTensors::Separate(names) if which == 0 && gates_queries(spec) => {
                    (names[0], 2 * count, (0..2 * count).step_by(2).collect())
                }
                QkvTensors::Separate(names) => {
                    (names[which], count, (0..count).collect::<Vec<_>>())
                }
                QkvTensors::Stacked(name) => {
                    let before: usize = counts[..which].iter().sum();
                    (name, counts.iter().sum(), (before..before + count).collect())
                }
                QkvTensors::Grouped(name) => (
                    name,
                    counts.iter().sum(),
                    grouped(num_heads / num_kv_heads, num_kv_heads, which),
                ),
            };
            let ranges = match &order {
                Some(order) if which < 2 => starts
                    .iter()
                    .flat_map(|head| order.iter().map(move |i| head * head_dim + i))
                    .map(|row| row..row + 1)
                    .collect(),
                _ => starts.iter().map(|head| head * head_dim..(head + 1) * head_dim).collect(),
            };
            Self { name, rows: total * head_dim, ranges }
        })
    }

    /// The source of the gates of heads.
    pub fn gate(spec: &AttentionSpec) -> Option<Self> {
        let AttentionSpec { num_heads, head_dim, qkv, .. } = *spec;
        let whole = |name, rows| {
            let all = 0..rows;
            Self { name, rows, ranges: vec![all] }
        };
        Some(match (spec.gate?.tensor, qkv) {
            (GateTensor::Elements(name), _) => whole(name, num_heads * head_dim),
            (GateTensor::Heads(name), _) => whole(name, num_heads),
            (GateTensor::BehindQueries, QkvTensors::Separate([name, ..])) => {
                let parts = (0..num_heads).map(|head| 2 * head + 1);
                let ranges = parts.map(|part| part * head_dim..(part + 1) * head_dim).collect();
                Self { name, rows: 2 * num_heads * head_dim, ranges }
            }
            (GateTensor::BehindQueries, _) => return None,
        })
    }
}

/// Whether the query projection has the gates too.
fn gates_queries(spec: &AttentionSpec) -> bool {
    spec.gate.is_some_and(|gate| gate.tensor == GateTensor::BehindQueries)
}

/// Indices of the heads of queries (0), keys (1) or values (2), where each key head follows `group`
/// query heads and precedes its value head.
fn grouped(group: usize, kv_heads: usize, which: usize) -> Vec<usize> {
    let within = match which {
        0 => 0..group,
        1 => group..group + 1,
        _ => group + 1..group + 2,
    };
    (0..kv_heads).flat_map(|head| within.clone().map(move |i| head * (group + 2) + i)).collect()
}

/// The order of a stored head's elements in which the rotation pairs halves; `None` if they are
/// stored so.
pub(super) fn head_order(spec: &AttentionSpec) -> Option<Vec<usize>> {
    let rotated = spec.interleaved_rope?;
    Some(deinterleaved(rotated).chain(rotated..spec.head_dim).collect())
}

/// The indices of the first elements of interleaved pairs, then those of the second ones.
pub(super) fn deinterleaved(rotated: usize) -> impl Iterator<Item = usize> {
    (0..rotated).step_by(2).chain((1..rotated).step_by(2))
}

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
                    let gates = if gates_come_first(spec) { num_heads } else { 0 };
                    let before = gates + counts[..which].iter().sum::<usize>();
                    let total = gates + counts.iter().sum::<usize>();
                    (name, total, (before..before + count).collect())
                }
                QkvTensors::InParts(name, parts) => {
                    (name, counts.iter().sum(), in_parts(counts, parts, which))
                }
                QkvTensors::Grouped(name) => (
                    name,
                    counts.iter().sum(),
                    grouped(num_heads / num_kv_heads, num_kv_heads, which),
                ),
            };
            let dim = if which == 2 { spec.value_dim() } else { head_dim };
            if which == 2 && spec.difference.is_some() {
                let (half, rows) = (num_kv_heads / 2, num_kv_heads * head_dim);
                let pair = |head: usize| [head % half, head % half + half];
                let heads = (0..num_kv_heads).flat_map(pair);
                let ranges = heads.map(|head| head * head_dim..(head + 1) * head_dim).collect();
                return Self { name, rows, ranges };
            }
            let ranges = match &order {
                Some(order) if which < 2 => starts
                    .iter()
                    .flat_map(|head| order.iter().map(move |i| head * head_dim + i))
                    .map(|row| row..row + 1)
                    .collect(),
                _ => starts.iter().map(|head| head * dim..(head + 1) * dim).collect(),
            };
            Self { name, rows: total * dim, ranges }
        })
    }

    /// The source of the gates of heads.
    pub fn gate(spec: &AttentionSpec) -> Option<Self> {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, qkv, .. } = *spec;
        let whole = |name, rows| {
            let all = 0..rows;
            Self { name, rows, ranges: vec![all] }
        };
        Some(match (spec.gate?.tensor, qkv) {
            (GateTensor::Elements(name), _) => {
                whole(name, num_heads * spec.latent.map_or(head_dim, |latent| latent.value_dim))
            }
            (GateTensor::Heads(name), _) => whole(name, num_heads),
            (GateTensor::BehindQueries, QkvTensors::Separate([name, ..])) => {
                let parts = (0..num_heads).map(|head| 2 * head + 1);
                let ranges = parts.map(|part| part * head_dim..(part + 1) * head_dim).collect();
                Self { name, rows: 2 * num_heads * head_dim, ranges }
            }
            (GateTensor::BeforeQueries, QkvTensors::Stacked(name)) => {
                let gates = 0..num_heads * head_dim;
                let rows = 2 * (num_heads + num_kv_heads) * head_dim;
                Self { name, rows, ranges: vec![gates] }
            }
            (GateTensor::BehindQueries | GateTensor::BeforeQueries, _) => return None,
        })
    }
}

/// Whether the query projection has the gates too.
fn gates_queries(spec: &AttentionSpec) -> bool {
    spec.gate.is_some_and(|gate| gate.tensor == GateTensor::BehindQueries)
}

/// Whether the tensor of all projections begins with the gates.
fn gates_come_first(spec: &AttentionSpec) -> bool {
    spec.gate.is_some_and(|gate| gate.tensor == GateTensor::BeforeQueries)
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

/// Indices of the heads of queries (0), keys (1) or values (2) in a tensor of equal `parts`, each of
/// which has its share of the query heads, then of the value heads, then of the key heads.
fn in_parts(counts: [usize; 3], parts: usize, which: usize) -> Vec<usize> {
    let [queries, keys, values] = counts.map(|count| count / parts);
    let within = match which {
        0 => 0..queries,
        1 => queries + values..queries + values + keys,
        _ => queries..queries + values,
    };
    let part = queries + keys + values;
    (0..parts).flat_map(|index| within.clone().map(move |i| index * part + i)).collect()
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

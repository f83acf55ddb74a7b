//! The linear layers of a decoder that LoRA adapters may change, as its checkpoint names them.
//!
//! Experts are left out: their weights are stored in too many ways. So are the inputs of latent
//! attention, which are not multiplied as they are stored, and those of convolutions.

use super::spec::DecoderSpec;
use crate::layers::adapter::{Projection, Site};
use crate::layers::attention::{AttentionSpec, QkvSource};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::MoeSpec;
use crate::models::adapter::{AdaptableEmbedding, AdaptableModule, AdapterLayout};

/// The modules that adapters may change.
pub(super) fn layout(spec: &DecoderSpec) -> AdapterLayout {
    let mut modules = Vec::new();
    let first = (0..spec.attention.len()).filter(|index| spec.first_place(*index) == *index);
    for (layer, index) in first.enumerate() {
        let stored = spec.stored_layer(index);
        let below = |name: &str| format!("{stored}.{name}");
        let site = |projection| Site::Layer(layer, projection);
        if spec.attends(index) {
            let module = spec.module(index, spec.names.attention);
            let path = |name: &str| below(&format!("{module}.{name}"));
            modules.extend(attention(&spec.attention[index], path, site));
        }
        let experts = spec.moe.as_ref().filter(|moe| moe.layers[index]);
        let mlp = spec.mlp(index);
        let beside = |moe: &MoeSpec| spec.pairs || moe.parallel_dense.is_some();
        if mlp.intermediate_size > 0 && experts.is_none_or(beside) {
            let path = |name: &'static str| below(&spec.of_mlp(index, name));
            modules.extend(feed_forward(mlp, path, site));
        }
    }
    let (head, hidden) = (spec.names.head.to_owned(), spec.mlp.hidden_size);
    modules.push(AdaptableModule::whole(head, hidden, spec.vocab_size, Site::Head));
    AdapterLayout { roots: spec.names.roots, modules, embeddings: embeddings(spec) }
}

/// The embeddings that a model's own adapters may change: nothing is done with them but to add them up.
fn embeddings(spec: &DecoderSpec) -> Vec<AdaptableEmbedding> {
    if spec.embedding_scale.to_bits() != 1f32.to_bits() {
        return Vec::new();
    }
    let hidden = spec.mlp.hidden_size;
    let one = |path: &str, rows: usize, of_tokens: bool| AdaptableEmbedding {
        path: path.to_owned(),
        shape: [rows, hidden],
        of_tokens,
    };
    let rows = spec.embedding_rows.unwrap_or(spec.vocab_size);
    let types = spec.token_types.map(|(path, rows)| one(path, rows, false));
    [one(spec.names.embedding, rows, true)].into_iter().chain(types).collect()
}

fn attention(
    spec: &AttentionSpec,
    path: impl Fn(&str) -> String,
    site: impl Fn(Projection) -> Site,
) -> Vec<AdaptableModule> {
    let mut modules = Vec::new();
    if spec.routed.is_some() {
        return modules;
    }
    let mut sources = Vec::from(QkvSource::all(spec));
    match (spec.latent, spec.kv_from_layer) {
        (Some(_), _) => sources.clear(),
        (None, None) if spec.convolution.is_some() => sources.clear(),
        (None, Some(_)) => sources.truncate(1),
        (None, None) => sources.extend(QkvSource::gate(spec)),
    }
    let projections = [Projection::Query, Projection::Key, Projection::Value, Projection::HeadGate];
    for (source, projection) in sources.into_iter().zip(projections) {
        let path = path(source.name);
        let part = (site(projection), source.ranges);
        match modules.iter_mut().find(|module: &&mut AdaptableModule| module.path == path) {
            Some(stacked) => stacked.parts.push(part),
            None => modules.push(AdaptableModule {
                path,
                inputs: spec.hidden_size,
                outputs: source.rows,
                parts: vec![part],
            }),
        }
    }
    let head = spec.latent.map_or(spec.value_dim(), |latent| latent.value_dim);
    let (inner, output) = (spec.num_heads * head, site(Projection::Output));
    modules.push(AdaptableModule::whole(path(spec.output), inner, spec.hidden_size, output));
    modules
}

fn feed_forward(
    spec: MlpSpec,
    path: impl Fn(&'static str) -> String,
    site: impl Fn(Projection) -> Site,
) -> Vec<AdaptableModule> {
    let MlpSpec { hidden_size: hidden, intermediate_size: inner, .. } = spec;
    let whole = |name, inputs, outputs, projection| {
        AdaptableModule::whole(path(name), inputs, outputs, site(projection))
    };
    match spec.tensors {
        MlpTensors::Gated([gate, up, down]) => vec![
            whole(gate, hidden, inner, Projection::Gate),
            whole(up, hidden, inner, Projection::Up),
            whole(down, inner, hidden, Projection::Down),
        ],
        MlpTensors::GateAndUp([both, down]) | MlpTensors::UpAndGate([both, down]) => {
            let (first, second) = (0..inner, inner..2 * inner);
            let gate_is_first = matches!(spec.tensors, MlpTensors::GateAndUp(_));
            let [gates, ups] = if gate_is_first { [first, second] } else { [second, first] };
            let part = |projection, rows| (site(projection), vec![rows]);
            let parts = vec![part(Projection::Gate, gates), part(Projection::Up, ups)];
            let both =
                AdaptableModule { path: path(both), inputs: hidden, outputs: 2 * inner, parts };
            vec![both, whole(down, inner, hidden, Projection::Down)]
        }
        MlpTensors::Plain([up, down]) => vec![
            whole(up, hidden, inner, Projection::Up),
            whole(down, inner, hidden, Projection::Down),
        ],
    }
}

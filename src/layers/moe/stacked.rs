//! Loading of experts from tensors with the matrices of all of them.

use std::ops::Range;

use candle_core::{DType, Device, Tensor};

use super::spec::StackedTensors;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::mlp::{Mlp, MlpSpec};
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Loads the experts of one layer.
pub(super) fn load(
    weights: &Weights,
    tensors: StackedTensors,
    spec: MlpSpec,
    count: usize,
) -> Loaded<Vec<Mlp>> {
    let MlpSpec { hidden_size: hidden, intermediate_size: inner, .. } = spec;
    let compressed = tensors.compressed.filter(|names| weights.contains(names[0]));
    let transposed = tensors.transposed && compressed.is_none();
    let names = compressed.unwrap_or(tensors.names);
    let biases = tensors.biases.map_or([None; 2], |names| names.map(Some));
    let load = |name: &str, bias: Option<&str>, outputs, inputs| {
        // Downs of flat experts are transposed.
        let transposed = transposed || tensors.flat && name == names[1];
        let [rows, columns] = if transposed { [inputs, outputs] } else { [outputs, inputs] };
        let matrices = if tensors.flat {
            weights.stored(name, &[count * rows, columns])?
        } else {
            weights.stored(name, &[count, rows, columns])?
        };
        let bias = bias.map(|name| {
            let stored = weights.stored(name, &[count, outputs])?;
            Ok::<_, WeightError>(stored.to_tensor(DType::F32)?)
        });
        Ok::<_, WeightError>(Stack {
            matrices,
            bias: bias.transpose()?,
            outputs,
            inputs,
            transposed,
        })
    };
    let down = load(names[1], biases[1], hidden, inner)?;
    let of_gates = if tensors.ups.is_some() || tensors.plain { inner } else { 2 * inner };
    let first = load(names[0], biases[0], of_gates, hidden)?;
    let second = tensors.ups.map(|name| load(name, None, inner, hidden)).transpose()?;
    let (gates, ups) = if tensors.interleaved {
        let every_second = |first: usize| (0..inner).map(|i| one(first + 2 * i)).collect();
        (every_second(0), every_second(1))
    } else if second.is_some() || tensors.plain {
        let [all, same] = [0..inner, 0..inner];
        (vec![all], vec![same])
    } else {
        let (first, second) = (0..inner, inner..2 * inner);
        (vec![first], vec![second])
    };
    let expert = |index| {
        let gate = (!tensors.plain).then(|| first.layer(weights, index, &gates)).transpose()?;
        let up = second.as_ref().unwrap_or(&first).layer(weights, index, &ups)?;
        let all = 0..hidden;
        let down = down.layer(weights, index, std::slice::from_ref(&all))?;
        Ok(Mlp::new(gate, up, down, &spec))
    };
    (0..count).map(expert).collect()
}

/// The range of one row.
fn one(row: usize) -> Range<usize> {
    row..row + 1
}

/// The same linear layer of every expert.
struct Stack {
    matrices: StoredTensor,
    /// `[experts, outputs]`
    bias: Option<Tensor>,
    outputs: usize,
    inputs: usize,
    transposed: bool,
}

impl Stack {
    /// The linear layer of expert `index`, with some of its outputs.
    fn layer(&self, weights: &Weights, index: usize, outputs: &[Range<usize>]) -> Loaded<Linear> {
        let own = |height: usize| {
            move |rows: &Range<usize>| index * height + rows.start..index * height + rows.end
        };
        let matrix = if self.transposed {
            let whole = self.matrices.rows(&[own(self.inputs)(&(0..self.inputs))])?;
            whole.transposed()?.rows(outputs)?
        } else {
            self.matrices.rows(&outputs.iter().map(own(self.outputs)).collect::<Vec<_>>())?
        };
        let bias = match &self.bias {
            None => None,
            Some(bias) => {
                let rows = outputs.iter().flat_map(Clone::clone).map(u32::try_from);
                let rows = rows.collect::<Result<Vec<_>, _>>().map_err(candle_core::Error::wrap)?;
                let rows = Tensor::new(rows, &Device::Cpu)?;
                Some(bias.get(index)?.index_select(&rows, 0)?.to_device(weights.device())?)
            }
        };
        // Weights that are quantized in the file keep their kind.
        let matrix = Matrix::from_stored(weights, &matrix, weights.rounding())?;
        Ok(Linear::from_matrix(matrix, bias)?)
    }
}

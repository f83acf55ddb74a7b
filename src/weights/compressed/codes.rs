//! A matrix in codes, and the blocks it becomes.

use candle_core::quantized::GgmlDType;
use half::f16;

use super::parts::{Fault, dense};
use crate::stored::StoredTensor;

/// Elements of a block of the kinds that codes become.
const BLOCK: usize = 32;
/// The smallest f16 with a full mantissa.
const LEAST_SCALE: f32 = 6.103_515_6e-5;

/// A matrix `[outputs, inputs]` whose elements are `(code - zero) * scale`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Codes {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// Bits of a code: 4 or 8.
    pub(super) bits: usize,
    /// `[outputs, inputs]`
    pub(super) elements: Vec<u8>,
    pub(super) groups: usize,
    /// `[outputs, groups]`
    pub(super) zeros: Vec<u8>,
    /// `[outputs, groups]`
    pub(super) scales: Vec<f32>,
    /// `[inputs]`: the group of each, unless they are equal runs in order.
    pub(super) group_of: Option<Vec<usize>>,
}

impl Codes {
    /// The matrix in the smallest kind that holds it: blocks where groups are whole blocks.
    pub(super) fn stored(&self) -> Result<StoredTensor, Fault> {
        self.check()?;
        let run = self.inputs / self.groups;
        let whole_blocks = self.group_of.is_none() && run.is_multiple_of(BLOCK);
        let exact = self.scales.iter().all(|scale| {
            let size = scale.abs();
            size == 0.0 || (LEAST_SCALE..=f32::from(f16::MAX) / 256.0).contains(&size)
        });
        let middle = 1u8 << (self.bits - 1);
        let symmetric = self.zeros.iter().all(|zero| *zero == middle);
        Ok(match (self.bits, symmetric) {
            (4, true) if whole_blocks && exact => self.blocks(GgmlDType::Q4_0),
            (4, false) if whole_blocks && exact => self.blocks(GgmlDType::Q4_1),
            (8, true) if whole_blocks && exact => self.blocks(GgmlDType::Q8_0),
            _ => {
                let kind = if exact { GgmlDType::F16 } else { GgmlDType::BF16 };
                dense(kind, [self.outputs, self.inputs], &self.values())
            }
        })
    }

    fn check(&self) -> Result<(), Fault> {
        let Self { outputs, inputs, groups, .. } = *self;
        let expected = outputs * groups;
        if outputs == 0 || inputs == 0 || groups == 0 || self.elements.len() != outputs * inputs {
            return Err(Fault::new("qweight", format!("{outputs} outputs of {inputs} inputs")));
        }
        if self.zeros.len() != expected || self.scales.len() != expected {
            let reason = format!(
                "{} scales and {} zero points for {outputs} outputs with {groups} groups",
                self.scales.len(),
                self.zeros.len()
            );
            return Err(Fault::new("scales", reason));
        }
        match &self.group_of {
            None if !inputs.is_multiple_of(groups) => {
                Err(Fault::new("scales", format!("{groups} groups don't divide {inputs} inputs")))
            }
            Some(group_of)
                if group_of.len() != inputs || group_of.iter().any(|group| *group >= groups) =>
            {
                Err(Fault::new("g_idx", format!("doesn't name one of {groups} groups per input")))
            }
            _ => Ok(()),
        }
    }

    /// The group of an input.
    fn group(&self, input: usize) -> usize {
        match &self.group_of {
            Some(group_of) => group_of[input],
            None => input / (self.inputs / self.groups),
        }
    }

    /// All elements of the matrix, dequantized.
    pub(super) fn values(&self) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.elements.len());
        for (output, row) in self.elements.chunks_exact(self.inputs).enumerate() {
            values.extend(row.iter().enumerate().map(|(input, code)| {
                let at = output * self.groups + self.group(input);
                (f32::from(*code) - f32::from(self.zeros[at])) * self.scales[at]
            }));
        }
        values
    }

    /// Blocks of 32 with a scale each: Q4_0 and Q8_0 around their middle, Q4_1 with a minimum.
    fn blocks(&self, kind: GgmlDType) -> StoredTensor {
        let mut bytes = Vec::with_capacity(self.elements.len() / BLOCK * kind.type_size());
        for (output, row) in self.elements.chunks_exact(self.inputs).enumerate() {
            for (block, codes) in row.chunks_exact(BLOCK).enumerate() {
                let at = output * self.groups + self.group(block * BLOCK);
                let scale = self.scales[at];
                bytes.extend(f16::from_f32(scale).to_le_bytes());
                if kind == GgmlDType::Q4_1 {
                    let least = -f32::from(self.zeros[at]) * scale;
                    bytes.extend(f16::from_f32(least).to_le_bytes());
                }
                if kind == GgmlDType::Q8_0 {
                    // From 0..=255 around 128 to -128..=127.
                    bytes.extend(codes.iter().map(|code| code ^ 0x80));
                } else {
                    let (low, high) = codes.split_at(BLOCK / 2);
                    bytes.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
                }
            }
        }
        StoredTensor::owned(kind, vec![self.outputs, self.inputs], bytes)
    }
}

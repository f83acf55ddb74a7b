//! Numbers in the place of those that were not fetched: a model of them takes as long as the real one.

use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use half::{bf16, f16};

use super::error::WeightError;
use super::stored::StoredTensor;
use super::tensors::{Outline, TensorSource};

/// Bytes of the largest tensor that gets numbers: routers of experts have fewer. Others are zeros, which take as
/// long.
const MOST_BYTES: usize = 16 << 20;
/// What numbers of matrices are less than: products of them with normalized states stay small.
const BOUND: f32 = 0.05;

/// Tensors whose zeros are replaced where they would decide how long a step takes: routers of zeros give all
/// tokens to the same experts. Vectors are ones, small matrices are random, the same each time.
pub(crate) struct MadeUp(pub(crate) Arc<dyn TensorSource>);

impl TensorSource for MadeUp {
    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        let stored = self.0.read(name)?;
        let (kind, dims) = (stored.kind(), stored.dims().to_vec());
        let encode: fn(f32, &mut Vec<u8>) = match kind.ggml() {
            Some(GgmlDType::F32) => |number, to| to.extend(number.to_le_bytes()),
            Some(GgmlDType::F16) => |number, to| to.extend(f16::from_f32(number).to_le_bytes()),
            Some(GgmlDType::BF16) => |number, to| to.extend(bf16::from_f32(number).to_le_bytes()),
            _ => return Ok(stored),
        };
        let size = stored.bytes().len();
        if size > MOST_BYTES {
            return Ok(stored);
        }
        let mut bytes = Vec::with_capacity(size);
        let mut state = 1u64;
        for _ in 0..dims.iter().product::<usize>() {
            encode(if dims.len() < 2 { 1.0 } else { random(&mut state) }, &mut bytes);
        }
        Ok(StoredTensor::owned(kind, dims, bytes))
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.0.whole_numbers(name)
    }

    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        self.0.outline(name)
    }

    fn origin(&self, name: &str) -> String {
        self.0.origin(name)
    }

    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn total_bytes(&self) -> u64 {
        self.0.total_bytes()
    }

    fn release_pages(&self) {
        self.0.release_pages();
    }
}

/// The next number of a linear congruential generator (Knuth's MMIX), between minus and plus [`BOUND`].
fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    #[expect(clippy::cast_precision_loss, reason = "24 bits")]
    let unit = (*state >> 40) as f32 / (1u64 << 24) as f32;
    (2.0 * unit - 1.0) * BOUND
}

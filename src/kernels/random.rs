//! Pseudo-random numbers for tests, the same at every run.

use candle_core::{Device, Shape, Tensor};
use sconce_blocks::Coded;

/// A generator (SplitMix64: Steele et al., 2014).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// A float from -2 to 2.
    pub(super) fn float(&mut self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "24 bits")]
        let unit = (self.next() >> 40) as f32 / (1u64 << 24) as f32;
        unit * 4.0 - 2.0
    }

    pub(super) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// An f32 tensor on the CPU.
    pub(super) fn tensor(&mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let values = self.floats(shape.elem_count());
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    /// Blocks of a kind whose numbers are codes: random ones, but for a finite scale.
    pub(super) fn coded(&mut self, kind: Coded, blocks: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..blocks * kind.type_size()).map(|_| self.next().to_le_bytes()[0]).collect();
        for block in bytes.chunks_exact_mut(kind.type_size()) {
            let scale = half::f16::from_f32(self.float() / 50.0).to_le_bytes();
            match kind {
                Coded::Nvfp4 => {}
                // A power of two from 2^-14 to 2^1.
                Coded::Mxfp4 => block[0] = 113 + block[0] % 16,
                // In the upper four bits of four words.
                Coded::Iq1M => {
                    let [low, high] = scale;
                    for (i, four) in [low & 15, low >> 4, high & 15, high >> 4].iter().enumerate() {
                        block[49 + 2 * i] = block[49 + 2 * i] & 15 | four << 4;
                    }
                }
                Coded::Tq1_0 => block[52..54].copy_from_slice(&scale),
                Coded::Tq2_0 => block[64..66].copy_from_slice(&scale),
                _ => block[..2].copy_from_slice(&scale),
            }
        }
        bytes
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i + 1);
            items.swap(i, j);
        }
    }
}

/// All elements of an f32 tensor.
pub(super) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// All elements of an f32 tensor, to be compared exactly.
pub(super) fn bits(tensor: &Tensor) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// Fails if two tensors differ by more than `tolerance` times the size of the numbers (at least
/// one).
#[track_caller]
pub(super) fn assert_close(a: &Tensor, b: &Tensor, tolerance: f32) {
    assert_eq!(a.dims(), b.dims());
    for (i, (a, b)) in values(a).into_iter().zip(values(b)).enumerate() {
        let bound = tolerance * a.abs().max(b.abs()).max(1.0);
        assert!((a - b).abs() <= bound, "element {i}: {a} and {b} differ by more than {bound}");
    }
}

//! Elements of 8 bits for the KV cache: E4M3, a sign, 4 bits of exponent and 3 of mantissa, as in
//! Micikevicius et al., "FP8 Formats for Deep Learning", 2022. There are no infinities: what is
//! beyond the largest number, 448, becomes that.

use float8::F8E4M3;
use half::f16;

use crate::cpu::{Element, LANES, Lanes};

/// The bits of NaN without the sign.
const NAN: u8 = 0x7f;
/// Factor from the value of an f16 to that of an E4M3 with the same bits: their exponents' biases
/// differ by 8.
const FROM_F16: f32 = 256.0;
/// The smallest number with a full mantissa.
const LEAST_NORMAL: f32 = 0.015_625;
/// Distance between the bits of an f32 with 3 bits of mantissa and those of the same E4M3: their
/// exponents' biases differ by 120.
const BIAS: u32 = 120 << 3;
/// Adding this to an f32 below [`LEAST_NORMAL`] rounds it to a multiple of 2^-9.
const TO_STEPS: f32 = 16384.0;

impl Element for F8E4M3 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        let halves = x.map(|x| {
            let (sign, rest) = (x.to_bits() & 0x80, x.to_bits() & NAN);
            let nan = if rest == NAN { 0x7c00 } else { 0 };
            f16::from_bits(u16::from(sign) << 8 | u16::from(rest) << 7 | nan)
        });
        lanes.mul(lanes.load_f16(&halves), lanes.splat(FROM_F16))
    }

    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        let mut floats = [0.0; LANES];
        lanes.store(v, &mut floats);
        floats.map(|x| Self::from_bits(narrowed(x)))
    }
}

/// The bits of the nearest E4M3, ties to even.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "what is left has 8 bits")]
fn narrowed(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let size = if x.abs() < 448.0 { x.abs() } else { 448.0 };
    let bits = size.to_bits();
    let normal = ((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20).wrapping_sub(BIAS);
    let steps = (size + TO_STEPS).to_bits() - TO_STEPS.to_bits();
    let code = if size < LEAST_NORMAL { steps } else { normal };
    sign | if x.is_nan() { NAN } else { code as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Kernel, Level, Products};
    use crate::random::Random;

    struct Widen<'a>(&'a [F8E4M3; LANES], &'a mut [f32; LANES]);

    impl Kernel for Widen<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            l.store(F8E4M3::load(l, self.0), self.1);
        }
    }

    #[test]
    fn every_byte_widens_exactly() {
        for level in Level::available() {
            for first in (0..=u8::MAX).step_by(LANES) {
                let codes: [_; LANES] =
                    std::array::from_fn(|i| F8E4M3::from_bits(first + u8::try_from(i).unwrap()));
                let mut wide = [0.0; LANES];
                level.run(Widen(&codes, &mut wide));
                for (code, wide) in codes.into_iter().zip(wide) {
                    let exact = code.to_f32();
                    assert!(
                        wide.to_bits() == exact.to_bits() || wide.is_nan() && exact.is_nan(),
                        "{:#x} is {exact}, not {wide}",
                        code.to_bits()
                    );
                }
            }
        }
    }

    #[test]
    fn narrowing_rounds_as_the_float8_crate_does() {
        let check = |x: f32| {
            let (ours, exact) = (narrowed(x), F8E4M3::from_f32(x).to_bits());
            if x.is_nan() {
                assert_eq!(ours & NAN, NAN);
            } else {
                assert_eq!(ours, exact, "{x}");
            }
        };
        // Every number and every tie between two, with their neighbours.
        for code in 0..0x7e {
            let at = |code| F8E4M3::from_bits(code).to_f32();
            for middle in [at(code), f32::midpoint(at(code), at(code + 1))] {
                for bits in [middle.to_bits().saturating_sub(1), middle.to_bits()] {
                    for x in [f32::from_bits(bits), f32::from_bits(bits + 1)] {
                        check(x);
                        check(-x);
                    }
                }
            }
        }
        for x in [448.1, 463.9, 464.0, 1e9, f32::MAX, f32::INFINITY, f32::NAN, 1e-40] {
            check(x);
            check(-x);
        }
        let mut random = Random::new(6);
        for scale in [1e-3, 0.1, 1.0, 30.0, 500.0] {
            random.floats(2000).into_iter().for_each(|x| check(x * scale));
        }
    }
}

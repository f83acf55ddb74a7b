//! Each level of this machine against plain Rust.

use half::bf16;
use sconce_blocks::codebooks::{IQ2_XXS_POINTS, IQ3_S_POINTS};

use super::super::{Kernel, LANES, Level, Products};
use crate::random::Random;

/// What one call of every operation gives.
#[derive(Debug, Default, PartialEq)]
struct Answers {
    pairs: Vec<f32>,
    small: Vec<f32>,
    wide: Vec<f32>,
    scales: Vec<f32>,
    points: Vec<u8>,
}

struct Ask<'a> {
    bytes: &'a [u8; 64],
    bits: &'a [u8; 8],
    x: [i8; 4],
    pairs: &'a [[bf16; 2]; LANES],
    answers: &'a mut Answers,
}

impl Kernel for Ask<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let floats = |v| {
            let mut out = [0.0; LANES];
            l.store(v, &mut out);
            out.to_vec()
        };
        let x = l.splat_bytes(self.x);
        let bytes = l.load_bytes(self.bytes);
        let sum: i32 = self.x.iter().map(|x| i32::from(*x)).sum();
        let wide = l.dot_wide(l.splat_int(7 + L::WIDE_OFFSET * sum), bytes, x);
        self.answers.wide = floats(l.ints_to_f32(wide));
        let with_bits = l.or(l.low_nibbles(bytes), l.sixteen_where(self.bits));
        let mut small = l.dot_small(l.splat_int(-5), with_bits, x);
        for group in [
            l.high_nibbles(bytes),
            l.two_bits::<0>(bytes),
            l.two_bits::<1>(bytes),
            l.two_bits::<2>(bytes),
            l.two_bits::<3>(bytes),
        ] {
            self.answers.small.extend(floats(l.ints_to_f32(small)));
            small = l.dot_small(small, group, x);
        }
        self.answers.small.extend(floats(l.ints_to_f32(small)));
        let four = [l.low_nibbles(bytes), l.high_nibbles(bytes), with_bits, l.low_nibbles(bytes)];
        let together = l.dot_together(small, four, [x, l.splat_bytes(self.x.map(|x| -x)), x, x]);
        self.answers.small.extend(floats(l.ints_to_f32(together)));
        let pair = l.splat_pair([bf16::from_f32(0.5), bf16::from_f32(-3.0)]);
        self.answers.pairs = floats(l.dot_pairs(l.splat(1.0), l.load_pairs(self.pairs), pair));
        let first: &[u8; LANES] = self.bytes.first_chunk().unwrap();
        self.answers.scales = floats(l.load_u8(first));
        self.answers.scales.extend(floats(l.load_i8(&first.map(u8::cast_signed))));
        self.ask_points(l);
    }
}

impl Ask<'_> {
    #[inline(always)]
    fn ask_points<L: Products>(self, l: L) {
        let [first, signs]: [[u8; LANES]; 2] = [0, 1].map(|i| self.bytes.as_chunks().0[i]);
        let index = first.map(u16::from);
        let [low, high] = l.points_of_eight(&IQ2_XXS_POINTS, index);
        let four = l.points_of_four(&IQ3_S_POINTS, index.map(|index| 2 * index + 1));
        let seven = l.signs_of_seven(signs);
        let [first, second] =
            [l.signed::<false>(four, signs, 64), l.signed::<true>(four, seven, 16)];
        for bytes in [low, high, four, first, second, l.plus_each(four, signs)] {
            self.answers.points.extend(l.bytes_to_array(bytes));
        }
        self.answers.points.extend(seven);
    }
}

#[test]
fn every_level_answers_as_plain_rust() {
    let mut random = Random::new(11);
    for round in 0..200 {
        let bytes: [u8; 64] = std::array::from_fn(|_| u8::try_from(random.below(256)).unwrap());
        let bits: [u8; 8] = std::array::from_fn(|_| u8::try_from(random.below(256)).unwrap());
        let x: [i8; 4] =
            std::array::from_fn(|_| i8::try_from(random.below(255)).unwrap_or(-127).max(-127));
        // Small integers: their products and sums are exact, in any order.
        let pairs = std::array::from_fn(|_| {
            [0; 2].map(|_| bf16::from_f32(f32::from(u8::try_from(random.below(99)).unwrap())))
        });
        let ask = |level: Level| {
            let mut answers = Answers::default();
            level.run(Ask { bytes: &bytes, bits: &bits, x, pairs: &pairs, answers: &mut answers });
            answers
        };
        let expected = ask(Level::scalar());
        for level in Level::available() {
            assert_eq!(ask(level), expected, "round {round}, {}", level.name());
        }
    }
}

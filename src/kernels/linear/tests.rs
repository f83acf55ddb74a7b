//! Products against plain candle in every stored kind, and rows alone against rows in batches.

#![allow(clippy::many_single_char_names, reason = "m, k and n as in the formula")]

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use half::f16;
use sconce_blocks::{Coded, Kind, dequantize};

use super::*;
use crate::cpu::Level;
use crate::packed::{PackedMatrix, is_packed};
use crate::pointwise::{self, Activation};
use crate::random::{Random, assert_close, bits, values};

/// Rows, columns (K) and rows of the weight (N), with tails in every dimension.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 33, 65),
    (1, 16, 8),
    (2, 7, 5),
    (3, 128, 130),
    (4, 1, 1),
    (5, 31, 17),
    (7, 100, 64),
    (150, 48, 70),
];

pub(super) const KINDS: [GgmlDType; 15] = [
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q8_1,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
    GgmlDType::Q8K,
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
];

fn plain(level: Level, x: &Tensor, matrix: &PackedMatrix, bias: Option<&[f32]>) -> Tensor {
    cpu::linear(level, x, &[(Layer { matrix, bias }, Finish::Plain)]).unwrap().remove(0)
}

/// All kinds, also those that the tensor library doesn't have.
fn kinds() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().map(Kind::from).chain(Coded::ALL.map(Kind::from)).chain([Kind::W8A8])
}

/// A random matrix in `kind`, packed, and its exact values in f32.
fn matrix(
    random: &mut Random,
    kind: impl Into<Kind>,
    n: usize,
    k: usize,
) -> (PackedMatrix, Tensor) {
    let kind = match kind.into() {
        Kind::Ggml(kind) => kind,
        Kind::Coded(kind) => {
            let bytes = random.coded(kind, n * k / kind.block_size());
            let mut exact = vec![0.0; n * k];
            dequantize(kind, &bytes, &mut exact);
            let exact = Tensor::from_vec(exact, (n, k), &Device::Cpu).unwrap();
            return (PackedMatrix::pack(kind, n, k, &bytes, None).unwrap(), exact);
        }
        Kind::W8A8 => {
            let (bytes, exact) = bytes_with_a_scale_a_row(random, n, k);
            return (PackedMatrix::pack(Kind::W8A8, n, k, &bytes, None).unwrap(), exact);
        }
    };
    let quantized = QTensor::quantize(&random.tensor((n, k)), kind).unwrap();
    let exact = quantized.dequantize(&Device::Cpu).unwrap();
    (PackedMatrix::from_quantized(&quantized).unwrap(), exact)
}

/// A matrix as [`Kind::W8A8`] is stored, and its values.
fn bytes_with_a_scale_a_row(random: &mut Random, n: usize, k: usize) -> (Vec<u8>, Tensor) {
    let (mut bytes, mut exact) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let scale = f16::from_f32(random.floats(1)[0] / 100.0);
        for _ in 0..k / 32 {
            bytes.extend(scale.to_le_bytes());
            for _ in 0..32 {
                let byte = random.below(256).to_le_bytes()[0];
                bytes.push(byte);
                exact.push(f32::from(byte.cast_signed()) * scale.to_f32());
            }
        }
    }
    (bytes, Tensor::from_vec(exact, (n, k), &Device::Cpu).unwrap())
}

#[test]
fn bf16_in_twelve_bits_give_the_same_sums_to_the_bit() {
    let mut random = Random::new(21);
    for (k, n) in [(2, 5), (46, 70), (128, 64), (330, 130)] {
        let mut bytes = Vec::new();
        for (i, number) in random.floats(n * k).into_iter().enumerate() {
            // Few of them are of another size.
            let number = if i % 300 == 299 { number * 1e20 } else { number };
            bytes.extend(half::bf16::from_f32(number).to_le_bytes());
        }
        let whole = PackedMatrix::whole(n, k, &bytes).unwrap();
        let packed = PackedMatrix::compressed(n, k, &bytes).unwrap().unwrap();
        for m in [1, 2, 5, 6, 17, 40, 150] {
            let x = random.tensor((m, k));
            for level in Level::tested() {
                let [ours, expected] =
                    [&packed, &whole].map(|matrix| bits(&plain(level, &x, matrix, None)));
                assert!(ours == expected, "{m} x {k} x {n}, {}", level.name());
            }
        }
    }
}

/// Root mean square of the differences, in parts of that of `expected`.
fn relative_error(ours: &Tensor, expected: &Tensor) -> f32 {
    let square = |values: Vec<f32>| values.iter().map(|x| x * x).sum::<f32>();
    (square(values(&(ours - expected).unwrap())) / square(values(expected))).sqrt()
}

#[test]
fn float_weights_equal_the_plain_product() {
    let mut random = Random::new(1);
    for (m, k, n) in SHAPES {
        let x = random.tensor((m, k));
        let bias = random.tensor(n);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = random.tensor((n, k)).to_dtype(dtype).unwrap();
            let packed = PackedMatrix::from_dense(&weight).unwrap();
            // bf16 weights meet rows rounded to bf16.
            let x = match dtype {
                DType::BF16 => x.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap(),
                _ => x.clone(),
            };
            let expected = portable::linear(&x, &weight, Some(&bias)).unwrap();
            let without = portable::linear(&x, &weight, None).unwrap();
            for level in Level::tested() {
                let ours = plain(level, &x, &packed, Some(&bias.to_vec1().unwrap()));
                assert_close(&ours, &expected, 2e-5);
                assert_close(&plain(level, &x, &packed, None), &without, 2e-5);
            }
        }
    }
}

#[test]
fn quantized_weights_are_within_one_percent_of_the_plain_product() {
    let mut random = Random::new(2);
    for kind in kinds() {
        let (n, k) = (100, 4 * kind.block_size().max(32));
        let (packed, exact) = matrix(&mut random, kind, n, k);
        for m in [1, 7, 20] {
            let x = random.tensor((m, k));
            let expected = portable::linear(&x, &exact, None).unwrap();
            for level in Level::tested() {
                let ours = plain(level, &x, &packed, None);
                let error = relative_error(&ours, &expected);
                assert!(error < 0.01, "{kind:?}, {m} rows, {}: {error}", level.name());
            }
        }
    }
}

#[test]
fn quantized_weights_meet_rows_of_bytes_exactly() {
    // Rows that are whole multiples of their scale lose nothing as bytes, so only the order of
    // additions tells the product from the plain one.
    let mut random = Random::new(3);
    for kind in kinds().filter(|kind| kind.block_size() > 1) {
        let (n, k) = (70, 2 * kind.block_size().max(32));
        let (packed, exact) = matrix(&mut random, kind, n, k);
        let mut x: Vec<f32> = (0..9 * k)
            .map(|_| f32::from(i8::try_from(random.below(255)).unwrap_or(-100)))
            .collect();
        x.iter_mut().step_by(32).for_each(|x| *x = 127.0);
        let x = Tensor::from_vec(x, (9, k), &Device::Cpu).unwrap();
        let expected = portable::linear(&x, &exact, None).unwrap();
        for level in Level::tested() {
            assert!(relative_error(&plain(level, &x, &packed, None), &expected) < 1e-6, "{kind:?}");
        }
    }
}

#[test]
fn w8a8_gives_each_row_of_activations_one_scale() {
    let mut random = Random::new(11);
    let (m, k, n) = (41, 27 * 32, 70);
    let (packed, exact) = matrix(&mut random, Kind::W8A8, n, k);
    let mut x = random.floats(m * k);
    // Blocks of which some are far smaller than their row's largest element.
    for (at, x) in x.iter_mut().enumerate() {
        *x *= [1.0, 0.01, 0.2][at / 32 % 3];
    }
    let mut rounded = x.clone();
    for row in rounded.chunks_mut(k) {
        let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for x in row {
            *x = (*x * 127.0 / largest).round() * (largest / 127.0);
        }
    }
    let [x, rounded] = [x, rounded].map(|x| Tensor::from_vec(x, (m, k), &Device::Cpu).unwrap());
    let expected = portable::linear(&rounded, &exact, None).unwrap();
    let unrounded = portable::linear(&x, &exact, None).unwrap();
    assert!(relative_error(&unrounded, &expected) > 1e-3);
    let anywhere = bits(&plain(Level::scalar(), &x, &packed, None));
    for level in Level::tested() {
        let product = plain(level, &x, &packed, None);
        let error = relative_error(&product, &expected);
        assert!(error < 1e-5, "{}: {error}", level.name());
        assert_eq!(bits(&product), anywhere, "{}", level.name());
    }
}

fn gated(level: Level, x: &Tensor, [gate, up]: [Layer<'_>; 2], dtype: DType) -> Tensor {
    cpu::linear_gated(level, x, Activation::Silu.into(), gate, up, dtype).unwrap()
}

#[test]
fn rows_that_are_rounded_already_give_the_same_bits() {
    let mut random = Random::new(14);
    for (m, k, n) in [(1, 64, 70), (5, 70, 64), (40, 96, 130), (67, 1094, 65)] {
        let x = random.tensor((m, k));
        let rounded = x.to_dtype(DType::BF16).unwrap();
        let [a, b] = [(); 2].map(|()| matrix(&mut random, GgmlDType::BF16, n, k).0);
        let (bytes, _) = matrix(&mut random, GgmlDType::Q8_0, n, 64);
        let layers = [&a, &b].map(|matrix| Layer { matrix, bias: None });
        for level in Level::tested() {
            if cpu::input_type(level, &a) == DType::F32 {
                assert!(cpu::linear(level, &rounded, &[(layers[0], Finish::Plain)]).is_err());
                continue;
            }
            assert_eq!(bits(&plain(level, &rounded, &a, None)), bits(&plain(level, &x, &a, None)));
            let product = gated(level, &x, layers, DType::F32);
            let narrow = gated(level, &rounded, layers, DType::BF16);
            assert_eq!(narrow.dtype(), DType::BF16);
            let expected = product.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            assert_eq!(bits(&narrow.to_dtype(DType::F32).unwrap()), bits(&expected));
            if k == 64 {
                let other = (Layer { matrix: &bytes, bias: None }, Finish::Plain);
                let both = [(layers[0], Finish::Plain), other];
                let message = cpu::linear(level, &rounded, &both).unwrap_err().to_string();
                assert!(message.contains("takes f32"), "{message}");
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_any_batch() {
    let mut random = Random::new(4);
    let (k, n) = (768, 150);
    let x = random.tensor((300, k));
    let residual = random.tensor((300, n));
    let (up, _) = matrix(&mut random, GgmlDType::Q4_1, n, k);
    let up = Layer { matrix: &up, bias: None };
    for kind in KINDS.into_iter().map(Kind::from).chain([Kind::W8A8]) {
        let (packed, _) = matrix(&mut random, kind, n, k);
        let layer = Layer { matrix: &packed, bias: None };
        for level in Level::tested() {
            let each = |x: &Tensor, residual: &Tensor| {
                [
                    plain(level, x, &packed, None),
                    cpu::linear_add(level, x, layer, residual, 1.0).unwrap(),
                    gated(level, x, [layer, up], DType::F32),
                ]
            };
            let all = each(&x, &residual);
            for (first, count) in [
                (0, 1),
                (299, 1),
                (64, 2),
                (3, 3),
                (9, 4),
                (50, 5),
                (40, 6),
                (20, 7),
                (30, 17),
                (100, 145),
            ] {
                let rows = |x: &Tensor| x.narrow(0, first, count).unwrap();
                for (alone, all) in each(&rows(&x), &rows(&residual)).iter().zip(&all) {
                    assert_eq!(bits(alone), bits(&rows(all)), "{kind:?} {count}, {}", level.name());
                }
            }
        }
    }
}

#[test]
fn long_rows_go_on_with_the_same_chain_of_additions() {
    // Many rows meet a panel in parts that fit the cache, few rows meet it whole.
    let mut random = Random::new(5);
    let kinds = [GgmlDType::F16, GgmlDType::F32, GgmlDType::Q8_0, GgmlDType::Q6K].map(Kind::from);
    let sizes = kinds.into_iter().chain([Kind::W8A8]).map(|kind| (kind, 64, 9 * 1024, 30));
    // So many rows that tiles take parts of them, which several panels meet.
    for (kind, n, k, m) in sizes.chain([(GgmlDType::BF16.into(), 200, 9 * 1024 + 33, 130)]) {
        let (packed, _) = matrix(&mut random, kind, n, k);
        let x = random.tensor((m, k));
        for level in Level::tested() {
            let all = plain(level, &x, &packed, None);
            let alone = plain(level, &x.narrow(0, 17, 1).unwrap(), &packed, None);
            assert_eq!(bits(&alone), bits(&all.narrow(0, 17, 1).unwrap()), "{kind:?}");
        }
    }
}

#[test]
fn what_is_left_of_k_is_the_same_alone_and_in_any_batch() {
    let mut random = Random::new(9);
    for (kind, k) in [
        (GgmlDType::BF16.into(), 77),
        (GgmlDType::BF16.into(), 33),
        (GgmlDType::BF16.into(), 2),
        (GgmlDType::F16.into(), 77),
        (GgmlDType::F32.into(), 77),
        (GgmlDType::Q8_0.into(), 13 * 32),
        (GgmlDType::Q5_1.into(), 9 * 32),
        (GgmlDType::Q4K.into(), 3 * 256),
        (GgmlDType::Q6K.into(), 3 * 256),
        (Kind::W8A8, 13 * 32),
        (Kind::W8A8, 37 * 32),
    ] {
        let (packed, _) = matrix(&mut random, kind, 70, k);
        let x = random.tensor((53, k));
        for level in Level::tested() {
            let all = plain(level, &x, &packed, None);
            for (first, count) in [(0, 1), (52, 1), (7, 2), (11, 5), (20, 16), (3, 40)] {
                let rows = plain(level, &x.narrow(0, first, count).unwrap(), &packed, None);
                let same = all.narrow(0, first, count).unwrap();
                assert_eq!(bits(&rows), bits(&same), "{kind:?} {k} {count}, {}", level.name());
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_in_its_row() {
    let mut random = Random::new(10);
    let (m, k) = (40, 64);
    let clean = random.floats(m * k);
    for kind in [GgmlDType::BF16, GgmlDType::F16, GgmlDType::F32] {
        let (packed, _) = matrix(&mut random, kind, 70, k);
        for level in Level::tested() {
            let product = |x: &[f32]| {
                plain(level, &Tensor::from_slice(x, (m, k), &Device::Cpu).unwrap(), &packed, None)
            };
            let expected = product(&clean);
            for (row, bad) in [(0, f32::NAN), (17, f32::INFINITY), (39, f32::NEG_INFINITY)] {
                let mut x = clean.clone();
                x[row * k + 5] = bad;
                let got = product(&x);
                let own: Vec<f32> = got.get(row).unwrap().to_vec1().unwrap();
                assert!(own.iter().all(|y| !y.is_finite()), "{kind:?}, {}", level.name());
                for other in (0..m).filter(|other| *other != row) {
                    let [got, expected] = [&got, &expected].map(|y| bits(&y.get(other).unwrap()));
                    assert_eq!(got, expected, "{kind:?}, {}", level.name());
                }
            }
        }
    }
}

#[test]
fn fused_layers_equal_their_parts() {
    let mut random = Random::new(6);
    let (m, k, n) = (17, 96, 100);
    let x = random.tensor((m, k));
    let residual = random.tensor((m, n));
    let bias = random.floats(n);
    for level in Level::tested() {
        let (a, _) = matrix(&mut random, GgmlDType::Q8_0, n, k);
        let (b, _) = matrix(&mut random, GgmlDType::BF16, n, k);
        let (gate, up) =
            (Layer { matrix: &a, bias: Some(&bias) }, Layer { matrix: &b, bias: None });
        let (y, z) = (plain(level, &x, &a, Some(&bias)), plain(level, &x, &b, None));
        let both = cpu::linear(level, &x, &[(gate, Finish::Plain), (up, Finish::Plain)]).unwrap();
        assert_eq!((bits(&both[0]), bits(&both[1])), (bits(&y), bits(&z)));
        let sum = cpu::linear_add(level, &x, gate, &residual, 1.0).unwrap();
        assert_eq!(bits(&sum), bits(&(&residual + &y).unwrap()));
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let (gating, dtype) = (activation.into(), DType::F32);
            let gated = cpu::linear_gated(level, &x, gating, gate, up, dtype).unwrap();
            assert_close(
                &gated,
                &pointwise::portable::gated(activation.into(), &y, &z).unwrap(),
                1e-5,
            );
        }
    }
}

#[test]
fn an_mlp_has_the_bits_of_its_parts() {
    let mut random = Random::new(15);
    let gating = Activation::Silu.into();
    for kind in [GgmlDType::BF16, GgmlDType::F32, GgmlDType::Q8_0] {
        for (m, inner) in [(1, 32), (19, 64), (70, 160), (33, 70), (0, 64)] {
            let kind = if inner % 32 == 0 { kind } else { GgmlDType::BF16 };
            let (x, residual) = (random.tensor((m, 64)), random.tensor((m, 66)));
            let [a, b] = [(); 2].map(|()| matrix(&mut random, kind, inner, 64).0);
            let (c, _) = matrix(&mut random, kind, 66, inner);
            let bias = random.floats(inner);
            let gate = Layer { matrix: &a, bias: Some(&bias) };
            let [up, down] = [&b, &c].map(|matrix| Layer { matrix, bias: None });
            for level in Level::tested() {
                let gated = cpu::linear_gated(level, &x, gating, gate, up, DType::F32).unwrap();
                let sum = cpu::linear_add(level, &gated, down, &residual, 0.5).unwrap();
                let mlp = |add| cpu::gated_mlp(level, &x, gating, [gate, up, down], add).unwrap();
                assert_eq!(bits(&mlp(Some((&residual, 0.5)))), bits(&sum));
                assert_eq!(bits(&mlp(None)), bits(&plain(level, &gated, &c, None)));
            }
        }
    }
}

#[test]
fn wrong_shapes_and_dtypes_are_errors() {
    let mut random = Random::new(7);
    let packed = PackedMatrix::from_dense(&random.tensor((4, 8))).unwrap();
    let layer = Layer { matrix: &packed, bias: None };
    let says = |result: Result<Tensor>, words: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    says(linear(&random.tensor((2, 7)), layer), "7 features, the weight 8");
    let biased = Layer { matrix: &packed, bias: Some(&[0.0; 3]) };
    says(linear(&random.tensor((2, 8)), biased), "3 biases for 4");
    let turned = random.tensor((8, 2)).t().unwrap();
    says(linear(&turned, layer), "not contiguous");
    assert!(linear(&random.tensor((2, 8)).to_dtype(DType::BF16).unwrap(), layer).is_err());
    says(linear_add(&random.tensor((2, 8)), layer, &random.tensor((3, 4)), 1.0), "differ");
    let other = PackedMatrix::from_dense(&random.tensor((5, 8))).unwrap();
    let other = Layer { matrix: &other, bias: None };
    let gated = linear_gated(&random.tensor((2, 8)), Activation::Silu.into(), layer, other);
    says(gated, "4 and 5 output features");
    let x = random.tensor((2, 8));
    let add = |residual| gated_mlp(&x, Activation::Silu.into(), [layer, layer, other], residual);
    says(add(None), "4 features, the weight 8");
    let other = PackedMatrix::from_dense(&random.tensor((5, 4))).unwrap();
    let other = Layer { matrix: &other, bias: None };
    let residual = random.tensor((2, 4));
    let mlp = gated_mlp(&x, Activation::Silu.into(), [layer, layer, other], Some((&residual, 1.0)));
    says(mlp, "differ");
}

#[test]
fn leading_dimensions_are_kept() {
    let mut random = Random::new(8);
    let packed = PackedMatrix::from_dense(&random.tensor((4, 8))).unwrap();
    let layer = Layer { matrix: &packed, bias: None };
    let y = linear(&random.tensor((2, 3, 8)), layer).unwrap();
    assert_eq!(y.dims(), [2, 3, 4]);
    let none = linear(&random.tensor((0, 8)), layer).unwrap();
    assert_eq!(none.dims(), [0, 4]);
    assert!(is_packed(packed.kind()));
}

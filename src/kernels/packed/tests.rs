//! What is packed comes back as it was.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device};
use sconce_blocks::{Coded, dequantize};

use super::super::random::{Random, bits, values};
use super::*;

const KINDS: [GgmlDType; 12] = [
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
];

fn unpacked(level: Level, matrix: &PackedMatrix) -> Vec<u32> {
    let mut all = vec![0.0; matrix.rows() * matrix.columns()];
    for (row, out) in all.chunks_exact_mut(matrix.columns()).enumerate() {
        matrix.widen_row(level, row, out);
    }
    all.into_iter().map(f32::to_bits).collect()
}

#[test]
fn every_quant_kind_comes_back_as_its_dequantized_weights_to_the_bit() {
    let mut random = Random::new(1);
    for kind in KINDS {
        let (n, k) = (131, 2 * kind.block_size().max(32));
        let quantized = QTensor::quantize(&random.tensor((n, k)), kind).unwrap();
        let packed = PackedMatrix::from_quantized(&quantized).unwrap();
        let expected = bits(&quantized.dequantize(&Device::Cpu).unwrap());
        assert_eq!(packed.kind(), kind);
        for level in Level::available() {
            assert_eq!(unpacked(level, &packed), expected, "{kind:?}, {}", level.name());
        }
    }
}

#[test]
fn every_coded_kind_comes_back_as_its_numbers_to_the_bit() {
    let mut random = Random::new(5);
    for kind in Coded::ALL {
        let (n, k) = (131, 2 * kind.block_size());
        let bytes = random.coded(kind, 2 * n);
        let packed = PackedMatrix::pack(kind, n, k, &bytes, None).unwrap();
        let mut expected = vec![0.0; n * k];
        dequantize(kind, &bytes, &mut expected);
        let expected: Vec<u32> = expected.into_iter().map(f32::to_bits).collect();
        for level in Level::available() {
            let ours = unpacked(level, &packed);
            // Zero times a negative scale keeps its sign nowhere.
            let same = ours
                .iter()
                .zip(&expected)
                .all(|(a, b)| a == b || [*a, *b].iter().all(|bits| bits << 1 == 0));
            assert!(same, "{kind:?}, {}", level.name());
        }
    }
}

#[test]
fn coded_kinds_cost_little_more_memory_than_the_file() {
    for kind in Coded::ALL {
        let k = 2 * kind.block_size();
        let bytes = Random::new(6).coded(kind, 2 * 128);
        let packed = PackedMatrix::pack(kind, 128, k, &bytes, None).unwrap();
        // Five trits of a byte take two bits each here.
        let most = if kind == Coded::Tq1_0 { 66.0 / 54.0 } else { 1.04 };
        #[expect(clippy::cast_precision_loss, reason = "kilobytes")]
        let ratio = packed.size_in_bytes() as f64 / bytes.len() as f64;
        assert!((1.0..=most).contains(&ratio), "{kind:?}: {ratio}");
    }
}

#[test]
fn floats_come_back_in_every_dtype_and_shape() {
    let mut random = Random::new(2);
    for (n, k) in [(1, 1), (64, 16), (65, 33), (130, 47), (15, 32)] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let tensor = random.tensor((n, k)).to_dtype(dtype).unwrap();
            let packed = PackedMatrix::from_dense(&tensor).unwrap();
            let expected = bits(&tensor.to_dtype(DType::F32).unwrap());
            assert_eq!(unpacked(cpu_level(), &packed), expected, "{dtype:?} {n} x {k}");
        }
    }
}

#[test]
fn a_target_rounds_as_candle_does() {
    let mut random = Random::new(3);
    let tensor = random.tensor((70, 512));
    let bytes: Vec<u8> = values(&tensor).into_iter().flat_map(f32::to_le_bytes).collect();
    for kind in [GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K, GgmlDType::BF16] {
        let packed = PackedMatrix::pack(GgmlDType::F32, 70, 512, &bytes, Some(kind)).unwrap();
        let expected = QTensor::quantize(&tensor, kind).unwrap().dequantize(&Device::Cpu).unwrap();
        assert_eq!(packed.kind(), kind);
        assert_eq!(unpacked(cpu_level(), &packed), bits(&expected), "{kind:?}");
    }
}

#[test]
fn a_target_that_rows_dont_divide_into_gives_way_to_the_next_larger() {
    let bytes = vec![0; 4 * 896];
    let kind = |target, columns| {
        let rows = 896 / columns;
        PackedMatrix::pack(GgmlDType::F32, rows, columns, &bytes, Some(target)).unwrap().kind()
    };
    assert_eq!(kind(GgmlDType::Q4K, 896), GgmlDType::Q5_0);
    assert_eq!(kind(GgmlDType::Q5K, 896), GgmlDType::Q5_1);
    assert_eq!(kind(GgmlDType::Q6K, 896), GgmlDType::Q8_0);
    assert_eq!(kind(GgmlDType::Q8_0, 896), GgmlDType::Q8_0);
    assert_eq!(kind(GgmlDType::Q8_0, 7), GgmlDType::BF16);
}

#[test]
fn packing_costs_no_more_memory_than_the_file() {
    let tensor = Random::new(4).tensor((128, 512));
    for kind in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q5_1, GgmlDType::Q6K, GgmlDType::BF16]
    {
        let quantized = QTensor::quantize(&tensor, kind).unwrap();
        let packed = PackedMatrix::from_quantized(&quantized).unwrap();
        assert_eq!(packed.size_in_bytes(), quantized.storage_size_in_bytes(), "{kind:?}");
    }
}

#[test]
fn bytes_that_dont_fit_are_errors() {
    let short = PackedMatrix::pack(GgmlDType::F32, 2, 8, &[0; 63], None).unwrap_err();
    assert!(short.to_string().contains("64 bytes, not 63"), "{short}");
    let uneven = PackedMatrix::pack(GgmlDType::Q4K, 1, 100, &[], None).unwrap_err();
    assert!(uneven.to_string().contains("100 elements"), "{uneven}");
    let integers = Tensor::zeros((2, 2), DType::U32, &Device::Cpu).unwrap();
    assert!(PackedMatrix::from_dense(&integers).unwrap_err().to_string().contains("U32"));
}

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};

use super::super::packed::{PackedMatrix, Storage};
use super::super::portable;
use super::super::random::{Random, assert_close, bits};
use super::*;

/// Rows, columns (K) and rows of the weight (N), with tails in every dimension.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 33, 65),
    (1, 16, 8),
    (2, 7, 5),
    (3, 128, 130),
    (4, 1, 1),
    (5, 31, 17),
    (7, 100, 64),
    (130, 48, 70),
];

const KINDS: [GgmlDType; 15] = [
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

#[test]
fn dense_weights_equal_the_plain_product() {
    let mut random = Random::new(1);
    for (m, k, n) in SHAPES {
        let (x, weight) = (random.tensor((m, k)), random.tensor((n, k)));
        let bias = random.tensor(n);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = weight.to_dtype(dtype).unwrap();
            let packed = PackedMatrix::from_dense(&weight).unwrap();
            let expected = portable::linear(&x, &weight, Some(&bias)).unwrap();
            let without = portable::linear(&x, &weight, None).unwrap();
            for level in Level::available() {
                let ours = linear_at(level, &x, &packed, Some(&bias.to_vec1().unwrap())).unwrap();
                assert_close(&ours, &expected, 2e-5);
                assert_close(&linear_at(level, &x, &packed, None).unwrap(), &without, 2e-5);
            }
        }
    }
}

#[test]
fn every_quant_kind_equals_its_dequantized_weights_to_the_bit() {
    let mut random = Random::new(2);
    for kind in KINDS {
        let (n, k) = (37, 3 * kind.block_size().max(32));
        let quantized = QTensor::quantize(&random.tensor((n, k)), kind).unwrap();
        let packed = PackedMatrix::from_quantized(&quantized).unwrap();
        let dequantized = quantized.dequantize(&Device::Cpu).unwrap();
        let dense = PackedMatrix::from_dense(&dequantized).unwrap();
        for m in [1, 6] {
            let x = random.tensor((m, k));
            let expected = portable::linear(&x, &dequantized, None).unwrap();
            for level in Level::available() {
                let ours = linear_at(level, &x, &packed, None).unwrap();
                assert_eq!(bits(&ours), bits(&linear_at(level, &x, &dense, None).unwrap()));
                assert_close(&ours, &expected, 2e-5);
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_any_batch() {
    let mut random = Random::new(3);
    let (k, n) = (320, 150);
    let weight = random.tensor((n, k));
    let x = random.tensor((130, k));
    let mut matrices = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        matrices.push(PackedMatrix::from_dense(&weight.to_dtype(dtype).unwrap()).unwrap());
    }
    let quantized = QTensor::quantize(&weight, GgmlDType::Q8_0).unwrap();
    matrices.push(PackedMatrix::from_quantized(&quantized).unwrap());
    for level in Level::available() {
        for matrix in &matrices {
            let all = linear_at(level, &x, matrix, None).unwrap();
            for (first, count) in [(0, 1), (129, 1), (64, 2), (3, 3), (9, 4), (20, 7)] {
                let rows = x.narrow(0, first, count).unwrap();
                let some = linear_at(level, &rows, matrix, None).unwrap();
                let same = all.narrow(0, first, count).unwrap();
                assert_eq!(bits(&some), bits(&same), "{matrix:?} {count} rows, {}", level.name());
            }
        }
    }
}

#[test]
fn a_matrix_keeps_its_stored_dtype() {
    let weight = Random::new(4).tensor((8, 64));
    let bf16 = PackedMatrix::from_dense(&weight.to_dtype(DType::BF16).unwrap()).unwrap();
    assert_eq!((bf16.storage(), bf16.size_in_bytes()), (Storage::Bf16, 8 * 64 * 2));
    let quantized = QTensor::quantize(&weight, GgmlDType::Q4_0).unwrap();
    let q4 = PackedMatrix::from_quantized(&quantized).unwrap();
    assert_eq!(q4.storage(), Storage::Quantized(GgmlDType::Q4_0));
    assert_eq!(q4.size_in_bytes(), 8 * 2 * 18);
}

#[test]
fn wrong_shapes_and_dtypes_are_errors() {
    let mut random = Random::new(5);
    let packed = PackedMatrix::from_dense(&random.tensor((4, 8))).unwrap();
    let says = |result: Result<Tensor>, words: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    says(linear(&random.tensor((2, 7)), &packed, None), "7 features, the weight 8");
    says(linear(&random.tensor((2, 8)), &packed, Some(&[0.0; 3])), "3 biases for 4");
    let turned = random.tensor((8, 2)).t().unwrap();
    says(linear(&turned, &packed, None), "not contiguous");
    assert!(linear(&random.tensor((2, 8)).to_dtype(DType::BF16).unwrap(), &packed, None).is_err());
    let integers = Tensor::zeros((2, 2), DType::U32, &Device::Cpu).unwrap();
    assert!(PackedMatrix::from_dense(&integers).unwrap_err().to_string().contains("U32"));
}

#[test]
fn leading_dimensions_are_kept() {
    let mut random = Random::new(6);
    let packed = PackedMatrix::from_dense(&random.tensor((4, 8))).unwrap();
    let y = linear(&random.tensor((2, 3, 8)), &packed, None).unwrap();
    assert_eq!(y.dims(), [2, 3, 4]);
    let none = linear(&random.tensor((0, 8)), &packed, None).unwrap();
    assert_eq!(none.dims(), [0, 4]);
}

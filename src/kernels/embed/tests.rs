//! Embedded rows against the widened matrix.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device};

use super::*;
use crate::random::{Random, bits};

#[test]
fn rows_are_those_of_the_widened_matrix() {
    let weight = Random::new(1).tensor((10, 64));
    let ids = [9u32, 0, 3, 3];
    let index = Tensor::new(&ids, &Device::Cpu).unwrap();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let weight = weight.to_dtype(dtype).unwrap();
        let packed = PackedMatrix::from_dense(&weight).unwrap();
        let expected = device_embed(&weight, &index).unwrap();
        assert_eq!(bits(&embed(&packed, &ids).unwrap()), bits(&expected));
    }
    let quantized = QTensor::quantize(&weight, GgmlDType::Q5_1).unwrap();
    let packed = PackedMatrix::from_quantized(&quantized).unwrap();
    let wide = quantized.dequantize(&Device::Cpu).unwrap();
    let expected = device_embed(&wide, &index).unwrap();
    assert_eq!(bits(&embed(&packed, &ids).unwrap()), bits(&expected));
}

#[test]
fn an_id_outside_of_the_vocabulary_is_an_error() {
    let packed = PackedMatrix::from_dense(&Random::new(2).tensor((10, 4))).unwrap();
    let message = embed(&packed, &[1, 10]).unwrap_err().to_string();
    assert!(message.contains("token id 10 is outside of a vocabulary of 10"), "{message}");
}

//! Normalization against plain candle, on every level, alone and in batches.

use super::*;
use crate::cpu::Level;
use crate::random::{Random, assert_close, bits};

#[test]
fn equals_the_plain_operations() {
    let mut random = Random::new(1);
    for (rows, width) in [(1, 1), (3, 15), (2, 16), (5, 33), (40, 900)] {
        let x = random.tensor((rows, width));
        let weight = random.tensor(width);
        let norm = portable::rms_norm(&x, &weight, 1e-5).unwrap();
        for level in Level::available() {
            assert_close(
                &cpu::rms_norm(level, &x, &weight, 1e-5, None, DType::F32).unwrap(),
                &norm,
                2e-6,
            );
        }
    }
}

#[test]
fn a_residual_is_added_to_the_same_norm() {
    let mut random = Random::new(4);
    for (rows, width) in [(1, 1), (3, 15), (5, 33), (40, 900)] {
        let (x, residual) = (random.tensor((rows, width)), random.tensor((rows, width)));
        let weight = random.tensor(width);
        for level in Level::available() {
            let norm = cpu::rms_norm(level, &x, &weight, 1e-5, None, DType::F32).unwrap();
            let sum = cpu::rms_norm(level, &x, &weight, 1e-5, Some(&residual), DType::F32).unwrap();
            assert_eq!(bits(&sum), bits(&(&residual + norm).unwrap()));
        }
    }
    let x = random.tensor((2, 8));
    assert!(rms_norm_add(&x, &random.tensor(8), 1e-6, &random.tensor((1, 8))).is_err());
}

#[test]
fn norms_can_be_rounded_as_they_are_written() {
    let mut random = Random::new(5);
    for (rows, width) in [(1, 1), (3, 15), (5, 33), (40, 900)] {
        let x = random.tensor((rows, width));
        let (weight, bias) = (random.tensor(width), random.tensor(width));
        for level in Level::available() {
            let both = [DType::F32, DType::BF16].map(|dtype| {
                let rms = cpu::rms_norm(level, &x, &weight, 1e-5, None, dtype).unwrap();
                [rms, cpu::layer_norm(level, &x, &weight, &bias, 1e-5, dtype).unwrap()]
            });
            for (wide, narrow) in both[0].iter().zip(&both[1]) {
                assert_eq!(narrow.dtype(), DType::BF16);
                let expected = wide.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
                assert_eq!(bits(&narrow.to_dtype(DType::F32).unwrap()), bits(&expected));
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_a_batch() {
    let mut random = Random::new(2);
    let (x, weight) = (random.tensor((90, 500)), random.tensor(500));
    for level in Level::available() {
        let all = cpu::rms_norm(level, &x, &weight, 1e-6, None, DType::F32).unwrap();
        let row = x.narrow(0, 77, 1).unwrap();
        let alone = cpu::rms_norm(level, &row, &weight, 1e-6, None, DType::F32).unwrap();
        assert_eq!(bits(&alone), bits(&all.narrow(0, 77, 1).unwrap()));
    }
}

#[test]
fn wrong_widths_are_errors() {
    let mut random = Random::new(3);
    let x = random.tensor((2, 8));
    assert!(rms_norm(&x, &random.tensor(7), 1e-6).is_err());
    assert!(rms_norm(&random.tensor((2, 0)), &random.tensor(0), 1e-6).is_err());
}

#[test]
fn layer_norm_equals_the_plain_operations() {
    let mut random = Random::new(1);
    for (rows, width) in [(1, 1), (3, 15), (2, 16), (5, 33), (40, 900)] {
        let x = random.tensor((rows, width));
        let (weight, bias) = (random.tensor(width), random.tensor(width));
        let norm = portable::layer_norm(&x, &weight, &bias, 1e-5).unwrap();
        for level in Level::available() {
            let ours = cpu::layer_norm(level, &x, &weight, &bias, 1e-5, DType::F32).unwrap();
            assert_close(&ours, &norm, 1e-5);
        }
    }
}

#[test]
fn a_layer_normalized_row_is_the_same_alone_and_in_a_batch() {
    let mut random = Random::new(2);
    let (x, weight, bias) = (random.tensor((90, 500)), random.tensor(500), random.tensor(500));
    for level in Level::available() {
        let all = cpu::layer_norm(level, &x, &weight, &bias, 1e-6, DType::F32).unwrap();
        let row = x.narrow(0, 77, 1).unwrap();
        let alone = cpu::layer_norm(level, &row, &weight, &bias, 1e-6, DType::F32).unwrap();
        assert_eq!(bits(&alone), bits(&all.narrow(0, 77, 1).unwrap()));
    }
}

#[test]
fn wrong_widths_of_layer_norms_are_errors() {
    let mut random = Random::new(3);
    let x = random.tensor((2, 8));
    let (eight, seven) = (random.tensor(8), random.tensor(7));
    assert!(layer_norm(&x, &seven, &eight, 1e-6).is_err());
    assert!(layer_norm(&x, &eight, &seven, 1e-6).is_err());
}

//! What is packed comes back as it was.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device};
use half::bf16;
use sconce_blocks::{Coded, dequantize};

use super::super::cpu::{Kernel, Products};
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

/// Little-endian bf16, every `rare`th of them with any bits at all.
fn numbers(random: &mut Random, count: usize, rare: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, number) in random.floats(count).into_iter().enumerate() {
        let number = if i % rare == rare / 2 {
            bf16::from_bits(u16::try_from(random.below(1 << 16)).unwrap())
        } else {
            bf16::from_f32(number)
        };
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

#[test]
fn bf16_in_twelve_bits_come_back_to_the_bit() {
    let mut random = Random::new(7);
    for (n, k) in [(1, 2), (64, 16), (65, 34), (130, 46), (15, 32), (200, 256)] {
        let bytes = numbers(&mut random, n * k, 200);
        let packed = PackedMatrix::compressed(n, k, &bytes).unwrap().unwrap();
        let numbers = bytes.as_chunks::<2>().0.iter();
        let expected: Vec<u32> =
            numbers.map(|bytes| bf16::from_le_bytes(*bytes).to_f32().to_bits()).collect();
        assert_eq!(unpacked(cpu_level(), &packed), expected, "{n} x {k}");
    }
}

#[test]
fn every_level_decodes_rows_as_they_were() {
    let (n, k) = (70, 256);
    let bytes = numbers(&mut Random::new(8), n * k, 150);
    let whole = PackedMatrix::whole(n, k, &bytes).unwrap();
    let packed = PackedMatrix::compressed(n, k, &bytes).unwrap().unwrap();
    for level in Level::available() {
        for (panel, rows) in [(0, 0..1), (0, 3..67), (1, 64..128), (0, 120..131), (1, 0..131)] {
            let mut room = Vec::new();
            let decoded = packed.twelve_bit_panel(panel).unwrap();
            level.run(Decode { panel: decoded, rows: rows.clone(), room: &mut room });
            for (row, decoded) in rows.zip(&room) {
                for (column, pair) in decoded.0.iter().enumerate() {
                    let at = 4 * (row * PANEL + column);
                    let expected = whole.panel(panel).get(at..at + 4).unwrap_or(&[0; 4]);
                    // What columns beyond the last one hold is never asked for.
                    let used = panel * PANEL + column < n || row >= k / 2;
                    let ours = pair.map(bf16::to_le_bytes);
                    let name = level.name();
                    assert!(!used || ours.as_flattened() == expected, "{name}, {row}, {column}");
                }
            }
        }
    }
}

struct Decode<'a> {
    panel: TwelveBitPanel<'a>,
    rows: std::ops::Range<usize>,
    room: &'a mut Vec<Row>,
}

impl Kernel for Decode<'_> {
    fn run<L: Products>(self, l: L) {
        self.panel.decode_to(l, self.rows, self.room);
    }
}

#[test]
fn bf16_of_many_sizes_have_no_codes() {
    let mut random = Random::new(9);
    let (n, k) = (70, 128);
    for rare in [1, 20] {
        let bytes = numbers(&mut random, n * k, rare);
        assert!(PackedMatrix::compressed(n, k, &bytes).unwrap().is_none());
    }
    // A sample that is unlike the rest.
    let mut bytes = vec![0; 2 * 640 * k];
    for row in (0..640).filter(|row| row % 10 > 0) {
        bytes[2 * row * k..2 * (row + 1) * k].copy_from_slice(&numbers(&mut random, k, 1));
    }
    assert!(PackedMatrix::compressed(640, k, &bytes).unwrap().is_none());
}

#[test]
fn bf16_in_twelve_bits_take_three_quarters_of_the_memory() {
    let (n, k) = (128, 512);
    let bytes = numbers(&mut Random::new(4), n * k, n * k);
    let packed = PackedMatrix::compressed(n, k, &bytes).unwrap().unwrap();
    let least = n * k / 2 * 3;
    assert!((least..least + least / 50).contains(&packed.size_in_bytes()));
}

#[test]
fn packing_costs_no_more_memory_than_the_file() {
    let tensor = Random::new(4).tensor((128, 512));
    for kind in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q5_1, GgmlDType::Q6K, GgmlDType::F16]
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

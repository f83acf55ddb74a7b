//! Numbers beside those of gguf-py; the fixture is made by `tests/fixtures/make_blocks.py`.

use serde_json::Value;

use super::*;

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes();
    let pairs = digits.chunks_exact(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn every_kind_is_what_gguf_py_makes_of_it_to_the_bit() {
    let text = std::fs::read_to_string("../../tests/fixtures/blocks.json").unwrap();
    let fixture: Value = serde_json::from_str(&text).unwrap();
    for kind in Coded::ALL {
        let (blocks, expected) =
            (bytes(&fixture[kind.name()]["blocks"]), bytes(&fixture[kind.name()]["numbers"]));
        assert_eq!(blocks.len(), 3 * kind.type_size());
        let mut ours = vec![f32::NAN; 3 * kind.block_size()];
        dequantize(kind, &blocks, &mut ours);
        let expected = expected.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let expected: Vec<u32> = expected.collect();
        let ours: Vec<u32> = ours.into_iter().map(f32::to_bits).collect();
        assert_eq!(ours, expected, "{}", kind.name());
    }
}

#[test]
fn every_index_is_in_its_codebook() {
    // Blocks of ones have the largest index everywhere.
    for kind in Coded::ALL {
        let block = vec![0xff; kind.type_size()];
        for sub in 0..kind.block_size() / SUB_BLOCK {
            let Numbers { values, .. } = numbers(kind, &block, sub);
            assert!(values.iter().any(|value| *value != 0), "{}", kind.name());
        }
    }
}

#[test]
fn names_and_numbers_are_those_of_one_kind() {
    for (index, kind) in Coded::ALL.into_iter().enumerate() {
        assert_eq!(format!("{:?}", Kind::from(kind)), kind.name());
        for other in &Coded::ALL[..index] {
            assert!(kind.name() != other.name() && kind.number() != other.number());
        }
    }
}

use candle_core::Device;

use super::super::random::{Random, bits};
use super::*;

fn cache(dtype: DType) -> Tensor {
    Tensor::zeros((3, KV_BLOCK, 2, 5), dtype, &Device::Cpu).unwrap()
}

#[test]
fn rows_land_in_their_slots_as_in_plain_operations() {
    let rows = Random::new(1).tensor((4, 2, 5));
    let slots = [95, 0, 33, 31];
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let (ours, plain) = (cache(dtype), cache(dtype));
        kv_write(&ours, &rows, &slots).unwrap();
        portable::kv_write(&plain, &rows, &slots).unwrap();
        let wide = |t: &Tensor| t.to_dtype(DType::F32).unwrap();
        assert_eq!(bits(&wide(&ours)), bits(&wide(&plain)));
        let written = wide(&ours).flatten(0, 1).unwrap().get(33).unwrap();
        let rounded = wide(&rows.get(2).unwrap().to_dtype(dtype).unwrap());
        assert_eq!(bits(&written), bits(&rounded));
    }
}

#[test]
fn a_bad_slot_or_shape_is_an_error_and_nothing_is_written() {
    let mut random = Random::new(2);
    let cache = cache(DType::F32);
    let message = kv_write(&cache, &random.tensor((2, 2, 5)), &[1, 96]).unwrap_err().to_string();
    assert!(message.contains("slot 96 of a cache with 96 slots"), "{message}");
    assert!(kv_write(&cache, &random.tensor((2, 2, 5)), &[1]).is_err());
    assert!(kv_write(&cache, &random.tensor((1, 2, 4)), &[1]).is_err());
    assert!(bits(&cache).iter().all(|bits| *bits == 0));
    let small = Tensor::zeros((3, 16, 2, 5), DType::F32, &Device::Cpu).unwrap();
    assert!(kv_write(&small, &random.tensor((1, 2, 5)), &[1]).is_err());
}

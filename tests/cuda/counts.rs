//! Counts of penalties, which stay on the device from draw to draw.

use candle_core::Tensor;
use sconce::kernels::sample::{CountChange, Counts, DeviceLogits, Draw, Drawn, KeptCounts};

use crate::parity::device;

/// The most likely token of logits 0, 1, .. 99 with these counts.
fn drawn(kept: Option<KeptCounts>, len: u32, changes: &[(u32, Option<u32>, f32)]) -> u32 {
    let logits: Vec<f32> = (0u8..100).map(f32::from).collect();
    let logits = DeviceLogits::new(Tensor::new(logits, device()).unwrap().unsqueeze(0).unwrap());
    let change = |(index, token, output): &(u32, Option<u32>, f32)| CountChange {
        index: *index,
        token: *token,
        output: *output,
    };
    let draw = Draw {
        frequency_penalty: 10.0,
        repetition_penalty: 1.0,
        top_p: 1.0,
        counts: Counts { kept, len, changes: changes.iter().map(change).collect() },
        ..Draw::default()
    };
    let drawn = logits.unwrap().start(vec![draw]).unwrap().wait().unwrap().remove(0);
    let Drawn::Token { token_id, .. } = drawn else { panic!("{drawn:?}") };
    token_id
}

#[test]
fn counts_stay_where_they_are_and_changes_alone_are_told() {
    let logits = DeviceLogits::new(Tensor::new(&[[0.0f32]], device()).unwrap());
    // On the CPU's own kernels nobody draws on a device.
    let Ok(logits) = logits else { return };
    let room = Some(logits.room_for_counts(8).unwrap());
    assert_eq!(drawn(None, 0, &[]), 99);
    let first = [(0, Some(99), 1.0), (1, Some(98), 2.0), (2, Some(97), 0.0)];
    assert_eq!(drawn(room.clone(), 3, &first), 97);
    assert_eq!(drawn(room.clone(), 3, &[]), 97);
    // One more of a token; another has left the window.
    assert_eq!(drawn(room.clone(), 3, &[(2, Some(97), 3.0)]), 96);
    assert_eq!(drawn(room.clone(), 3, &[(0, None, 0.0)]), 99);
    // Its place is another's.
    assert_eq!(drawn(room.clone(), 3, &[(0, Some(96), 9.0)]), 99);
    assert_eq!(drawn(room.clone(), 4, &[(3, Some(99), 1.0)]), 95);
    let nowhere =
        Draw { counts: Counts { kept: room, len: 9, changes: vec![] }, ..Draw::default() };
    let refused = logits.start(vec![nowhere]).err().unwrap().to_string();
    assert!(refused.contains("9 counts"), "{refused}");
}

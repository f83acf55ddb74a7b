use super::super::random::{Random, assert_close, bits};
use super::*;

#[test]
fn equals_the_plain_operations() {
    let mut random = Random::new(1);
    for (rows, width) in [(1, 1), (3, 15), (2, 16), (7, 100), (9, 5000)] {
        let gate = (random.tensor((rows, width)) * 6.0).unwrap();
        let up = random.tensor((rows, width));
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let expected = portable::gated(activation, &gate, &up).unwrap();
            for level in Level::available() {
                let ours = gated_at(level, activation, &gate, &up).unwrap();
                assert_close(&ours, &expected, 2e-6);
            }
        }
    }
}

#[test]
fn an_element_is_the_same_wherever_it_stands() {
    let mut random = Random::new(2);
    let (gate, up) = (random.tensor((40, 777)), random.tensor((40, 777)));
    for level in Level::available() {
        let all = gated_at(level, Activation::Silu, &gate, &up).unwrap();
        let row = |t: &Tensor| t.narrow(0, 31, 1).unwrap();
        let alone = gated_at(level, Activation::Silu, &row(&gate), &row(&up)).unwrap();
        assert_eq!(bits(&alone), bits(&row(&all)));
    }
}

#[test]
fn different_shapes_are_an_error() {
    let mut random = Random::new(3);
    assert!(gated(Activation::Silu, &random.tensor((2, 3)), &random.tensor((3, 2))).is_err());
}

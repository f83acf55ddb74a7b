use super::super::random::{Random, assert_close, bits};
use super::*;

#[test]
fn equals_the_plain_operations_with_part_of_a_head_rotated() {
    let mut random = Random::new(1);
    for (rows, heads, head_dim, pairs) in
        [(1, 1, 2, 1), (3, 2, 12, 6), (2, 4, 64, 32), (5, 3, 80, 20), (2, 2, 34, 17)]
    {
        let x = random.tensor((rows, heads, head_dim));
        let (cos, sin) = (random.tensor((rows, pairs)), random.tensor((rows, pairs)));
        let expected = portable::rope(&x, &cos, &sin).unwrap();
        for level in Level::available() {
            let ours = rope_at(level, x.copy().unwrap(), &cos, &sin).unwrap();
            assert_close(&ours, &expected, 1e-6);
            let last = x.narrow(0, rows - 1, 1).unwrap().copy().unwrap();
            let angles = |t: &Tensor| t.narrow(0, rows - 1, 1).unwrap();
            let alone = rope_at(level, last, &angles(&cos), &angles(&sin)).unwrap();
            assert_eq!(bits(&alone), bits(&ours.narrow(0, rows - 1, 1).unwrap()));
        }
    }
}

#[test]
fn angles_that_dont_fit_are_errors() {
    let mut random = Random::new(2);
    for (rows, pairs) in [(3, 4), (2, 5)] {
        let x = random.tensor((2, 2, 8));
        let angles = random.tensor((rows, pairs));
        assert!(rope(x, &angles, &angles).is_err());
    }
}
